// What of an interval between two markers kernels ran: pauses between them, and probes.
#include "device/markers_gaps.h"

#include <algorithm>

namespace gpufence {
namespace {

// From a marker behind a kernel to a queued one behind it are 1.3 to 1.8 us (H200).
constexpr uint64_t kQueuedGapNs = 2'000;
// In an idle stream a marker is reached so much sooner than a kernel in its place would begin, less
// the pause between kernels (2.8 to 3.3 us, H200).
constexpr uint64_t kStartNs = 2'800;
// At least such a part of an interval is charged.
constexpr uint64_t kLeastBusyPart = 32;
constexpr uint32_t kMeanLaunches = 256;
// So little off what was foretold is no surprise.
constexpr uint64_t kSteadyNs = 50'000;
// Until so many probes are known, none counts.
constexpr uint32_t kLeastProbes = 8;
// So many probes are remembered, about.
constexpr uint32_t kProbes = 64;
// Where probes found nothing, only so many markers is one.
constexpr uint32_t kSeldom = 4;

// Launches further apart than those of an eager program on a slow host are not probed: it would
// find their pauses, and cost them more markers than they have. Nor are those that come as fast as
// a host can launch, to which each marker is much.
constexpr uint64_t kLeastProbedLaunchNs = 5'000;
constexpr uint64_t kMostProbedLaunchNs = 80'000;

bool IsProbed(const MarkedStream& stream) {
  return stream.may_idle && stream.ns_per_launch >= kLeastProbedLaunchNs &&
         stream.ns_per_launch < kMostProbedLaunchNs;
}

}  // namespace

uint32_t Random(MarkedStream* stream) {
  uint32_t x = stream->random;
  x ^= x << 13;
  x ^= x >> 17;
  x ^= x << 5;
  return stream->random = x;
}

void SpaceStream(MarkedStream* stream, uint32_t launches) {
  stream->every = launches;
  if (stream->mark_at.load(std::memory_order_relaxed) > launches + launches / 2) {
    stream->mark_at.store(launches, std::memory_order_relaxed);
  }
}

void CountDown(MarkedStream* stream, uint32_t launches) {
  const uint32_t left = stream->mark_at.load(std::memory_order_relaxed);
  stream->mark_at.store(left > launches ? left - launches : 1, std::memory_order_relaxed);
}

void Markers::MarkInTurn(MarkedStream* stream) {
  const FutexGuard guard(&lock_);
  if (!MarkLocked(stream)) return;
  const uint32_t every = stream->every;
  const bool is_probed = IsProbed(*stream);
  const uint32_t drawn = std::max(every / 2 + Random(stream) % (every + 1), 1u);
  stream->mark_at.store(is_probed ? drawn : every, std::memory_order_relaxed);
  if (stream->behind.load(std::memory_order_relaxed) != 0) return;
  const bool finds = stream->probes < kLeastProbes || stream->idle_gap_ns > stream->probed_ns / 64;
  if (!is_probed || (!finds && ++stream->unprobed < kSeldom)) return;
  stream->unprobed = 0;
  stream->word.fetch_or(MarkedStream::kProbe, std::memory_order_relaxed);
}

// Before a launch that nothing held.
bool Markers::Probe(MarkedStream* stream) {
  const uint32_t word = stream->word.fetch_and(~MarkedStream::kProbe, std::memory_order_relaxed);
  const Context& context = contexts_[stream->context];
  if ((word & MarkedStream::kProbe) == 0 || (word & MarkedStream::kLaunches) != 0 ||
      context.away != 0 || context.blind || !Record(stream, 0, /*begins=*/true)) {
    return false;
  }
  markers_[stream->last].probes = true;
  stream->marked_ns = stream->host_mark_ns;
  stream->launched_ns.store(0, std::memory_order_relaxed);
  return stream->awaits_launch = true;
}

// The call is a part of the host's time from launch to launch.
void Markers::Probed(MarkedStream* stream) {
  const uint64_t now_ns = NowNs();
  const FutexGuard guard(&lock_);
  if (stream->probes != 0) stream->probed_ns += now_ns - std::min(now_ns, stream->host_mark_ns);
}

void LearnGap(MarkedStream* stream, uint64_t gap_ns, uint64_t record_ns, uint64_t host_ns) {
  uint64_t idle_ns = gap_ns > kQueuedGapNs ? gap_ns + kStartNs : 0;
  idle_ns = std::min(idle_ns - std::min(idle_ns, record_ns), host_ns);
  if (stream->probes == kProbes) {
    stream->idle_gap_ns -= stream->idle_gap_ns / kProbes;
    stream->probed_ns -= stream->probed_ns / kProbes;
  } else {
    ++stream->probes;
  }
  stream->idle_gap_ns += idle_ns;
  stream->probed_ns += host_ns;
}

uint64_t CaughtUpNs(const MarkedStream& stream, uint64_t host_ns, uint64_t recorded_ns) {
  return recorded_ns > stream.run_begin_ns ? std::min(host_ns, recorded_ns - stream.run_begin_ns)
                                           : 0;
}

uint64_t PausesNs(const MarkedStream& stream, const IntervalContent& content,
                  uint64_t interval_ns) {
  const uint64_t first_ns =
      stream.is_fresh ? content.lead_ns + kAroundRunNs : kMarkerGapNs + kLaunchGapNs;
  const uint64_t others = std::max(content.launches, uint64_t{1}) - 1;
  const uint64_t between_ns = content.markers * kMarkerGapNs + others * kLaunchGapNs;
  return std::min(first_ns + between_ns + content.steps * kStepGapNs, interval_ns / 2);
}

uint64_t IdleNs(const MarkedStream& stream, const IntervalContent& content, uint64_t interval_ns) {
  if (stream.probes < kLeastProbes || stream.probed_ns == 0) return 0;
  if (stream.ns_per_launch >= kMostProbedLaunchNs) return 0;
  const uint64_t host_ns = std::min(content.host_ns, interval_ns);
  const uint64_t most_ns = interval_ns - PausesNs(stream, content, interval_ns);
  return std::min(host_ns * stream.idle_gap_ns / stream.probed_ns,
                  most_ns - most_ns / kLeastBusyPart);
}

void LearnMean(MarkedStream* stream, uint32_t launches, uint64_t ran_ns, uint64_t busy_ns) {
  launches = std::max(launches, 1u);
  const uint64_t told_ns = launches * stream->ns_per_launch;
  const uint64_t off_ns = told_ns > ran_ns ? told_ns - ran_ns : ran_ns - told_ns;
  const bool is_steady = off_ns <= std::max(ran_ns / 8, kSteadyNs);
  stream->steady = is_steady ? std::min(stream->steady + 1, kSteadyIntervals) : 0;
  const uint32_t others = kMeanLaunches - std::min(launches, kMeanLaunches);
  const uint32_t kept = std::min(stream->mean_of, others);
  stream->mean_of = kept + launches;
  stream->mean_ns = std::max((stream->mean_ns * kept + busy_ns) / stream->mean_of, uint64_t{1});
}

}  // namespace gpufence
