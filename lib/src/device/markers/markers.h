// Markers: timing events in streams, and what they tell about when the streams ran kernels
// (docs/core-limiter.md, "Markers"). Here: all that is known of them, for those who work with it:
//
//   marking.h   puts markers into streams, and leaves streams
//   runs.h      begins runs before launches
//   waits.h     runs that the program waits for
//   settling.h  short runs, settled by whoever begins the next
//   collect.h   what ran since the last look; reading.h: by which markers
//   gaps.h      pauses between kernels
//   legacy.h    streams that wait for each other
//   forecast.h  what runs, and for how long
//   ends.h      streams and contexts that end
//
// Must not know limits, turns or which call launches.
#pragma once

#include <stdint.h>

#include <atomic>

#include "core/pauses.h"
#include "device/markers/marker_pool.h"
#include "device/markers/stream_table.h"

namespace gpufence {

inline constexpr uint32_t kMostMarkedDevices = 64;

// From one look at what runs to the next, at most, and where there is little to hold; who sleeps
// longer is woken by a launch.
inline constexpr uint64_t kLongestLookNs = 2'000'000;
inline constexpr uint64_t kRareLookNs = 8'000'000;

// To shorter launches it matters by what clock their run begins.
inline constexpr uint64_t kBriefLaunchNs = 40'000;

// Zeroed memory is ready for use. What is no atomic is used under the table's lock.
struct Markers {
  StreamTable streams;
  MarkerPool pool;
  std::atomic<uint32_t> begun;              // changes whenever a stream begins to run
  std::atomic<uint64_t> longest_ns;         // what the longest launch took, as far as seen
  std::atomic<uint64_t> spacing_ns;         // of work, between two markers
  std::atomic<uint64_t> waited_spacing_ns;  // the same of runs that are waited for
  std::atomic<uint32_t> seen_reached[kMostMarkedDevices];
  // Until when nobody else has work there; 0: there is nobody else.
  std::atomic<uint64_t> calm_until_ns[kMostMarkedDevices];

  // What is known of each device; null: nothing is.
  std::atomic<const GpuPauses*> pauses[kMostMarkedDevices];

  const GpuPauses& PausesOf(uint32_t ordinal) const {
    // What it points at was written before.
    const GpuPauses* known = pauses[ordinal % kMostMarkedDevices].load(std::memory_order_acquire);
    return known != nullptr ? *known : kUnknownPauses;
  }
  // Markers of the device that were ever seen reached.
  uint32_t reached(uint32_t ordinal) const {
    return seen_reached[ordinal % kMostMarkedDevices].load(std::memory_order_relaxed);
  }
  // Whether what begins to run now may have to wait for others first: then only a marker tells when
  // the GPU came to it.
  bool IsBeside(uint32_t ordinal, uint64_t now_ns) const {
    const uint64_t calm_ns =
        calm_until_ns[ordinal % kMostMarkedDevices].load(std::memory_order_relaxed);
    return calm_ns != 0 && calm_ns < now_ns;
  }
  void CountReached(const MarkedStream& stream) {
    seen_reached[stream.ordinal % kMostMarkedDevices].fetch_add(1, std::memory_order_relaxed);
  }
};

}  // namespace gpufence
