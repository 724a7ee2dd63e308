// What the legacy stream and the blocking streams of its context, which wait for each other, mean
// for markers: a late one in the legacy stream would order what the program did not, and what is no
// kernel there is waited for in the others. Must not know which call puts what into a stream.
#pragma once

#include <stdint.h>

#include "device/markers/markers.h"

namespace gpufence {

// A stream was made that waits for the legacy stream of its context, and that one for it; also the
// per-thread stream does.
void NoteBlockingStream();
bool HasBlockingStreams();

// Whether this one does.
bool IsBlockingStream(uint64_t handle);

// Whether the stream may have a marker that is not directly behind a launch.
bool MayMarkLate(const MarkedStream& stream);

// Before something that is no kernel is put into the context's legacy stream: leaves the streams
// that wait for that.
void LeaveBlockingStreams(Markers* markers);

// Whether what is put into the stream waits for something that is no kernel in the legacy stream;
// once for each time that it does. The lock is held.
bool WaitsForLegacy(Markers* markers, MarkedStream* stream);

}  // namespace gpufence
