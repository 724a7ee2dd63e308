// Measures the pauses of one GPU (base/pauses.h), each as those who reckon with it mean it: some
// hundred kernels of a few microseconds, which tell their begin and end by the GPU's clock, in a
// stream of its own. Batches are much shorter than a slice of the GPU, so that most of them are
// undisturbed, whoever else uses it. Must not know when this is done, nor who keeps what it says.
#pragma once

#include <stdint.h>

#include "base/pauses.h"

namespace gpufence {

// In the calling thread's context, whose GPU has so many multiprocessors. Takes some milliseconds,
// and whatever it takes the driver to compile a kernel the first time. No lock is held, and no
// capture is open. False, with one clause in `why`: nothing is known. Nothing of it stays in the
// context.
bool Calibrate(uint32_t processors, GpuPauses* pauses, const char** why);

}  // namespace gpufence
