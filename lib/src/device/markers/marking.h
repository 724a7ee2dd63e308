// Puts markers into streams, and leaves streams. Must not know why a marker is wanted, nor which
// call puts what into a stream.
//
// The legacy stream and the blocking streams of its context wait for each other: a late marker in
// the legacy stream would order what the program did not, and what is no kernel there is waited for
// in the others.
//
// Recording waits where the stream's queue is full, perhaps for what another thread of the program
// is about to do: no lock is held meanwhile, and nobody waits for it but who ends the stream or its
// context.
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

// Before something that is no kernel is put into the context's legacy stream: leaves the streams
// that wait for that.
void LeaveBlockingStreams(Markers* markers);

// Whether a run that begins in the stream now wants a fill in front of its marker, and its context
// has no memory for that yet. No lock is held.
bool LacksFilled(const Markers& markers, const MarkedStream& stream);

// Gives it four bytes or more, which live as long as the context; 0: there are none to be had.
void GiveFilled(Markers* markers, const MarkedStream& stream, CUdeviceptr filled);

// ---- for the parts of markers: the lock is held ----

// Puts a marker into the stream, behind so many launches. `begins`: what was before it is not the
// stream's. `prompt`: nothing is before it on the GPU. The lock is held, and let go for a while.
// False: there is none to be had, another thread puts one there just now, or `recorder` is kOther
// and it might have to wait.
bool RecordMarker(Markers* markers, MarkedStream* stream, Recorder recorder, uint32_t launches,
                  bool begins, bool prompt = false);

// Whether recording a marker might wait where the call in which it is recorded does not.
bool MightWait(Markers* markers, const MarkedStream& stream, Recorder recorder);

// cuStreamQuery, with the lock let go: the question waits while another thread waits for room in
// the stream's queue (H200). `*is_left`: somebody left the stream meanwhile, and what it has is to
// be marked. CUDA_ERROR_NOT_READY also when another thread puts a marker there just now, or when
// the context ended.
CUresult QueryStream(Markers* markers, MarkedStream* stream, CUstream asked, bool* is_left);

// The next launch into the stream begins a new run.
void StopRunning(MarkedStream* stream);

// As MarkStream. Without a marker to be had the launches stay counted, and the next one or the
// watcher tries again: false. As RecordMarker it lets the lock go for a while.
bool MarkLocked(Markers* markers, MarkedStream* stream, Recorder recorder);

// What has no marker goes on as if nothing else were put into the stream. True when one was put
// there.
bool LeaveLocked(Markers* markers, MarkedStream* stream, Recorder recorder);

// Whether the stream may have a marker that is not directly behind a launch.
bool MayMarkLate(const MarkedStream& stream);

// Whether what is put into the stream waits for something that is no kernel in the legacy stream;
// once for each time that it does.
bool WaitsForLegacy(Markers* markers, MarkedStream* stream);

}  // namespace gpufence
