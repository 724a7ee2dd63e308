// Memory behind dma-bufs: it stays on the device until the last of them is closed.
//
// Must not know how memory comes to lie where it does.  DriverLock held.
#pragma once

#include <stdint.h>

namespace sim::dma_buf {

// The memory at an offset of the arena is about to be given back to the device.
void Leave(uint64_t offset);

// Whether it is behind a dma-buf, or was.
bool IsPinned(uint64_t offset);

}  // namespace sim::dma_buf
