#include "device/markers/gaps.h"

#include <algorithm>

#include "base/part.h"
#include "base/pauses.h"
#include "base/tuning.h"

namespace gpufence {
namespace {

// What a launch took of the time between two markers right around it; its call took `lead_ns`. At
// least an eighth of that: kernels of a microsecond are no more.
uint64_t OwnNs(const GpuPauses& pauses, uint64_t ran_ns, uint64_t lead_ns) {
  return ran_ns - std::min(lead_ns + pauses.around_run_ns, ran_ns * 7 / 8);
}

// The same where all three were queued when the GPU came to them.
uint64_t QueuedOwnNs(const GpuPauses& pauses, uint64_t ran_ns) {
  const uint64_t pause_ns = uint64_t{pauses.marker_gap_ns} + pauses.launch_gap_ns;
  return ran_ns - std::min(pause_ns, ran_ns * 7 / 8);
}

// Where a launch and both markers were queued, others come between only at the end of a slice: they
// have the GPU for another one, and it changes hands twice.
constexpr uint64_t kAwayNs = kSliceNs + 2 * kSwitchNs;

// Of a sample that was queued as a whole, what was no neighbour's slice.
uint64_t WithoutSlicesNs(uint64_t ran_ns, const Tuning& tuning) {
  if (ran_ns + tuning.doubt_ns < kAwayNs) return ran_ns;
  constexpr uint64_t kRoundNs = kSliceNs + kAwayNs;
  const uint64_t times = (ran_ns - kSliceNs + kRoundNs - 1) / kRoundNs;
  return ran_ns - std::min(times * kAwayNs, ran_ns);
}

void Count(GapShare* share, GapShare gap) {
  share->idle_ns += gap.idle_ns;
  share->host_ns += gap.host_ns;
}

// Of all gaps behind launches that were not late, each counted twice.
GapShare EveryTimely(const LaunchGaps& gaps) {
  GapShare every = gaps.at_once;
  Count(&every, gaps.later);
  return every;
}

// Of all gaps, each counted twice.
GapShare EveryGap(const LaunchGaps& gaps) {
  GapShare every = EveryTimely(gaps);
  Count(&every, gaps.late);
  Count(&every, gaps.late);
  return every;
}

// Whether enough probes are yet to be had. Of launches that are all held, or waited for one by one,
// there are none.
bool IsNew(const LaunchGaps& gaps, const Tuning& tuning) {
  return gaps.probes < tuning.least_probes && gaps.asked < tuning.probes;
}

// By the mean, in which what is charged of pauses is as well.
bool AreShort(const MarkedStream& stream, const Tuning& tuning) {
  return stream.mean_ns < tuning.long_launch_ns;
}

uint64_t IdleOf(GapShare share, uint64_t host_ns) {
  return share.host_ns == 0 ? 0 : PartOf(host_ns, share.idle_ns, share.host_ns);
}

GapShare ShareAt(const LaunchGaps& gaps, const IntervalContent& content) {
  const bool is_known = content.reached != MarkerReached::kUnknown;
  if (!is_known) return content.tells_late ? EveryTimely(gaps) : EveryGap(gaps);
  GapShare share = content.reached == MarkerReached::kAtOnce ? gaps.at_once : gaps.later;
  if (!content.tells_late) Count(&share, gaps.late);
  return share;
}

// Where each launch has a marker, those that came far apart have ended the run before, or the GPU
// was busy: only short gaps are left, but for calls that took long.
GapShare ShareOf(const LaunchGaps& gaps, const IntervalContent& content, const Tuning& tuning) {
  if (gaps.probes < tuning.least_probes) return {};
  const bool is_dense = content.launches > 1 && content.markers + 1 >= content.launches;
  return is_dense ? gaps.brief : ShareAt(gaps, content);
}

void CountAt(LaunchGaps* gaps, bool is_at_once) {
  Count(is_at_once ? &gaps->at_once : &gaps->later, gaps->last);
}

}  // namespace

// ---- pauses ----

void NoteMayIdle(MarkedStream* stream, bool is_alone, bool may_idle, const Tuning& tuning) {
  const uint32_t left = stream->gaps.may_idle;
  stream->gaps.may_idle = may_idle ? tuning.probed_behind : left - std::min(left, 1u);
  if (!is_alone) stream->gaps.may_idle = 0;
}

bool IsProbed(const MarkedStream& stream, const Tuning& tuning) {
  const bool is_known = stream.gaps.probes >= tuning.probes / 2;
  return stream.gaps.may_idle != 0 && (AreShort(stream, tuning) || !is_known);
}

bool FindsGaps(const MarkedStream& stream) {
  const GapShare every = EveryGap(stream.gaps);
  return every.idle_ns > every.host_ns / 64;
}

bool IsProbeDue(MarkedStream* stream, bool is_behind, bool is_far, const Tuning& tuning) {
  LaunchGaps* gaps = &stream->gaps;
  const bool is_new = IsNew(*gaps, tuning);
  // Where each launch has a marker few probes would be of others.
  if (is_behind && !is_new && stream->marks_each.load(std::memory_order_relaxed)) return false;
  const bool finds = is_new || (!is_far && FindsGaps(*stream));
  if (!finds && ++gaps->unprobed < tuning.probes_seldom) return false;
  gaps->unprobed = 0;
  gaps->asked += gaps->asked < tuning.probes ? 1 : 0;
  return true;
}

uint32_t EveryProbed(const MarkedStream& stream, const Tuning& tuning) {
  const bool is_soon =
      AreShort(stream, tuning) && IsNew(stream.gaps, tuning) && !stream.waited.is_first;
  return is_soon ? std::max(stream.every / tuning.least_probes, 1u) : stream.every;
}

bool TellsLaunch(uint64_t ran_ns, uint64_t called_ns, const Tuning& tuning) {
  const bool is_long = called_ns > 4 * tuning.most_lead_ns;
  return !is_long || ran_ns > called_ns + tuning.behind_ns;
}

uint64_t IdleBehindNs(const GpuPauses& pauses, const Probe& probe, uint64_t mean_ns) {
  if (probe.is_late) return probe.host_ns - std::min(probe.host_ns, mean_ns);
  const bool is_queued = probe.gap_ns <= pauses.queued_gap_ns;
  // The GPU had both markers to reach as well, and the host to record them.
  const uint64_t marked_ns = 2 * uint64_t{pauses.marker_gap_ns};
  const uint64_t later_ns = marked_ns - std::min(marked_ns, probe.record_ns);
  const uint64_t late_ns = is_queued ? probe.behind_ns : 0;
  const uint64_t behind_ns = late_ns - std::min(late_ns, later_ns);
  const uint64_t lead_ns = probe.call_ns - std::min(probe.call_ns, late_ns);
  // Where the launch was there soon behind its marker, that kept the GPU busy until then.
  const uint64_t queued_ns = is_queued ? QueuedOwnNs(pauses, probe.ran_ns) : probe.ran_ns;
  const uint64_t own_ns = std::min(OwnNs(pauses, probe.ran_ns, lead_ns), queued_ns);
  const uint64_t busy_ns = own_ns + pauses.launch_gap_ns;
  return probe.host_ns - std::min(probe.host_ns, busy_ns + std::min(behind_ns, probe.host_ns));
}

uint64_t LateNs(const MarkedStream& stream, uint64_t call_ns, const Tuning& tuning) {
  if (call_ns <= tuning.behind_ns) return 0;
  const uint64_t mean_ns = stream.mean_ns;
  return call_ns - std::min(call_ns, mean_ns != 0 ? mean_ns : tuning.unknown_launch_ns);
}

bool WaitedForCall(const MarkedStream& stream, uint64_t behind_ns, const Tuning& tuning) {
  return behind_ns <= std::max(tuning.behind_ns, 4 * stream.mean_ns);
}

void LearnGap(const GpuPauses& pauses, MarkedStream* stream, const Probe& probe,
              const Tuning& tuning) {
  LaunchGaps* gaps = &stream->gaps;
  const uint64_t host_ns = probe.host_ns;
  const uint64_t idle_ns = IdleBehindNs(pauses, probe, stream->mean_ns);
  if (gaps->probes == tuning.probes) {
    for (GapShare* share : {&gaps->at_once, &gaps->later, &gaps->brief, &gaps->late}) {
      share->idle_ns -= share->idle_ns / tuning.probes;
      share->host_ns -= share->host_ns / tuning.probes;
    }
  } else {
    ++gaps->probes;
  }
  if (probe.is_late) {
    Count(&gaps->late, {idle_ns, host_ns});
    gaps->last = {};
    return;
  }
  gaps->last = {idle_ns, host_ns};
  CountAt(gaps, gaps->is_at_once);
  if (probe.host_ns < tuning.behind_ns) Count(&gaps->brief, gaps->last);
}

void EndGap(const GpuPauses& pauses, MarkedStream* stream, uint64_t next_ns) {
  Probe* probe = &stream->gaps.open;
  probe->host_ns += next_ns;
  LearnGap(pauses, stream, *probe);
  *probe = {};
}

void CountLastGap(MarkedStream* stream, bool is_at_once) {
  LaunchGaps* gaps = &stream->gaps;
  gaps->is_at_once = is_at_once;
  CountAt(gaps, is_at_once);
  gaps->last = {};
}

uint64_t CaughtUpNs(const MarkedStream& stream, uint64_t host_ns, uint64_t recorded_ns) {
  return recorded_ns > stream.run_begin_ns ? std::min(host_ns, recorded_ns - stream.run_begin_ns)
                                           : 0;
}

uint64_t BetweenNs(const GpuPauses& pauses, const IntervalContent& content) {
  return (std::max(content.launches, uint64_t{1}) - 1) * pauses.launch_gap_ns + content.inner_ns;
}

uint64_t PausesNs(const GpuPauses& pauses, const MarkedStream& stream,
                  const IntervalContent& content, uint64_t interval_ns) {
  const bool begins_idle = stream.is_fresh && !content.is_queued;
  const uint64_t first_ns = begins_idle ? content.lead_ns + pauses.around_run_ns
                                        : pauses.marker_gap_ns + pauses.launch_gap_ns;
  const uint64_t joined_ns = content.markers * pauses.marker_gap_ns;
  // What the host took up to the first launch is known.
  const uint64_t most_ns = stream.is_fresh ? interval_ns * 3 / 4 : interval_ns / 2;
  return std::min(first_ns + joined_ns + BetweenNs(pauses, content), most_ns);
}

uint64_t ApartNs(const MarkedStream& stream, const Tuning& tuning) {
  const LaunchGaps& gaps = stream.gaps;
  const bool known = gaps.probes >= tuning.least_probes;
  const uint64_t host_ns = known ? EveryGap(gaps).host_ns / (2 * gaps.probes) : 0;
  return std::max(stream.ns_per_launch.load(std::memory_order_relaxed), host_ns);
}

uint64_t IdleNs(const GpuPauses& pauses, const MarkedStream& stream, const IntervalContent& content,
                uint64_t interval_ns, const Tuning& tuning) {
  // The host's time up to the first launch of a run is one of the pauses already.
  const uint64_t lead_ns = stream.is_fresh ? std::min(content.lead_ns, content.host_ns) : 0;
  const uint64_t host_ns = std::min(content.host_ns - lead_ns, interval_ns);
  const uint64_t most_ns = interval_ns - PausesNs(pauses, stream, content, interval_ns);
  const uint64_t late_ns = std::min(content.late_ns, host_ns);
  const GapShare share = ShareOf(stream.gaps, content, tuning);
  // A launch by itself that runs when the marker behind it is recorded: the GPU waited until then.
  const bool is_known =
      content.is_single && content.reached == MarkerReached::kLater && share.host_ns != 0;
  const uint64_t idle_ns = is_known ? host_ns : late_ns + IdleOf(share, host_ns - late_ns);
  // Markers between the launches, which are pauses already, lie in what the GPU waited.
  const uint64_t marked_ns = content.markers * pauses.marker_gap_ns;
  return std::min(idle_ns - std::min(idle_ns, marked_ns), most_ns);
}

void LearnMean(MarkedStream* stream, uint32_t launches, uint64_t ran_ns, uint64_t busy_ns,
               const Tuning& tuning) {
  launches = std::max(launches, 1u);
  const uint64_t told_ns = launches * stream->ns_per_launch;
  const uint64_t off_ns = told_ns > ran_ns ? told_ns - ran_ns : ran_ns - told_ns;
  const bool is_steady = off_ns <= std::max(ran_ns / 8, tuning.doubt_ns);
  stream->steady = is_steady ? std::min(stream->steady + 1, tuning.enough) : 0;
  const uint32_t others = tuning.many - std::min(launches, tuning.many);
  const uint32_t kept = std::min(stream->mean_of, others);
  stream->mean_of = kept + launches;
  stream->mean_ns = std::max((stream->mean_ns * kept + busy_ns) / stream->mean_of, uint64_t{1});
}

// ---- runs that are waited for, or closed by the next one ----

uint64_t MostSpanNs(const WaitedRuns& runs, uint64_t launches, const Tuning& tuning) {
  return launches * runs.longest_ns + tuning.doubt_ns + 2 * runs.extra.ns();
}

uint64_t BusyByHostNs(const GpuPauses& pauses, WaitedRuns* runs, uint32_t launches,
                      uint64_t inner_ns, uint64_t* span_ns, const Tuning& tuning) {
  const uint64_t most_ns = MostSpanNs(*runs, launches, tuning);
  const bool is_long = *span_ns > most_ns;
  *span_ns = std::min(*span_ns, most_ns);
  const uint64_t own_extra_ns = runs->extra.OfNs(*span_ns);
  if (is_long && *span_ns > own_extra_ns + launches * runs->longest_ns) {
    runs->marked_due = tuning.enough;
  }
  const uint64_t between_ns = uint64_t{launches - 1} * pauses.launch_gap_ns;
  const uint64_t extra_ns =
      own_extra_ns + runs->short_ns + between_ns + std::min(inner_ns, *span_ns / 2);
  runs->short_ns = std::min(extra_ns - std::min(extra_ns, *span_ns), tuning.doubt_ns);
  return *span_ns - std::min(*span_ns, extra_ns);
}

bool MayWaitForHost(uint64_t launches, uint64_t host_ns, uint64_t ran_ns) {
  return launches > 1 && host_ns > ran_ns - ran_ns / 3;
}

uint64_t ExtraOf(const GpuPauses& pauses, const WaitedRuns& runs, const MarkedRun& run,
                 const Tuning& tuning) {
  // Both spans begin before the launch, whose time is in neither.
  uint64_t span_ns = run.span_ns + pauses.around_run_ns;
  const uint64_t known_ns = run.ran_ns + pauses.end_marker_ns;
  const uint64_t marked_ns = run.lead_ns + pauses.around_run_ns + pauses.end_marker_ns;
  if (runs.extra.ns() != 0) {
    span_ns = std::min(span_ns, MostSpanNs(runs, run.launches, tuning) + marked_ns);
  }
  return span_ns - std::min(span_ns, known_ns);
}

bool IsUsual(ClosedRuns* runs, uint64_t span_ns, const Tuning& tuning) {
  const uint64_t mean_ns = runs->run_span_ns != 0 ? runs->run_span_ns : span_ns;
  const uint64_t learnt_ns = std::min(span_ns, 2 * mean_ns);  // a launch of the next may be held
  runs->run_span_ns = ((tuning.enough - 1) * mean_ns + learnt_ns) / tuning.enough;
  return span_ns < mean_ns + tuning.doubt_ns && mean_ns < span_ns + tuning.doubt_ns;
}

// ---- samples ----

bool IsSampleDue(const Markers& markers, MarkedStream* stream, uint32_t launches, uint64_t host_ns,
                 uint64_t now_ns, const Tuning& tuning) {
  if (!markers.IsBeside(stream->ordinal, now_ns)) return false;
  LaunchSamples* samples = &stream->samples;
  const uint64_t apart_ns = host_ns / std::max(launches, 1u);
  samples->apart_ns = samples->apart_ns == 0 ? apart_ns : (7 * samples->apart_ns + apart_ns) / 8;
  return samples->count < tuning.many / 2 || ++samples->unsampled % 2 == 0;
}

uint64_t LearnSample(const GpuPauses& pauses, MarkedStream* stream, uint64_t ran_ns,
                     uint64_t lead_ns, uint64_t now_ns, const Tuning& tuning) {
  LaunchSamples* samples = &stream->samples;
  if (now_ns - std::min(now_ns, samples->at_ns) > tuning.remembered_ns) {
    samples->count = samples->disturbed = 0;
    samples->sum_ns = 0;
  }
  samples->at_ns = now_ns;
  if (samples->count + samples->disturbed >= tuning.many) {
    samples->sum_ns -= samples->sum_ns / 2;
    samples->count -= samples->count / 2;
    samples->disturbed /= 2;
  }
  if (lead_ns != 0 && ran_ns > 2 * kSwitchNs - tuning.doubt_ns) {
    ++samples->disturbed;
    return OwnNs(pauses, ran_ns, lead_ns);
  }
  ++samples->count;
  samples->sum_ns += lead_ns == 0 ? QueuedOwnNs(pauses, WithoutSlicesNs(ran_ns, tuning))
                                  : OwnNs(pauses, ran_ns, lead_ns);
  return 0;
}

void LearnUndisturbed(MarkedStream* stream, uint64_t own_ns) {
  LaunchSamples* samples = &stream->samples;
  if (samples->disturbed == 0) return;
  --samples->disturbed;
  ++samples->count;
  samples->sum_ns += own_ns;
}

uint64_t SampledNs(const Markers& markers, const MarkedStream& stream, uint64_t launches,
                   uint64_t now_ns, const Tuning& tuning) {
  if (!markers.IsBeside(stream.ordinal, now_ns)) return UINT64_MAX;
  const LaunchSamples& samples = stream.samples;
  if (samples.count < tuning.enough || samples.disturbed > samples.count ||
      now_ns - std::min(now_ns, samples.at_ns) > tuning.remembered_ns ||
      samples.sum_ns / samples.count > samples.apart_ns) {
    return UINT64_MAX;
  }
  return std::max(launches, uint64_t{1}) * samples.sum_ns / samples.count;
}

}  // namespace gpufence
