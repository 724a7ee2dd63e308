// Time in which a GPU runs no kernel of a program's: the pauses around what is put into its
// streams, and the slices by which the driver lets processes alternate. Physics of the GPU, its
// driver and its host, so that every place that reckons with such a number takes it from here: none
// of them is true on all GPUs. Pure; must not know how they are found out (docs/core-limiter.md,
// "Markers").
#pragma once

#include <stdint.h>

#include <algorithm>

namespace gpufence {

// All in nanoseconds. In all of them no kernel runs.
struct GpuPauses {
  // Between two kernels of a stream, where the second was queued when the first ended.
  uint32_t launch_gap_ns;
  // The same between two kernels of a graph, of which the second waits for the first.
  uint32_t step_gap_ns;
  // What a marker between two such kernels of a stream adds to that.
  uint32_t marker_gap_ns;
  // Between a marker in an idle stream, a kernel and a marker behind it: what lies around the
  // kernel, beside the time that the host took from the first marker to the launch's return.
  uint32_t around_run_ns;
  // From a marker behind a kernel to a queued one right behind it, at most.
  uint32_t queued_gap_ns;
  // By so much sooner a marker in an idle stream is reached than a kernel in its place would begin,
  // less launch_gap_ns.
  uint32_t start_ns;
  // By so much later a wait ends for a run that has a marker behind it.
  uint32_t end_marker_ns;
  // Further, around a grid of kWideBlocks blocks and more.
  uint32_t wide_gap_ns;
};

// Where nothing is known. Half of the least that was measured of what makes charges smaller, and
// twice the most of what makes them larger, so that no container passes its limit by it; kernels of
// some microseconds get less than their share. Measured on an H200 (driver 580.159.04) by kernels
// of up to two blocks on each multiprocessor: 1.3 to 1.7 us between two kernels, 0.57 to
// 0.72 between two of a graph, 1.4 to 1.9 more with a marker between, 1.8 to 2.1 around one, 1.3
// between two markers, 1.5 to 1.65 until a wait ends.
inline constexpr GpuPauses kUnknownPauses = {
    .launch_gap_ns = 650,
    .step_gap_ns = 280,
    .marker_gap_ns = 700,
    .around_run_ns = 900,
    .queued_gap_ns = 4'000,
    .start_ns = 1'400,
    .end_marker_ns = 3'300,
    .wide_gap_ns = 0,
};

// Grids of so many blocks take the GPU longer to begin and to end than small ones do.
inline constexpr uint64_t kWideBlocks = 16'384;

// What lies between the steps of a graph, of which one can run after the other only.
inline uint32_t StepsNs(const GpuPauses& pauses, uint32_t steps) {
  const uint64_t ns = uint64_t{std::max(steps, 1u) - 1} * pauses.step_gap_ns;
  return static_cast<uint32_t>(std::min<uint64_t>(ns, UINT32_MAX));
}

// When the GPU had a marker that the host recorded from one moment to another: about a quarter of
// that comes behind (0.19 to 0.27, with recordings of 1 to 10 us, H200).
inline constexpr uint64_t MarkerPassedNs(uint64_t begin_ns, uint64_t end_ns) {
  return end_ns - (end_ns - begin_ns) / 4;
}

// That quarter, where the rest took so long.
inline constexpr uint64_t LeftOfRecordNs(uint64_t passed_ns) { return passed_ns / 3; }

// What the driver gives to one process while others wait, and what it takes the GPU to change hands
// (H200, driver 580; tests/sim holds the simulated driver to it). That time is nobody's.
inline constexpr uint64_t kSliceNs = 2'091'000;
inline constexpr uint64_t kSwitchNs = 155'000;

}  // namespace gpufence
