// Short runs that the program waits for, one by one: two markers would cost such a run a tenth of
// its time, and the watcher more than the run. The host's clock sees when the launch returned,
// which is when the GPU has it, and when the wait was over; what lies around the kernels in between
// is learned from runs that are marked all the same, one for each millisecond. What the host sees
// too long is marked from then on, and a run that is under way at a tick of the watcher gets its
// marker there.
#include <algorithm>

#include "device/ids.h"
#include "device/markers_look.h"
#include "real.h"

namespace gpufence {
namespace {

// What lies around the kernels: 5.2 to 5.5 us on an H200, 60 where the wait gives the processor
// away. With more the host's clock says too little about the kernels.
constexpr uint64_t kMostExtraNs = 100'000;
// Beyond what markers saw, and this, the host was late rather than the GPU busy.
constexpr uint64_t kSurpriseNs = 20'000;
// So much later ends the wait for a run that has a marker behind it (H200).
constexpr uint64_t kEndMarkerNs = 1'540;
constexpr uint64_t kMostLateNs = 1'000;   // more than that was a late host: it teaches this much
constexpr uint64_t kForgetParts = 1'024;  // of the longest launch, with each marked run
constexpr uint32_t kMarkedAfterSurprise = 4;

// Three parts of what was known, one of what was seen.
uint64_t Average(uint64_t known, uint64_t seen) {
  return known != 0 ? (3 * known + std::min(seen, known + kMostLateNs)) / 4 : seen;
}

}  // namespace

bool Markers::IsOnlyActive(const MarkedStream* stream) const {
  return active_count_.load(std::memory_order_relaxed) == (IsActive(stream) ? 1u : 0u);
}

// Whether the calling thread is in the stream's context.
bool Markers::IsHere(const MarkedStream& stream) const {
  return CurrentContext() == contexts_[stream.context].handle.load(std::memory_order_relaxed);
}

// Whether the wait for a run that no marker begins may yet tell of it, as it does of others.
bool Markers::IsToldByHost(const MarkedStream& stream, uint32_t launches, uint64_t now_ns) const {
  return stream.by_host && now_ns < stream.host_begin_ns + launches * stream.longest_ns +
                                        stream.host_extra_ns + kSurpriseNs;
}

// Beside other streams the host would see their kernels as well.
bool Markers::HostIsEnough(const MarkedStream& stream) const {
  return stream.is_trusted && stream.host_extra_ns != 0 && stream.host_extra_ns < kMostExtraNs &&
         stream.marked_due == 0 && stream.first == kNone &&
         stream.ns_per_launch < kHostToldLaunchNs &&
         stream.since_mark_ns < waited_spacing_ns_.load(std::memory_order_relaxed) &&
         IsOnlyActive(&stream);
}

uint32_t Markers::BeforeWait(MarkedStream* stream) {
  if (stream->word.load(std::memory_order_relaxed) == 0) return 0;
  const FutexGuard guard(&lock_);
  const uint32_t word = stream->word.load(std::memory_order_relaxed);
  const uint32_t launches = word & MarkedStream::kLaunches;
  const bool is_running = (word & MarkedStream::kRunning) != 0;
  if (stream->by_host && is_running && launches != 0 && stream->first == kNone) {
    stream->is_waited_for = true;
    return launches;
  }
  if (MayMarkLate(*stream)) LeaveLocked(stream);
  return 0;
}

size_t Markers::AfterWait(MarkedStream* stream, uint32_t launches, bool ended, BusyInterval* busy,
                          size_t room) {
  const uint64_t now_ns = NowNs();
  const FutexGuard guard(&lock_);
  size_t count = 0;
  if (launches != 0) {
    stream->is_waited_for = false;
    if (ended && TakeByHost(stream, launches, now_ns, busy, &count)) return count;
    // The watcher marked it, or more was launched meanwhile.
    if (MayMarkLate(*stream)) LeaveLocked(stream);
  }
  if (!ended) return 0;
  return MayMarkLate(*stream) ? TakeMarked(stream, now_ns, busy, room)
                              : TakeEnded(stream, now_ns, busy, room);
}

size_t Markers::AfterAnswer(MarkedStream* stream, bool ended, BusyInterval* busy, size_t room) {
  const uint32_t launches = stream->word.load(std::memory_order_relaxed) & MarkedStream::kLaunches;
  if (launches == 0 && !IsActive(stream)) return 0;
  const uint64_t now_ns = NowNs();
  const FutexGuard guard(&lock_);
  if (!ended) {
    if (MayMarkLate(*stream)) LeaveLocked(stream);
    return 0;
  }
  size_t count = 0;
  if (launches != 0 && TakeByHost(stream, launches, now_ns, busy, &count)) return count;
  count = TakeMarked(stream, now_ns, busy, room);
  return count + TakeEnded(stream, now_ns, busy + count, room - count);
}

// False when the run is not what it was before the wait.
bool Markers::TakeByHost(MarkedStream* stream, uint32_t launches, uint64_t now_ns,
                         BusyInterval* busy, size_t* count) {
  uint32_t word = stream->word.load(std::memory_order_relaxed);
  const bool is_as_it_was = stream->by_host && stream->first == kNone &&
                            (word & MarkedStream::kRunning) != 0 &&
                            (word & MarkedStream::kLaunches) == launches;
  if (!is_as_it_was || !stream->word.compare_exchange_strong(word, 0, std::memory_order_acq_rel)) {
    return false;
  }
  const uint64_t called_ns = stream->host_begin_ns + stream->LeadNs();
  const uint64_t span_begin_ns = std::min(called_ns, now_ns);
  uint64_t span_ns = now_ns - span_begin_ns;
  const uint64_t most_ns = launches * stream->longest_ns + kSurpriseNs;
  if (span_ns > most_ns + stream->host_extra_ns) {
    span_ns = most_ns + stream->host_extra_ns;
    stream->marked_due = kMarkedAfterSurprise;
  }
  const uint64_t steps_ns = stream->steps.exchange(0, std::memory_order_relaxed) * kStepGapNs;
  const uint64_t extra_ns =
      stream->host_extra_ns + (launches - 1) * kLaunchGapNs + std::min(steps_ns, span_ns / 2);
  const uint64_t busy_ns = span_ns - std::min(span_ns, extra_ns);
  stream->since_mark_ns += span_ns;
  stream->is_timed = false;
  CountReached(*stream);
  const uint64_t begin_ns = std::max(stream->charged_ns, span_begin_ns + stream->host_extra_ns / 2);
  const uint64_t end_ns = std::min(begin_ns + busy_ns, now_ns);
  *count = end_ns > begin_ns ? 1 : 0;
  if (*count != 0) *busy = {begin_ns, end_ns, stream->ordinal};
  return true;
}

// All that is in the stream is done: what is marked tells when, and of the rest it is reckoned.
size_t Markers::TakeEnded(MarkedStream* stream, uint64_t now_ns, BusyInterval* busy, size_t room) {
  if (contexts_[stream->context].away || !IsHere(*stream)) return 0;
  Look look = {now_ns, true, busy, room, 0, stream->context};
  CollectStream(stream, &look);
  return look.count;
}

size_t Markers::CollectEnded(MarkedStream* stream, BusyInterval* busy, size_t room) {
  Look look = {NowNs(), false, busy, room, 0, stream->context};
  const FutexGuard guard(&lock_);
  const Context& context = contexts_[stream->context];
  const bool is_marked = stream->first != kNone && (stream->word.load(std::memory_order_relaxed) &
                                                    MarkedStream::kLaunches) == 0;
  if (context.away != 0 || context.blind || !is_marked || !IsHere(*stream) ||
      !IsOver(stream, markers_[stream->last])) {
    return 0;
  }
  look.alone = IsOnlyActive(stream);
  CollectStream(stream, &look);
  return look.count;
}

// The markers of short runs are reached once these were waited for: taken here, the next run need
// not be marked because of them. One that had two tells what the host's clock adds.
size_t Markers::TakeMarked(MarkedStream* stream, uint64_t now_ns, BusyInterval* busy, size_t room) {
  if (stream->first == kNone || stream->ns_per_launch >= kHostToldLaunchNs) return 0;
  const Marker& first = markers_[stream->first];
  const bool is_one_run =
      first.begins && first.next == stream->last && !markers_[stream->last].begins;
  stream->ran_ns = 0;
  if (stream->is_unread) stream->unread = 0;  // the next one has both
  const size_t count = TakeEnded(stream, now_ns, busy, room);
  if (!is_one_run || stream->first != kNone || stream->ran_ns == 0) return count;
  // Both spans begin before the launch, whose time is in neither.
  const uint64_t span_ns = now_ns - stream->marked_ns + kAroundRunNs;
  const uint64_t known_ns = stream->ran_ns + kEndMarkerNs;
  const uint64_t extra_ns = span_ns - std::min(span_ns, known_ns);
  if (stream->host_extra_ns == 0) stream->marked_due = kMarkedAfterSurprise;  // chance, so far
  stream->host_extra_ns = std::max(Average(stream->host_extra_ns, extra_ns), uint64_t{1});
  stream->longest_ns -= stream->longest_ns / kForgetParts;
  stream->since_mark_ns = 0;
  if (stream->marked_due > 0) --stream->marked_due;
  return count;
}

}  // namespace gpufence
