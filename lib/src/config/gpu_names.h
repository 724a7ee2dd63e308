// How texts name GPUs: by UUID, and in CUDA_VISIBLE_DEVICES, which says how CUDA numbers them in a
// process that must not ask it. Pure. Must not know where a text or the list of GPUs is from.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <string_view>

#include "config/limits.h"

namespace gpufence {

// "GPU-…", "MIG-…" or bare, 8-4-4-4-12 hexadecimal digits of any case. False: not a UUID.
bool ParseUuid(std::string_view text, uint8_t uuid[16]);

inline constexpr size_t kUuidTextBytes = 41;  // "GPU-", 36 characters and the end

// As NVML writes it.
void WriteUuid(const uint8_t uuid[16], char text[kUuidTextBytes]);

// The ordinal of a GPU that CUDA does not show.
inline constexpr uint32_t kInvisible = UINT32_MAX;

// The instance of a split GPU that the process sees as its only device; empty when none is named.
std::string_view VisibleInstance(std::string_view visible);

// Sets the ordinals of devices that are in NVML's order, from their NVML indices, as the driver
// reads CUDA_VISIBLE_DEVICES: indices and beginnings of UUIDs, up to the first that names no GPU;
// one named twice leaves none. Without CUDA_DEVICE_ORDER=PCI_BUS_ID unlike GPUs may be numbered
// otherwise, the fastest first, which nobody but CUDA can tell.
void NumberAsCuda(std::string_view visible, DeviceIdentity* devices, size_t count);

}  // namespace gpufence
