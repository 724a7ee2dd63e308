// Puts markers into streams. Recording waits where the stream's queue is full, perhaps for what
// another thread of the program is about to do: no lock is held meanwhile, and nobody waits for it
// but who ends the stream or its context. For the parts of markers alone; must not know why one is
// wanted.
#pragma once

#include <stdint.h>

#include "device/markers/markers.h"

namespace gpufence {

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

}  // namespace gpufence
