// Markers on their way out: which are over, and what their times say about when the stream ran.
// For the parts of markers alone; the lock is held.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "device/markers/busy.h"
#include "device/markers/gaps.h"
#include "device/markers/markers.h"

namespace gpufence {

// What runs is charged short of now: the clocks may disagree by so much, and the marker tells.
inline constexpr uint64_t kClockDoubtNs = 150'000;

// One look at streams.
struct StreamLook {
  uint64_t now_ns;
  bool captures;  // a capture may be open
  BusyList* busy;
  int64_t gpu_ns = 0;  // when the last marker was reached by the GPU's clock; 0: unknown
  bool alone = false;  // one stream is active
};

// A call about the stream failed; true when it is one too many.
bool Fails(MarkedStream* stream);

// Whether the marker was reached. One that cannot be asked any more blinds its context.
bool IsOver(Markers* markers, MarkedStream* stream, const Marker& marker);

// How many of its markers are over, oldest first; few are asked, since each costs the watcher.
size_t CountOver(Markers* markers, MarkedStream* stream);

// Takes its oldest markers, of which so many are over.
void TakeOver(Markers* markers, MarkedStream* stream, size_t over, StreamLook* look);

// It ran until `end_ns`, and so many launches have done so since the last marker.
void TellRunning(const Markers& markers, MarkedStream* stream, const IntervalContent& content,
                 uint64_t end_ns, const StreamLook& look);

}  // namespace gpufence
