// Markers: timing events in streams, and what they tell about when the streams ran kernels
// (docs/core-limiter.md, "Markers"). Here: all that is known of them, for those who work with it:
//
//   marking.h  puts markers into streams, and leaves streams
//   gaps.h     what of an interval lies between kernels
//   looks.h    what ran since the last look (reading.cpp: by which markers), what runs now, and
//              streams and contexts that end
//   runs.h     begins runs before launches; runs that the program waits for (waits.cpp)
//
// Must not know limits, turns or which call launches.
#pragma once

#include <stdint.h>

#include <atomic>

#include "base/pauses.h"
#include "device/markers/stream_table.h"
#include "driver_abi.h"

namespace gpufence {

inline constexpr uint32_t kMostMarkers = 8192;

inline constexpr uint32_t kMadeAtOnce = 8;

inline constexpr uint16_t kNoMarker = 0;  // that place is never used, so that zeros are none

// A timing event, made in the context that it belongs to, some at a time, and used again.
struct Marker {
  CUevent event;
  uint64_t recorded_ns;
  uint32_t launches;  // between the marker before and this one
  uint32_t others;    // what is no kernel and was put into the stream before it
  uint32_t inner_ns;  // pauses within each of them
  uint32_t lead_ns;   // of the run that the marker before begins
  uint64_t begin_ns;  // when that began by the host's clock, not by a marker; 0: it did not
  uint16_t joined;    // so many markers were between, too, and do not count any more
  uint16_t next;
  uint16_t context;
  bool begins;         // the time before it is not the stream's
  bool prompt;         // nothing was before it on the GPU
  bool probes;         // nothing was put into the stream between it and the one before
  bool samples;        // one launch was put right between it and the one before
  bool meets;          // a launch before it waits for kernels on other GPUs
  uint64_t host_ns;    // of the host, since the one before; without holds
  uint64_t record_ns;  // what recording the one before took
};

// Under the table's lock; zeroed memory is a pool without markers.
class MarkerPool {
 public:
  Marker& operator[](uint16_t index) { return markers_[index]; }
  const Marker& operator[](uint16_t index) const { return markers_[index]; }

  // Makes events in a context, without the lock; returns how many.
  static uint32_t Make(CUcontext context, CUevent events[kMadeAtOnce]);

  // Adds them; what finds no place is returned as so many that are left, at the front.
  uint32_t Add(uint16_t context, CUevent events[kMadeAtOnce], uint32_t count);

  bool IsFull() const { return unused_ == kNoMarker && made_ + 1 >= kMostMarkers; }

  // One of the context; kNoMarker: some must be added first.
  uint16_t Take(uint16_t context);
  void Return(uint16_t marker);
  // The context's events are gone with it.
  void Drop(uint16_t context);

 private:
  void Discard(uint16_t marker);

  uint32_t made_;
  uint16_t unused_;                     // markers without an event
  uint16_t free_[kMostMarkedContexts];  // to be had, of each context
  Marker markers_[kMostMarkers];
};

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
