// What the driver says this process holds. Slow (10 us and more): never on the common path.
// Must not know limits, state or policy.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "driver_abi.h"

namespace gpufence {

enum class UsageSource : uint8_t {
  kNone,         // nothing can be said
  kProcessList,  // NVML's figure for our own pid: exact, counts everything
};

// Bytes that the driver holds for this process on the device with this UUID. `on_device`: it has a
// context there, so the list must have it; without one it holds nothing.
// Trusts a pid only where it means the same to NVML as to us: in the initial pid namespace, or when
// a list of one can only be us.
UsageSource OwnUsage(const uint8_t uuid[16], bool on_device, uint64_t* bytes);

// Bytes of the device that nobody holds; false when NVML cannot tell. Needs no context.
bool DeviceFreeBytes(const uint8_t uuid[16], uint64_t* bytes);

// Free bytes of the current context's device as the driver reports them; 0 without a context.
uint64_t DriverFreeBytes();

}  // namespace gpufence
