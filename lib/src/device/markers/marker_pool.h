// Markers, and the timing events that they are: made in the context that they belong to, some at a
// time, and used again. Must not know streams.
#pragma once

#include <stdint.h>

#include "device/markers/stream_table.h"
#include "driver_abi.h"

namespace gpufence {

inline constexpr uint32_t kMostMarkers = 8192;

inline constexpr uint32_t kMadeAtOnce = 8;

inline constexpr uint16_t kNoMarker = 0;  // that place is never used, so that zeros are none

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

}  // namespace gpufence
