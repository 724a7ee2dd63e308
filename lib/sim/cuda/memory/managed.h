// Managed memory as others see it: something that can make room on a device.  DriverLock held.
#pragma once

#include <stdint.h>

#include "cuda/memory/memory.h"

namespace sim::managed {

// Moves this process's managed bytes off a device until `bytes` were freed or none are left.
// Returns what was freed.
uint64_t Evict(int device, uint64_t bytes);

// Gives back a managed range's resident bytes and its addresses.
void End(memory::Range* range);

}  // namespace sim::managed
