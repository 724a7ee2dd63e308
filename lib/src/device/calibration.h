// Measures the pauses of one GPU (base/pauses.h), each as those who reckon with it mean it: some
// hundred kernels of a few microseconds, which tell their begin and end by the GPU's clock, in a
// stream of its own. Batches are much shorter than a slice of the GPU, so that most of them are
// undisturbed, whoever else uses it. Must not know when this is done, nor who keeps what it says.
#pragma once

#include <stdint.h>

#include "base/pauses.h"

namespace gpufence {

// kPartly: the pause between two kernels is as measured, and bounds hold for some of the others.
// Where others keep the GPU busy each wait takes longer than a slice of theirs, so that there are
// few batches, and none of kernels in an idle stream.
enum class Calibration : uint8_t { kNothing, kPartly, kWhole };

// In the calling thread's context, whose GPU has so many multiprocessors. Takes some milliseconds,
// about a tenth of a second at most where others disturb it, and whatever it takes the driver to
// compile a kernel the first time. No lock is held, and no capture is open. One clause in `why`,
// unless all is known. Nothing of it stays in the context.
Calibration Calibrate(uint32_t processors, GpuPauses* pauses, const char** why);

}  // namespace gpufence
