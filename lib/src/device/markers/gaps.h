// What the GPU waits for a host that is slower than it, learned from probes: a marker behind a
// launch and one before the next, with nothing between them (docs/core-limiter.md, "Markers").
// For the parts of markers alone; must not know the driver.
#pragma once

#include <stdint.h>

#include "core/pauses.h"
#include "device/markers/marked_stream.h"

namespace gpufence {

// Whether the host may be slower than the GPU there, so that probes would tell something.
bool IsProbed(const MarkedStream& stream);

// Whether the marker that was put into such a stream is to be one: fewer are where they find
// nothing.
bool IsProbeDue(MarkedStream* stream);

// A probe: the GPU was `gap_ns` from one marker to the next, of which recording the first took the
// host `record_ns`, and it took the host `host_ns` from there to the next.
void LearnGap(const GpuPauses& pauses, MarkedStream* stream, uint64_t gap_ns, uint64_t record_ns,
              uint64_t host_ns);

// What was put into a stream in an interval.
struct IntervalContent {
  uint64_t launches;
  uint64_t inner_ns;  // pauses within each: between the steps of a graph, around a wide grid
  uint64_t lead_ns;   // of the run that it begins
  uint64_t markers;   // between the launches
  uint64_t host_ns;   // in which the host launched and the GPU may have waited; 0: unknown
  bool meets;         // one of the launches waits for kernels on other GPUs
};

// What of an interval lies between kernels.
uint64_t PausesNs(const GpuPauses& pauses, const MarkedStream& stream,
                  const IntervalContent& content, uint64_t interval_ns);

// In so much of the rest the GPU waited for the host.
uint64_t IdleNs(const GpuPauses& pauses, const MarkedStream& stream, const IntervalContent& content,
                uint64_t interval_ns);

// After so many intervals in a row that took what was foretold, the next are.
inline constexpr uint32_t kSteadyIntervals = 8;

// Learns from an interval of so many launches: the mean over some hundred of them, and whether it
// took what those before it foretold.
void LearnMean(MarkedStream* stream, uint32_t launches, uint64_t ran_ns, uint64_t busy_ns);

// So much of the host's time up to a marker may the GPU have waited in: not what it took to be done
// with the marker before.
uint64_t CaughtUpNs(const MarkedStream& stream, uint64_t host_ns, uint64_t recorded_ns);

}  // namespace gpufence
