#include "device/markers/gaps.h"

#include <algorithm>

#include "base/pauses.h"

namespace gpufence {
namespace {

// ---- pauses ----

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
// find their pauses, and cost them more markers than they have.
constexpr uint64_t kMostProbedLaunchNs = 80'000;

// ---- runs that are waited for, or settled ----

// Beyond what markers saw, and this, the host was late rather than the GPU busy.
constexpr uint64_t kSurpriseNs = 20'000;
constexpr uint32_t kMarkedAfterSurprise = 4;
// By so much the time from a run's begin to the next one's may be off the mean of the last eight or
// so; most of that is how long it takes to wake up who waited.
constexpr uint64_t kMostOffNs = 40'000;
constexpr uint64_t kMeanRuns = 8;

// ---- samples ----

// For others to come between, the GPU changes hands twice: that takes 280 us and more (H200).
constexpr uint64_t kUndisturbedNs = 250'000;
// Where all three were queued, it does so only at the end of a slice, for another one.
constexpr uint64_t kAwayNs = kSliceNs + 2 * kSwitchNs;
constexpr uint64_t kDoubtNs = 20'000;  // of what events tell
constexpr uint32_t kLeastSamples = 8;
constexpr uint32_t kMostSamples = 128;  // are remembered, about
constexpr uint64_t kSamplesLastNs = 2'000'000'000;
// One in so many markers once enough are known.
constexpr uint32_t kKnownEvery = 2;

// Of a sample that was queued as a whole, what was no neighbour's slice.
uint64_t WithoutSlicesNs(uint64_t ran_ns) {
  if (ran_ns + kDoubtNs < kAwayNs) return ran_ns;
  constexpr uint64_t kRoundNs = kSliceNs + kAwayNs;
  const uint64_t times = (ran_ns - kSliceNs + kRoundNs - 1) / kRoundNs;
  return ran_ns - std::min(times * kAwayNs, ran_ns);
}

}  // namespace

// ---- pauses ----

bool IsProbed(const MarkedStream& stream) {
  return stream.gaps.may_idle && stream.ns_per_launch < kMostProbedLaunchNs;
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

// ---- runs that are waited for, or settled ----

uint64_t MostSpanNs(const WaitedRuns& runs, uint64_t launches) {
  return launches * runs.longest_ns + kSurpriseNs + 2 * runs.extra.ns();
}

uint64_t BusyByHostNs(const GpuPauses& pauses, WaitedRuns* runs, uint32_t launches,
                      uint64_t inner_ns, uint64_t* span_ns) {
  const uint64_t most_ns = MostSpanNs(*runs, launches);
  if (*span_ns > most_ns) {
    *span_ns = most_ns;
    runs->marked_due = kMarkedAfterSurprise;
  }
  const uint64_t between_ns = uint64_t{launches - 1} * pauses.launch_gap_ns;
  const uint64_t extra_ns =
      runs->extra.ns() + runs->short_ns + between_ns + std::min(inner_ns, *span_ns / 2);
  runs->short_ns = std::min(extra_ns - std::min(extra_ns, *span_ns), kMostExtraNs);
  return *span_ns - std::min(*span_ns, extra_ns);
}

uint64_t ExtraOf(const GpuPauses& pauses, const WaitedRuns& runs, const MarkedRun& run) {
  // Both spans begin before the launch, whose time is in neither.
  uint64_t span_ns = run.span_ns + pauses.around_run_ns;
  const uint64_t known_ns = run.ran_ns + pauses.end_marker_ns;
  const uint64_t marked_ns = run.lead_ns + pauses.around_run_ns + pauses.end_marker_ns;
  if (runs.extra.ns() != 0) {
    span_ns = std::min(span_ns, MostSpanNs(runs, run.launches) + marked_ns);
  }
  return span_ns - std::min(span_ns, known_ns);
}

bool IsUsual(SettledRuns* runs, uint64_t span_ns) {
  const uint64_t mean_ns = runs->run_span_ns != 0 ? runs->run_span_ns : span_ns;
  const uint64_t learnt_ns = std::min(span_ns, 2 * mean_ns);  // a launch of the next may be held
  runs->run_span_ns = ((kMeanRuns - 1) * mean_ns + learnt_ns) / kMeanRuns;
  return span_ns < mean_ns + kMostOffNs && mean_ns < span_ns + kMostOffNs;
}

// ---- samples ----

bool IsSampleDue(const Markers& markers, MarkedStream* stream, uint32_t launches, uint64_t host_ns,
                 uint64_t now_ns) {
  if (!markers.IsBeside(stream->ordinal, now_ns)) return false;
  LaunchSamples* samples = &stream->samples;
  const uint64_t apart_ns = host_ns / std::max(launches, 1u);
  samples->apart_ns = samples->apart_ns == 0 ? apart_ns : (7 * samples->apart_ns + apart_ns) / 8;
  return samples->count < kMostSamples / 2 || ++samples->unsampled % kKnownEvery == 0;
}

void LearnSample(const GpuPauses& pauses, MarkedStream* stream, uint64_t ran_ns, uint64_t lead_ns,
                 uint64_t now_ns) {
  LaunchSamples* samples = &stream->samples;
  if (now_ns - std::min(now_ns, samples->at_ns) > kSamplesLastNs) {
    samples->count = samples->disturbed = 0;
    samples->sum_ns = 0;
  }
  samples->at_ns = now_ns;
  if (samples->count + samples->disturbed >= kMostSamples) {
    samples->sum_ns -= samples->sum_ns / 2;
    samples->count -= samples->count / 2;
    samples->disturbed /= 2;
  }
  if (lead_ns == 0) {
    ran_ns = WithoutSlicesNs(ran_ns);
  } else if (ran_ns > kUndisturbedNs) {
    ++samples->disturbed;
    return;
  }
  ++samples->count;
  const uint64_t around_ns = lead_ns + pauses.around_run_ns;
  samples->sum_ns += ran_ns - std::min(around_ns, ran_ns * 3 / 4);
}

uint64_t SampledNs(const Markers& markers, const MarkedStream& stream, uint64_t launches,
                   uint64_t now_ns) {
  if (!markers.IsBeside(stream.ordinal, now_ns)) return UINT64_MAX;
  const LaunchSamples& samples = stream.samples;
  if (samples.count < kLeastSamples || samples.disturbed > samples.count ||
      now_ns - std::min(now_ns, samples.at_ns) > kSamplesLastNs ||
      samples.sum_ns / samples.count > samples.apart_ns) {
    return UINT64_MAX;
  }
  return std::max(launches, uint64_t{1}) * samples.sum_ns / samples.count;
}

}  // namespace gpufence
