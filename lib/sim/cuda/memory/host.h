// Pinned host memory as others see it.  DriverLock held.
#pragma once

#include "cuda/memory/memory.h"

namespace sim::host {

// Gives the pages of a kHost range back to the operating system.
void Unmap(const memory::Range& range);

}  // namespace sim::host
