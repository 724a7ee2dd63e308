// What runs now, and for how long it will, by what runs took before. Must not know who asks.
#pragma once

#include <stdint.h>

#include "device/markers/markers.h"

namespace gpufence {

// Whether a kernel runs on the device, or did so when that was last seen; others may all be
// waiting.
bool KernelsRun(Markers* markers, uint32_t ordinal);

// What launches into the streams that run take, in the mean of some hundred: the shortest of these
// means; 0: not known.
uint64_t LaunchNs(Markers* markers, uint32_t ordinal);

// When the first stream that runs is expected to be done with its oldest marker; where that is
// over, a part of what it took so far.
uint64_t ExpectedNs(Markers* markers, uint64_t now_ns);

// How much longer the first stream of the device runs, by the mean of its launches; 0: unknown.
uint64_t LeftNs(Markers* markers, uint32_t ordinal, uint64_t now_ns);

// When all that runs on the device is expected to be done; 0 when that cannot be said.
uint64_t EndsNs(Markers* markers, uint32_t ordinal, uint64_t now_ns);

}  // namespace gpufence
