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

// As MarkStream. Without a marker to be had the launches stay counted, and the next one or the
// watcher tries again: false. As RecordMarker (recording.h) it lets the lock go for a while.
bool MarkLocked(Markers* markers, MarkedStream* stream, Recorder recorder);

// What has no marker goes on as if nothing else were put into the stream. True when one was put
// there.
bool LeaveLocked(Markers* markers, MarkedStream* stream, Recorder recorder);

}  // namespace gpufence
