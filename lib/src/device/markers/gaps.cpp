#include "device/markers/gaps.h"

#include <algorithm>

namespace gpufence {
namespace {

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

}  // namespace

bool IsProbed(const MarkedStream& stream) {
  return stream.gaps.may_idle && stream.ns_per_launch >= kLeastProbedLaunchNs &&
         stream.ns_per_launch < kMostProbedLaunchNs;
}

bool IsProbeDue(MarkedStream* stream) {
  LaunchGaps* gaps = &stream->gaps;
  const bool finds = gaps->probes < kLeastProbes || gaps->idle_gap_ns > gaps->probed_ns / 64;
  if (!finds && ++gaps->unprobed < kSeldom) return false;
  gaps->unprobed = 0;
  return true;
}

void LearnGap(const GpuPauses& pauses, MarkedStream* stream, uint64_t gap_ns, uint64_t record_ns,
              uint64_t host_ns) {
  LaunchGaps* gaps = &stream->gaps;
  uint64_t idle_ns = gap_ns > pauses.queued_gap_ns ? gap_ns + pauses.start_ns : 0;
  idle_ns = std::min(idle_ns - std::min(idle_ns, record_ns), host_ns);
  if (gaps->probes == kProbes) {
    gaps->idle_gap_ns -= gaps->idle_gap_ns / kProbes;
    gaps->probed_ns -= gaps->probed_ns / kProbes;
  } else {
    ++gaps->probes;
  }
  gaps->idle_gap_ns += idle_ns;
  gaps->probed_ns += host_ns;
}

uint64_t CaughtUpNs(const MarkedStream& stream, uint64_t host_ns, uint64_t recorded_ns) {
  return recorded_ns > stream.run_begin_ns ? std::min(host_ns, recorded_ns - stream.run_begin_ns)
                                           : 0;
}

uint64_t PausesNs(const GpuPauses& pauses, const MarkedStream& stream,
                  const IntervalContent& content, uint64_t interval_ns) {
  const uint64_t first_ns = stream.is_fresh ? content.lead_ns + pauses.around_run_ns
                                            : pauses.marker_gap_ns + pauses.launch_gap_ns;
  const uint64_t others = std::max(content.launches, uint64_t{1}) - 1;
  const uint64_t between_ns =
      content.markers * pauses.marker_gap_ns + others * pauses.launch_gap_ns;
  return std::min(first_ns + between_ns + content.inner_ns, interval_ns / 2);
}

uint64_t IdleNs(const GpuPauses& pauses, const MarkedStream& stream, const IntervalContent& content,
                uint64_t interval_ns) {
  if (stream.gaps.probes < kLeastProbes || stream.gaps.probed_ns == 0) return 0;
  if (stream.ns_per_launch >= kMostProbedLaunchNs) return 0;
  const uint64_t host_ns = std::min(content.host_ns, interval_ns);
  const uint64_t most_ns = interval_ns - PausesNs(pauses, stream, content, interval_ns);
  return std::min(host_ns * stream.gaps.idle_gap_ns / stream.gaps.probed_ns,
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
