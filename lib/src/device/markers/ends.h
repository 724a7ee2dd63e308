// What happens to markers when the streams and contexts that they are of end. Must not know which
// call ends them.
#pragma once

#include <stdint.h>

#include "device/markers/busy.h"
#include "device/markers/markers.h"

namespace gpufence {

enum class Forgotten : uint8_t {
  kMarked,
  kUnmarked,  // what was launched cannot be marked: the caller waits for its end and charges that
  kHeldUp,    // a marker would have waited where the driver does not: charged up to now
};

// Before the driver destroys a stream: its markers stay, its handle is forgotten. What has no
// marker is charged from `*since_ns` on.
Forgotten ForgetStream(Markers* markers, CUstream handle, uint64_t* since_ns);

// Before the driver may end contexts: no driver call is made about them until the answer is known.
// A null handle: the primary one of the device. Returns which they are, a bit each: one that is new
// afterwards is none of them, whoever suspended it.
uint64_t SuspendContexts(Markers* markers, CUcontext handle, uint32_t ordinal);

// Afterwards. `ended`: all that was suspended is gone; what ran there ran until now.
void ResumeContexts(Markers* markers, uint64_t suspended, bool ended, uint64_t now_ns,
                    BusyList* busy);

}  // namespace gpufence
