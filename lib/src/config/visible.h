// How CUDA numbers the GPUs in a process that must not ask it: CUDA_VISIBLE_DEVICES applied to the
// list that NVML has. Pure. Must not know where the list is from.
//
// As the driver reads it: indices and beginnings of UUIDs, up to the first that names no GPU; one
// named twice leaves none. Without CUDA_DEVICE_ORDER=PCI_BUS_ID unlike GPUs may be numbered
// otherwise, the fastest first, which nobody but CUDA can tell.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <string_view>

#include "config/limits.h"

namespace gpufence {

// The ordinal of a GPU that CUDA does not show.
inline constexpr uint32_t kInvisible = UINT32_MAX;

// The instance of a split GPU that the process sees as its only device; empty when none is named.
std::string_view VisibleInstance(std::string_view visible);

// Sets the ordinals of devices that are in NVML's order, from their NVML indices.
void NumberAsCuda(std::string_view visible, DeviceIdentity* devices, size_t count);

}  // namespace gpufence
