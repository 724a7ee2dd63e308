#include "device/markers/markers.h"

#include <algorithm>

#include "base/futex.h"
#include "base/pauses.h"
#include "base/tuning.h"
#include "device/context_scope.h"
#include "device/ids.h"
#include "device/markers/gaps.h"
#include "real.h"

namespace gpufence {
namespace {

// ---- recording ----

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

// Whether the call of the stream's last launch is known, and was over just now. Others put their
// markers there at any time.
bool IsBehindCall(const MarkedStream& stream) {
  const uint32_t word = stream.word.load(std::memory_order_relaxed);
  return (word & MarkedStream::kSparse) != 0 && stream.recorder == Recorder::kSelf;
}

// What it took, without holds.
uint64_t CallNs(const MarkedStream& stream, uint64_t now_ns) {
  const uint64_t came_ns = stream.came_ns.load(std::memory_order_relaxed) + stream.gaps.held_ns;
  return now_ns - std::min(now_ns, came_ns);
}

void Describe(Marker* marker, const MarkedStream& stream, uint32_t launches, bool begins,
              bool prompt) {
  marker->recorded_ns = NowNs();
  marker->launches = launches;
  marker->others = stream.others_put.load(std::memory_order_relaxed);
  marker->inner_ns = marker->logged = 0;
  marker->lead_ns = static_cast<uint32_t>(stream.LeadNs());
  marker->begin_ns = begins ? 0 : stream.waited.begin_ns;
  marker->joined = 0;
  marker->begins = begins;
  marker->prompt = prompt;
  marker->probes = marker->samples = false;
  marker->meets = marker->mixes = marker->whole = false;
  marker->queued = stream.IsQueued();
  marker->next_ns = 0;
  const uint64_t host_ns =
      marker->recorded_ns - std::min(stream.gaps.host_mark_ns, marker->recorded_ns);
  marker->host_ns = host_ns - std::min(host_ns, stream.gaps.held_ns);
  marker->late_ns = 0;
  marker->tells_late = marker->calls_briefly = false;
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
  const uint64_t passed_ns = MarkerPassedNs(marker.recorded_ns, recorded_ns);
  stream->gaps.host_mark_ns = passed_ns;
  stream->gaps.record_ns = std::min(passed_ns - marker.recorded_ns, kTuning.most_record_ns);
  stream->gaps.held_ns = 0;
  if (!stream->is_left) return;
  stream->is_left = false;
  StopRunning(stream);
  stream->goes_on.store(false, std::memory_order_relaxed);
}

// An event behind a copy between host and device is reached by the copy engine, whoever has the
// multiprocessors: of what begins there all time would be counted that other containers have the
// GPU until its turn (H200: 1.9 ms of 2.0). Behind a fill it is reached with the GPU. That takes
// 1.6 us of the host's time, so it is for runs behind something else than kernels, beside others.
bool BeginsBehindCopies(const Markers& markers, const MarkedStream& stream) {
  return !stream.goes_on.load(std::memory_order_relaxed) &&
         markers.IsBeside(stream.ordinal, NowNs());
}

constexpr uint64_t kNoFilled = 1;

// ---- marking ----

// So many launches were marked last. Where that was not directly behind one of them, which a look
// does to what it finds running, each of the next is marked.
void NoteSpacing(MarkedStream* stream, uint32_t launches, uint64_t now_ns, bool calls_block) {
  const bool is_sparse =
      calls_block || now_ns - stream->spaced_ns >= launches * kTuning.sparse_launch_ns;
  const uint64_t came_ns = stream->came_ns.load(std::memory_order_relaxed);
  // came_ns is of the last launch only then; and another thread's may be the newer.
  const bool was_sparse =
      (stream->word.load(std::memory_order_relaxed) & MarkedStream::kSparse) != 0;
  const bool is_late = was_sparse && now_ns >= came_ns + kTuning.sparse_launch_ns;
  stream->spaced_ns = is_late ? came_ns : now_ns;
  const uint32_t behind = stream->behind.load(std::memory_order_relaxed);
  stream->behind.store(behind - std::min(behind, launches), std::memory_order_relaxed);
  if (behind > launches) return;
  if (is_sparse) {
    stream->word.fetch_or(MarkedStream::kSparse, std::memory_order_relaxed);
  } else {
    stream->word.fetch_and(~MarkedStream::kSparse, std::memory_order_relaxed);
  }
  if (is_late || !is_sparse) stream->marks_each.store(is_sparse, std::memory_order_relaxed);
}

// Whether the GPU may have waited for the stream's host in one of its last intervals.
bool MayIdle(Markers* markers, const MarkedStream& stream) {
  const StreamsGuard guard(&markers->streams);
  return !guard || stream.gaps.may_idle != 0;
}

}  // namespace

// ---- events ----

uint32_t MarkerPool::Make(CUcontext context, CUevent events[kMadeAtOnce]) {
  const ContextScope scope(context);
  uint32_t count = 0;
  while (scope && count < kMadeAtOnce &&
         real::cuEventCreate(&events[count], CU_EVENT_DEFAULT) == CUDA_SUCCESS) {
    ++count;
  }
  return count;
}

uint32_t MarkerPool::Add(uint16_t context, CUevent events[kMadeAtOnce], uint32_t count) {
  while (count > 0) {
    uint16_t index = unused_;
    if (IsFull()) break;
    if (index != kNoMarker) {
      unused_ = markers_[index].next;
    } else {
      index = static_cast<uint16_t>(++made_);
    }
    markers_[index] = {};
    markers_[index].event = events[--count];
    markers_[index].next = free_[context];
    markers_[index].context = context;
    free_[context] = index;
  }
  return count;
}

uint16_t MarkerPool::Take(uint16_t context) {
  const uint16_t taken = free_[context];
  if (taken != kNoMarker) free_[context] = markers_[taken].next;
  return taken;
}

void MarkerPool::Return(uint16_t marker) {
  const uint16_t context = markers_[marker].context;
  markers_[marker].next = free_[context];
  free_[context] = marker;
}

// The event is gone; its place is not.
void MarkerPool::Discard(uint16_t marker) {
  markers_[marker].event = nullptr;
  markers_[marker].next = unused_;
  unused_ = marker;
}

void MarkerPool::Drop(uint16_t context) {
  for (uint16_t i = 1; i <= made_; ++i) {
    if (markers_[i].event != nullptr && markers_[i].context == context) Discard(i);
  }
  free_[context] = kNoMarker;
}

// ---- recording ----

bool LacksFilled(const Markers& markers, const MarkedStream& stream) {
  return markers.streams.ContextOf(stream).filled.load(std::memory_order_relaxed) == 0 &&
         BeginsBehindCopies(markers, stream);
}

void GiveFilled(Markers* markers, const MarkedStream& stream, CUdeviceptr filled) {
  markers->streams.ContextOf(stream).filled.store(filled != 0 ? filled : kNoFilled,
                                                  std::memory_order_relaxed);
}

bool MightWait(Markers* markers, const MarkedStream& stream, Recorder recorder) {
  if (recorder == Recorder::kSelf) return false;
  return (recorder == Recorder::kOther && !stream.HasRoom()) ||
         markers->streams.IsHeldUp(stream.context);
}

void TellLate(const MarkedStream& stream, uint64_t call_ns, Marker* marker) {
  marker->tells_late = true;
  marker->calls_briefly = call_ns <= kTuning.behind_ns;
  marker->late_ns = LateNs(stream, call_ns);
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
  Marker* marker = &markers->pool[taken];
  Describe(marker, *stream, launches, begins, prompt);
  if (markers->CallsBlock()) {
    marker->host_ns = 0;
  } else if (launches == 1 && IsBehindCall(*stream)) {
    TellLate(*stream, CallNs(*stream, marker->recorded_ns), marker);
  }
  const CUevent event = markers->pool[taken].event;
  const auto handle = reinterpret_cast<CUstream>(stream->handle.load(std::memory_order_relaxed));
  const bool fills = begins && recorder == Recorder::kSelf && BeginsBehindCopies(*markers, *stream);
  const uint64_t filled =
      fills ? markers->streams.ContextOf(*stream).filled.load(std::memory_order_relaxed) : 0;
  CUresult rc = CUDA_SUCCESS;
  uint64_t recorded_ns = 0;
  {
    const StreamsReleased released(&markers->streams);
    if (filled > kNoFilled) real::cuMemsetD32Async(filled, 0, 1, handle);
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
  stream->word.fetch_and(~MarkedStream::kRunning, std::memory_order_relaxed);
}

// ---- marking ----

bool MarkLocked(Markers* markers, MarkedStream* stream, Recorder recorder) {
  const MarkedContext& context = markers->streams.ContextOf(*stream);
  const uint32_t word = stream->word.load(std::memory_order_relaxed);
  const uint32_t launches = word & MarkedStream::kLaunches;
  if (launches == 0 || (word & MarkedStream::kRunning) == 0) return true;
  if (context.away || context.blind ||
      !RecordMarker(markers, stream, recorder, launches, /*begins=*/false)) {
    return false;
  }
  stream->word.fetch_sub(launches, std::memory_order_relaxed);
  Marker* marker = &markers->pool[stream->last];
  NoteSpacing(stream, launches, marker->recorded_ns, markers->CallsBlock());
  const uint32_t logged = stream->log.count();
  marker->logged = logged - stream->logged >= launches ? logged : 0;
  stream->logged = logged;
  marker->inner_ns = stream->TakeInner();
  marker->meets = stream->meets.exchange(false, std::memory_order_relaxed);
  marker->mixes = stream->mixes.exchange(false, std::memory_order_relaxed);
  marker->whole = stream->whole.exchange(false, std::memory_order_relaxed);
  stream->CountDown(launches);
  stream->awaits_launch = false;
  return true;
}

bool LeaveLocked(Markers* markers, MarkedStream* stream, Recorder recorder) {
  // Whoever puts a marker there just now does the rest.
  stream->is_left |= stream->recorder != Recorder::kNobody;
  const uint16_t last = stream->last;
  if (!MarkLocked(markers, stream, recorder)) return false;
  StopRunning(stream);
  return stream->last != last;
}

void MarkStream(Markers* markers, MarkedStream* stream) {
  const StreamsGuard guard(&markers->streams);
  if (guard) MarkLocked(markers, stream, Recorder::kSelf);
}

void MarkInTurn(Markers* markers, MarkedStream* stream) {
  const StreamsGuard guard(&markers->streams);
  if (!guard || !MarkLocked(markers, stream, Recorder::kSelf)) return;
  Marker* marker = &markers->pool[stream->last];
  const Tells told = stream->next_tells;
  stream->next_tells = Tells::kNothing;
  marker->samples = told == Tells::kSample && marker->launches == 1;
  const bool is_sampled = !marker->samples && IsSampleDue(*markers, stream, marker->launches,
                                                          marker->host_ns, marker->recorded_ns);
  const bool is_probe = told == Tells::kProbe && marker->launches == 1;
  const bool is_probed = !is_sampled && !is_probe && IsProbed(*stream);
  const bool is_drawn = is_probe || is_probed || is_sampled || marker->samples;
  const uint32_t every = is_probe || is_probed ? EveryProbed(*stream) : stream->every;
  const uint32_t drawn = std::max(every / 2 + stream->Random() % (every + 1), 1u);
  stream->mark_at.store(is_drawn ? drawn : every, std::memory_order_relaxed);
  const bool is_behind = stream->behind.load(std::memory_order_relaxed) != 0;
  const bool is_far = markers->IsFar();
  const bool is_due = is_sampled ? !is_behind : is_probed && IsProbeDue(stream, is_behind, is_far);
  if (is_probe) {
    stream->next_tells = Tells::kGap;
  } else if (!is_due) {
    return;
  } else if (is_sampled) {
    stream->next_tells = Tells::kSample;
  }
  stream->word.fetch_or(MarkedStream::kProbe, std::memory_order_relaxed);
}

bool WaitsForHost(Markers* markers, const MarkedStream* stream) {
  const StreamsGuard guard(&markers->streams);
  return guard && FindsGaps(*stream);
}

void LeaveStream(Markers* markers, MarkedStream* stream) {
  if (stream->IsTouched()) {
    const StreamsGuard guard(&markers->streams);
    if (guard) LeaveLocked(markers, stream, Recorder::kBefore);
  }
  stream->others_put.fetch_add(1, std::memory_order_relaxed);
  stream->goes_on.store(false, std::memory_order_relaxed);
}

bool GoesOn(Markers* markers, MarkedStream* stream) {
  constexpr uint32_t kBits = MarkedStream::kRunning | MarkedStream::kSparse;
  const uint32_t word = stream->word.load(std::memory_order_relaxed);
  // Launches that are far apart find the stream done, and begin a run each: one that is waited for
  // is told by the wait. (A hundredth of the rate of kernels of 20 us, each 150.)
  if ((word & kBits) != MarkedStream::kRunning || !markers->IsFar()) return false;
  stream->mixes.store(true, std::memory_order_relaxed);
  stream->whole.store(true, std::memory_order_relaxed);
  return true;
}

bool GoesOnWith(Markers* markers, MarkedStream* stream, bool is_kernel) {
  const uint32_t word = stream->word.load(std::memory_order_relaxed);
  const bool runs = (word & MarkedStream::kRunning) != 0;
  if (!runs || (!GoesOn(markers, stream) && MayIdle(markers, *stream))) return false;
  stream->mixes.store(true, std::memory_order_relaxed);
  if (is_kernel) stream->AddInner(markers->PausesOf(stream->ordinal).launch_gap_ns);
  stream->others_put.fetch_add(1, std::memory_order_relaxed);
  return true;
}

bool LeaveContext(Markers* markers, bool waits) {
  StreamTable* streams = &markers->streams;
  if (!streams->any_active()) return false;
  bool has_marked = false;
  const uint64_t context = CurrentContext();
  const StreamsGuard guard(streams);
  if (!guard) return false;
  streams->ForEachActive([&](MarkedStream* stream) {
    const uint64_t owner = streams->ContextOf(*stream).handle.load(std::memory_order_relaxed);
    if (!StreamTable::IsReachable(*stream) || owner != context) return;
    const bool is_left =
        stream->IsTouched() && (!waits || (MayMarkLate(*stream) && !GoesOn(markers, stream)));
    if (is_left) has_marked |= LeaveLocked(markers, stream, Recorder::kOther);
    if (!waits) stream->goes_on.store(false, std::memory_order_relaxed);
  });
  return has_marked;
}

// ---- the legacy stream ----

// Directly behind a launch blocking streams wait for each other anyway; later the program may count
// on them going on side by side.
bool MayMarkLate(const MarkedStream& stream) {
  return stream.handle.load(std::memory_order_relaxed) != kLegacyStream || !HasBlockingStreams();
}

// What is marked here lies before what is about to be put into the legacy stream, which waits for
// all before it in any case.
void LeaveBlockingStreams(Markers* markers) {
  if (!HasBlockingStreams()) return;
  const uint64_t current = CurrentContext();
  const StreamsGuard guard(&markers->streams);
  const uint16_t context = guard ? markers->streams.IndexOf(current) : kNoContext;
  if (context == kNoContext) return;
  ++markers->streams.Context(context).others;
  markers->streams.ForEachActive([&](MarkedStream* stream) {
    const bool is_meant =
        stream->context == context && stream->is_blocking && StreamTable::IsReachable(*stream);
    if (is_meant && stream->IsTouched()) LeaveLocked(markers, stream, Recorder::kOther);
  });
}

bool WaitsForLegacy(Markers* markers, MarkedStream* stream) {
  const uint32_t others = markers->streams.ContextOf(*stream).others;
  const bool waits = stream->is_blocking && stream->others_seen != others;
  stream->others_seen = others;
  return waits;
}

}  // namespace gpufence
