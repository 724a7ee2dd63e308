// What of an interval kernels ran: the rest are pauses between them, and time in which the GPU
// waited for the host or was with other containers. Learned from probes (a marker behind a launch
// and one before the next, with nothing between them) and from samples of one launch
// (docs/core-limiter.md, "Markers"). For the parts of markers alone; pure: must not know the
// driver.
#pragma once

#include <stdint.h>

#include "base/pauses.h"
#include "base/tuning.h"
#include "device/markers/marked_stream.h"
#include "device/markers/markers.h"

namespace gpufence {

// An interval was read, of the only stream that runs or not, in which the GPU may have waited for
// the host or not. Some intervals in which it did not are probed as well: the part of the host's
// time that probes tell of is taken off all of them.
void NoteMayIdle(MarkedStream* stream, bool is_alone, bool may_idle,
                 const Tuning& tuning = kTuning);

// Whether the host may be slower than the GPU there, so that probes would tell something.
bool IsProbed(const MarkedStream& stream, const Tuning& tuning = kTuning);

// Whether probes have found that the GPU waits for the host there.
bool FindsGaps(const MarkedStream& stream);

// Whether the marker that was put into such a stream is to be one: fewer are where they find
// nothing, or what they find matters little, far from the limit.
bool IsProbeDue(MarkedStream* stream, bool is_behind, bool is_far, const Tuning& tuning = kTuning);

// Launches between two markers there, about: fewer until enough probes are known, since all is
// charged until then. Not behind a wait: what is waited for one by one has no gaps. Nor of long
// launches, which are marked nearly one by one.
uint32_t EveryProbed(const MarkedStream& stream, const Tuning& tuning = kTuning);

// Whether a probe tells what its launch took. `ran_ns`: between both markers; `called_ns`: from the
// first until the launch had returned. Where that is long and the GPU was done by then, either the
// call took so long or it waited for the kernel.
bool TellsLaunch(uint64_t ran_ns, uint64_t called_ns, const Tuning& tuning = kTuning);

// How long the GPU waits for the host behind a launch, of the host's time from that one to the
// next: all but what the launch itself takes and, where it is queued, what is before it. Of a late
// one it is all but `mean_ns`, which launches take in the mean.
uint64_t IdleBehindNs(const GpuPauses& pauses, const Probe& probe, uint64_t mean_ns);

// In so much of a call that took `call_ns` the GPU waited for it: all but what a launch takes in
// the mean, if it took far longer than calls do. For launches that do not wait for their kernels.
uint64_t LateNs(const MarkedStream& stream, uint64_t call_ns, const Tuning& tuning = kTuning);

// Whether it did, where the launch was over so long behind its call: a launch that runs for far
// longer than others may have run while its thread stood still in the call.
bool WaitedForCall(const MarkedStream& stream, uint64_t behind_ns, const Tuning& tuning = kTuning);

// Learns how much of its time that is, in the mean.
void LearnGap(const GpuPauses& pauses, MarkedStream* stream, const Probe& probe,
              const Tuning& tuning = kTuning);

// The same of the open probe: the next launch came so long behind its last marker.
void EndGap(const GpuPauses& pauses, MarkedStream* stream, uint64_t next_ns);

// At the next marker but a probe's own: whether the GPU was there as soon as it was recorded. Such
// an interval is one in which the host was the slower one all along, probably. The last gap counts
// for that marker, too, as it did for the one before it: close to a marker gaps are more as it
// tells than in the rest of the interval, and far from it less.
void CountLastGap(MarkedStream* stream, bool is_at_once);

// When an interval's last marker was reached: kAtOnce: as soon as it was recorded.
enum class MarkerReached : uint8_t { kUnknown, kAtOnce, kLater };

// What was put into a stream in an interval.
struct IntervalContent {
  uint64_t launches;
  uint64_t inner_ns;  // pauses within each: between the steps of a graph, around a wide grid
  uint64_t lead_ns;   // of the run that it begins
  uint64_t markers;   // between the launches
  uint64_t host_ns;   // in which the host launched and the GPU may have waited; 0: unknown
  bool tells_late;    // which calls of launches took long is known, ...
  uint64_t late_ns;   // ... and for so long the GPU waited for them (LateNs)
  bool meets;         // one of the launches waits for kernels on other GPUs
  MarkerReached reached;
  bool is_queued = false;  // a run that it begins was queued before the GPU came to it
  bool is_single = false;  // one launch, whose call was short, and nothing else
};

// Of an interval what lies between two of its kernels, ...
uint64_t BetweenNs(const GpuPauses& pauses, const IntervalContent& content);

// ... and with it what lies around its markers: all that is no kernel.
uint64_t PausesNs(const GpuPauses& pauses, const MarkedStream& stream,
                  const IntervalContent& content, uint64_t interval_ns);

// From one launch's end to the next one's, with the pause or the GPU's waiting between them.
uint64_t ApartNs(const MarkedStream& stream, const Tuning& tuning = kTuning);

// In so much of the rest the GPU waited for the host.
uint64_t IdleNs(const GpuPauses& pauses, const MarkedStream& stream, const IntervalContent& content,
                uint64_t interval_ns, const Tuning& tuning = kTuning);

// Learns from an interval of so many launches: the mean over some hundred of them, and whether it
// took what those before it foretold.
void LearnMean(MarkedStream* stream, uint32_t launches, uint64_t ran_ns, uint64_t busy_ns,
               const Tuning& tuning = kTuning);

// So much of the host's time up to a marker may the GPU have waited in: not what it took to be done
// with the marker before.
uint64_t CaughtUpNs(const MarkedStream& stream, uint64_t host_ns, uint64_t recorded_ns);

// ---- runs that are waited for, or closed by the next one ----

// So long the host sees a run of so many launches that is waited for, unless it is late. Waits that
// sleep vary as much as they take.
uint64_t MostSpanNs(const WaitedRuns& runs, uint64_t launches, const Tuning& tuning = kTuning);

// What the host saw of so many launches, less what is no kernel, where pauses of `inner_ns` are
// within them. What took far longer than any that a marker saw is charged as the longest of them,
// and becomes so long.
uint64_t BusyByHostNs(const GpuPauses& pauses, WaitedRuns* runs, uint32_t launches,
                      uint64_t inner_ns, uint64_t* span_ns, const Tuning& tuning = kTuning);

// A run that had a marker before its first launch and one behind its last.
struct MarkedRun {
  uint64_t launches;
  uint64_t span_ns;  // from the first marker's recording until the wait was over
  uint64_t ran_ns;   // from marker to marker, by the GPU's clock
  uint64_t lead_ns;  // until the first launch was with the GPU
};

// Whether the GPU may have waited for the host between the launches of such a run: then neither the
// host's clock nor a marker at each end tells what kernels ran. `host_ns` is from the first marker
// to the last launch.
bool MayWaitForHost(uint64_t launches, uint64_t host_ns, uint64_t ran_ns);

// What the host's clock added to it. A late host teaches as much of it as it would have cost.
uint64_t ExtraOf(const GpuPauses& pauses, const WaitedRuns& runs, const MarkedRun& run,
                 const Tuning& tuning = kTuning);

// Whether the host saw a run that the next one closes take about as long as the others; learns
// from it.
bool IsUsual(ClosedRuns* runs, uint64_t span_ns, const Tuning& tuning = kTuning);

// ---- samples of one launch ----
//
// What a launch takes the GPU where other containers use it as well: an interval of many launches
// then holds their time too, in unknown parts. A sample is one launch between two markers that are
// put right around it: the GPU comes to all three at once, or others come between, which takes so
// long that it shows (docs/side-by-side.md). What was queued as a whole may take as long by itself:
// others come between only at the end of a slice. Of use where the host launches slower than the
// GPU works. A launch that takes long itself looks as if others had come between, until they tell
// that none of them ran then.

// Whether the next launch is to be one; behind a marker for so many launches, for which the host
// took `host_ns`.
bool IsSampleDue(const Markers& markers, MarkedStream* stream, uint32_t launches, uint64_t host_ns,
                 uint64_t now_ns, const Tuning& tuning = kTuning);

// A sample: `ran_ns` from one marker to the other, of which the launch itself took the host
// `lead_ns` while the GPU waited for it; 0: all three were queued when the GPU came to them.
// Returns what the launch took if nobody came between, where that is in doubt; else 0.
uint64_t LearnSample(const GpuPauses& pauses, MarkedStream* stream, uint64_t ran_ns,
                     uint64_t lead_ns, uint64_t now_ns, const Tuning& tuning = kTuning);

// One of those, once the others have told of their runs: nobody came between, it is a long launch.
void LearnUndisturbed(MarkedStream* stream, uint64_t own_ns);

// So long such launches take the GPU; UINT64_MAX: nobody else uses it, or that is not known, or the
// host is no slower.
uint64_t SampledNs(const Markers& markers, const MarkedStream& stream, uint64_t launches,
                   uint64_t now_ns, const Tuning& tuning = kTuning);

}  // namespace gpufence
