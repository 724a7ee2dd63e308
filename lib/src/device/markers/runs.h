// Runs: when a stream begins to run kernels, and how that begin is told. Must not know why a launch
// was held.
#pragma once

#include <stdint.h>

#include "device/markers/markers.h"

namespace gpufence {

// How long a launch was kept waiting before it went, and how much of that for other containers.
struct HeldNs {
  uint64_t at_all;
  uint64_t by_others;
  bool is_unasked;  // the gate was open for a stream that is looked at, and nobody asked more
};

// kProbe: as kYes, with a marker before the launch that tells how long the GPU waited for it.
// kOtherStream: it is none of the handle any more. kMustAsk: nobody asked, and the stream is not
// looked at any more.
enum class Begun : uint8_t { kYes, kProbe, kNotMarked, kOtherStream, kMustAsk };

// Before a launch into a stream that is not running, and that was held for so long: that says
// nothing about what it does, and after others the GPU comes from another process. Also behind a
// launch, when the stream was seen idle meanwhile. `captures`: a capture may be open. So many
// launches are `uncounted`.
Begun BeginRun(Markers* markers, MarkedStream* stream, CUstream handle, HeldNs held, bool captures,
               uint32_t uncounted = 0);

// Behind a launch for which that answered kProbe.
void CountProbe(Markers* markers, MarkedStream* stream);

// Whether the stream, which is running, has nothing to do when a launch comes: then that begins a
// new run, or the pause would be charged. Where launches come close together it is not asked.
bool CameToIdle(Markers* markers, MarkedStream* stream, CUstream handle, bool captures);

}  // namespace gpufence
