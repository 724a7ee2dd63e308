// Looks: what ran since the last one. Must not know who looks, and how often.
#pragma once

#include <stdint.h>

#include "device/markers/busy.h"
#include "device/markers/markers.h"
#include "device/markers/reading.h"

namespace gpufence {

// What ran since the last look, by stream in order. `captures`: a capture may be open.
void CollectAll(Markers* markers, uint64_t now_ns, bool captures, BusyList* busy);

// The same of one stream of this thread's context, if all is marked and over; no capture is open.
void CollectEnded(Markers* markers, MarkedStream* stream, BusyList* busy);

// For the parts of markers, which hold the lock. The thread is in the stream's context.
void CollectStream(Markers* markers, MarkedStream* stream, StreamLook* look);

}  // namespace gpufence
