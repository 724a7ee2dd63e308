// Runs that the program waits for (runs.h). Must not know which call waits.
#include <algorithm>

#include "device/capture_mode.h"
#include "device/markers/gaps.h"
#include "device/markers/looks.h"
#include "device/markers/marking.h"
#include "device/markers/runs.h"

namespace gpufence {
namespace {

constexpr uint64_t kForgetParts = 1'024;  // of the longest launch, with each marked run

// False when the run is not what it was before the wait.
bool TakeByHost(Markers* markers, MarkedStream* stream, uint32_t launches, uint64_t now_ns,
                BusyList* busy) {
  uint32_t word = stream->word.load(std::memory_order_relaxed);
  const bool is_as_it_was =
      stream->by_host && stream->first == kNoMarker && stream->recorder == Recorder::kNobody &&
      (word & MarkedStream::kRunning) != 0 && (word & MarkedStream::kLaunches) == launches;
  if (!is_as_it_was || !stream->word.compare_exchange_strong(word, word & MarkedStream::kLife,
                                                             std::memory_order_acq_rel)) {
    return false;
  }
  WaitedRuns* runs = &stream->waited;
  const uint64_t called_ns = std::min(runs->host_begin_ns + stream->LeadNs(), now_ns);
  uint64_t span_ns = now_ns - called_ns;
  const uint64_t inner_ns = stream->inner_ns.exchange(0, std::memory_order_relaxed);
  const uint64_t busy_ns =
      BusyByHostNs(markers->PausesOf(stream->ordinal), runs, launches, inner_ns, &span_ns);
  runs->extra.CountTold(span_ns);
  runs->launches = launches;
  stream->is_timed = false;
  stream->meets.store(false, std::memory_order_relaxed);
  markers->CountReached(*stream);
  const uint64_t begin_ns = std::max(stream->charged_ns, called_ns + runs->extra.ns() / 2);
  busy->Add(stream->ordinal, begin_ns, std::min(begin_ns + busy_ns, now_ns));
  return true;
}

// All that is in the stream is done: what is marked tells when, and of the rest it is reckoned.
void TakeEnded(Markers* markers, MarkedStream* stream, uint64_t now_ns, BusyList* busy) {
  const StreamTable& streams = markers->streams;
  if (streams.ContextOf(*stream).away != 0 || !streams.IsHere(*stream)) return;
  const CaptureRelaxed relaxed;  // another thread's capture may begin at any moment
  StreamLook look = {now_ns, /*captures=*/true, busy};
  look.alone = streams.IsOnlyActive(stream);
  CollectStream(markers, stream, &look);
}

// From a run of which the GPU's clock told `ran_ns`: what the host's adds, in the mean. A late host
// teaches as much of it as it would have cost. Runs that are marked because the one before took
// long teach nothing: a host that was late once is late again (on an H200, where waits sleep: 76 us
// behind such runs, 52 else), and the others would be charged too little.
void LearnExtra(const Markers& markers, MarkedStream* stream, uint64_t launches, uint64_t now_ns) {
  WaitedRuns* runs = &stream->waited;
  runs->longest_ns -= runs->longest_ns / kForgetParts;
  if (runs->marked_due > 0) --runs->marked_due;
  if (!runs->extra.IsDue()) return;
  const uint64_t extra_ns =
      ExtraOf(markers.PausesOf(stream->ordinal), *runs,
              {launches, now_ns - runs->marked_ns, stream->ran_ns, stream->LeadNs()});
  runs->extra.Learn(extra_ns, markers.waited_spacing_ns.load(std::memory_order_relaxed),
                    stream->Random());
}

// The markers of short runs are reached once these were waited for: taken here, the next run need
// not be marked because of them. One that had two tells what the host's clock adds.
void TakeMarked(Markers* markers, MarkedStream* stream, uint64_t now_ns, BusyList* busy) {
  const bool is_alone = markers->streams.IsOnlyActive(stream);
  const uint64_t most_ns = is_alone ? kHostToldLaunchNs : kBriefLaunchNs;
  if (stream->first == kNoMarker || stream->ns_per_launch >= most_ns) return;
  const Marker& first = markers->pool[stream->first];
  const bool is_one_run =
      first.begins && first.next == stream->last && !markers->pool[stream->last].begins;
  const uint32_t launches = markers->pool[stream->last].launches;
  stream->ran_ns = 0;
  if (stream->settling.is_unread) stream->settling.unread = 0;  // the next one has both
  TakeEnded(markers, stream, now_ns, busy);
  stream->waited.launches = launches;
  if (is_one_run && stream->first == kNoMarker && stream->ran_ns != 0) {
    LearnExtra(*markers, stream, launches, now_ns);
  }
}

// Whether waits have told what runs in a stream such as it is.
bool WaitsTell(const Markers& markers, const MarkedStream& stream) {
  const WaitedRuns& runs = stream.waited;
  return stream.is_trusted && runs.extra.ns() != 0 && runs.extra.ns() < kMostExtraNs &&
         stream.first == kNoMarker && stream.ns_per_launch < kHostToldLaunchNs &&
         markers.streams.IsOnlyActive(&stream);
}

bool IsSampleDue(const MarkedStream& stream) {
  return stream.waited.marked_due != 0 || stream.waited.extra.IsDue();
}

}  // namespace

uint32_t BeforeWait(Markers* markers, MarkedStream* stream) {
  if (!stream->IsTouched()) return 0;
  const StreamsGuard guard(&markers->streams);
  if (!guard) return 0;
  const uint32_t word = stream->word.load(std::memory_order_relaxed);
  const uint32_t launches = word & MarkedStream::kLaunches;
  const bool is_running = (word & MarkedStream::kRunning) != 0;
  if (stream->by_host && is_running && launches != 0 && stream->first == kNoMarker) {
    stream->waited.is_waited_for = true;
    return launches;
  }
  if (MayMarkLate(*stream)) LeaveLocked(markers, stream, Recorder::kBefore);
  return 0;
}

void AfterWait(Markers* markers, MarkedStream* stream, CUstream handle, uint32_t launches,
               bool ended, BusyList* busy) {
  const uint64_t now_ns = NowNs();
  const StreamsGuard guard(&markers->streams);
  if (!guard || !StreamTable::IsOf(*stream, handle)) return;
  if (launches != 0) {
    stream->waited.is_waited_for = false;
    if (ended && TakeByHost(markers, stream, launches, now_ns, busy)) return;
    // The watcher marked it, or more was launched meanwhile.
    if (MayMarkLate(*stream)) LeaveLocked(markers, stream, Recorder::kOther);
  }
  if (!ended) return;
  if (MayMarkLate(*stream)) {
    TakeMarked(markers, stream, now_ns, busy);
  } else {
    TakeEnded(markers, stream, now_ns, busy);
  }
}

void AfterAnswer(Markers* markers, MarkedStream* stream, bool ended, BusyList* busy) {
  const uint32_t launches = stream->word.load(std::memory_order_relaxed) & MarkedStream::kLaunches;
  if (launches == 0 && !markers->streams.IsActive(stream)) return;
  const uint64_t now_ns = NowNs();
  const StreamsGuard guard(&markers->streams);
  if (!guard) return;
  if (!ended) {
    if (MayMarkLate(*stream)) LeaveLocked(markers, stream, Recorder::kOther);
    return;
  }
  if (launches != 0 && TakeByHost(markers, stream, launches, now_ns, busy)) return;
  TakeMarked(markers, stream, now_ns, busy);
  TakeEnded(markers, stream, now_ns, busy);
}

bool HostIsEnough(const Markers& markers, const MarkedStream& stream) {
  return WaitsTell(markers, stream) && !IsSampleDue(stream);
}

bool IsSampleOfWaits(const Markers& markers, const MarkedStream& stream) {
  return WaitsTell(markers, stream) && IsSampleDue(stream);
}

}  // namespace gpufence
