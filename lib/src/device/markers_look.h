// What one look at streams gathers, and what else the parts of markers share; for these alone.
#pragma once

#include <algorithm>

#include "device/markers.h"

namespace gpufence {

// A stream that the legacy stream of its context waits for, and that waits for it.
bool IsBlockingStream(uint64_t handle);

// Where the intervals go, and which context the thread is in.
struct Markers::Look {
  uint64_t now_ns;
  bool captures;
  BusyInterval* busy;
  size_t room;
  size_t count;
  uint16_t context;
  int64_t gpu_ns = 0;  // when the last marker was reached by the GPU's clock; 0: unknown
  bool alone = false;  // one stream is active

  void Add(const MarkedStream& stream, uint64_t begin_ns, uint64_t end_ns) {
    if (end_ns <= begin_ns) return;
    if (count == room) {
      // Out of room: the last interval grows over what lies between, which charges too much.
      busy[count - 1].end_ns = std::max(busy[count - 1].end_ns, end_ns);
      return;
    }
    busy[count++] = {begin_ns, end_ns, stream.ordinal};
  }
};

}  // namespace gpufence
