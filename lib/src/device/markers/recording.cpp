#include "device/markers/recording.h"

#include <algorithm>

#include "core/futex.h"
#include "real.h"

namespace gpufence {
namespace {

// Recording takes about one; more was the making of events, or the host's own affair.
constexpr uint64_t kMostRecordNs = 3'000;

// Of the calling thread, from here to its end: others put no marker there, and who ends the stream
// or its context waits for one that is on behalf of others.
class Recording {
 public:
  Recording(Markers* markers, MarkedStream* stream, Recorder recorder)
      : streams_(&markers->streams),
        stream_(stream),
        context_(&streams_->ContextOf(*stream)),
        life_(context_->life) {
    stream->recorder = recorder;
    if (recorder == Recorder::kOther) ++context_->visitors;
  }
  ~Recording() {
    if (stream_->recorder == Recorder::kOther) {
      --context_->visitors;
      streams_->NoteDeparture();
    }
    stream_->recorder = Recorder::kNobody;
    stream_->is_left = false;
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // False: its context ended, with all events of it.
  bool is_alive() const { return context_->life == life_; }

 private:
  StreamTable* streams_;
  MarkedStream* stream_;
  MarkedContext* context_;
  uint32_t life_;
};

void MakeMarkers(Markers* markers, uint16_t index, const Recording& recording) {
  if (markers->pool.IsFull()) return;
  const uint64_t handle = markers->streams.Context(index).handle.load(std::memory_order_relaxed);
  CUevent events[kMadeAtOnce];
  uint32_t count = 0;
  {
    const StreamsReleased released(&markers->streams);
    count = MarkerPool::Make(reinterpret_cast<CUcontext>(handle), events);
  }
  if (!recording.is_alive()) return;
  const uint32_t left = markers->pool.Add(index, events, count);
  const StreamsReleased released(&markers->streams);
  for (uint32_t i = 0; i < left; ++i) real::cuEventDestroy_v2(events[i]);
}

void Fill(Marker* marker, const MarkedStream& stream, uint32_t launches, bool begins, bool prompt) {
  marker->recorded_ns = NowNs();
  marker->launches = launches;
  marker->others = stream.others_put.load(std::memory_order_relaxed);
  marker->inner_ns = 0;
  marker->lead_ns = static_cast<uint32_t>(stream.LeadNs());
  marker->begin_ns = begins ? 0 : stream.waited.begin_ns;
  marker->joined = 0;
  marker->begins = begins;
  marker->prompt = prompt;
  marker->probes = marker->samples = false;
  marker->meets = false;
  const uint64_t host_ns =
      marker->recorded_ns - std::min(stream.gaps.host_mark_ns, marker->recorded_ns);
  marker->host_ns = host_ns - std::min(host_ns, stream.gaps.held_ns);
  marker->record_ns = stream.gaps.record_ns;
  marker->next = kNoMarker;
}

// It is in the stream: from here on looks ask for it.
void Publish(Markers* markers, MarkedStream* stream, uint16_t taken, uint64_t recorded_ns) {
  const Marker& marker = markers->pool[taken];
  if (stream->first == kNoMarker) {
    stream->first = taken;
  } else {
    markers->pool[stream->last].next = taken;
  }
  stream->last = taken;
  stream->waited.begin_ns = 0;
  stream->goes_on.store(true, std::memory_order_relaxed);
  stream->queued += marker.launches;
  stream->gaps.host_mark_ns = recorded_ns;
  stream->gaps.record_ns = std::min(recorded_ns - marker.recorded_ns, kMostRecordNs);
  stream->gaps.held_ns = 0;
  if (!stream->is_left) return;
  stream->is_left = false;
  StopRunning(stream);
  stream->goes_on.store(false, std::memory_order_relaxed);
}

}  // namespace

bool MightWait(Markers* markers, const MarkedStream& stream, Recorder recorder) {
  if (recorder == Recorder::kSelf) return false;
  return (recorder == Recorder::kOther && !stream.HasRoom()) ||
         markers->streams.IsHeldUp(stream.context);
}

bool RecordMarker(Markers* markers, MarkedStream* stream, Recorder recorder, uint32_t launches,
                  bool begins, bool prompt) {
  if (stream->recorder != Recorder::kNobody || MightWait(markers, *stream, recorder)) return false;
  const Recording recording(markers, stream, recorder);
  uint16_t taken = markers->pool.Take(stream->context);
  if (taken == kNoMarker) {
    MakeMarkers(markers, stream->context, recording);
    taken = recording.is_alive() ? markers->pool.Take(stream->context) : kNoMarker;
  }
  if (taken == kNoMarker) return false;
  Fill(&markers->pool[taken], *stream, launches, begins, prompt);
  const CUevent event = markers->pool[taken].event;
  const auto handle = reinterpret_cast<CUstream>(stream->handle.load(std::memory_order_relaxed));
  CUresult rc = CUDA_SUCCESS;
  uint64_t recorded_ns = 0;
  {
    const StreamsReleased released(&markers->streams);
    rc = real::cuEventRecord(event, handle);
    recorded_ns = NowNs();
  }
  if (!recording.is_alive()) return false;
  if (rc != CUDA_SUCCESS) {
    markers->pool.Return(taken);
    return false;
  }
  Publish(markers, stream, taken, recorded_ns);
  return true;
}

CUresult QueryStream(Markers* markers, MarkedStream* stream, CUstream asked, bool* is_left) {
  *is_left = false;
  if (stream->recorder != Recorder::kNobody || markers->streams.IsHeldUp(stream->context)) {
    return CUDA_ERROR_NOT_READY;
  }
  const Recording claim(markers, stream, Recorder::kOther);
  CUresult rc = CUDA_SUCCESS;
  {
    const StreamsReleased released(&markers->streams);
    rc = real::cuStreamQuery(asked);
  }
  if (!claim.is_alive()) return CUDA_ERROR_NOT_READY;
  *is_left = stream->is_left;
  return rc;
}

void StopRunning(MarkedStream* stream) {
  stream->word.fetch_and(~(MarkedStream::kRunning | MarkedStream::kProbe),
                         std::memory_order_relaxed);
}

}  // namespace gpufence
