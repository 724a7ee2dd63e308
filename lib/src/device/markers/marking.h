// What gets a marker, and when streams are left. Must not know why.
#pragma once

#include <stdint.h>

#include "device/markers/markers.h"

namespace gpufence {

// After launches: marks what has no marker yet. Where that fails they stay counted.
void MarkStream(Markers* markers, MarkedStream* stream);

// The same when `mark_at` was reached.
void MarkInTurn(Markers* markers, MarkedStream* stream);

// Before something that is no kernel: marks, and the next launch begins a new run.
void LeaveStream(Markers* markers, MarkedStream* stream);

// The same for every stream of the calling thread's context. `waits`: before something that only
// waits. True when a marker was put into one.
bool LeaveContext(Markers* markers, bool waits);

// ---- for the parts of markers: the lock is held ----

// Puts a marker into the stream, behind so many launches. `begins`: what was before it is not the
// stream's. `prompt`: nothing is before it on the GPU. False: there is none to be had.
bool RecordMarker(Markers* markers, MarkedStream* stream, uint32_t launches, bool begins,
                  bool prompt = false);

// As MarkStream. Without a marker to be had the launches stay counted, and the next one or the
// watcher tries again: false.
bool MarkLocked(Markers* markers, MarkedStream* stream);

// What has no marker goes on as if nothing else were put into the stream.
void LeaveLocked(Markers* markers, MarkedStream* stream);

}  // namespace gpufence
