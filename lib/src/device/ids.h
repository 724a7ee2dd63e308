// Which GPU is meant: CUDA ordinal, UUID, NVML handle, and the GPU of a context, pointer or pool.
// Must not know limits, state or policy.
#pragma once

#include <stdint.h>

#include "driver_abi.h"
#include "real.h"

namespace gpufence {

inline constexpr uint32_t kNoDevice = UINT32_MAX;

// The UUID of a CUDA device (its own UUID for a MIG instance). False when the driver will not say.
bool UuidOf(CUdevice device, uint8_t uuid[16]);

// The UUID of an NVML device handle (nvmlDeviceGetUUID's text, parsed). False when unknown.
bool UuidOf(nvmlDevice_t device, uint8_t uuid[16]);

// Position of the UUID in NVML's list, or -1.
int32_t NvmlIndexOf(const uint8_t uuid[16]);

// The NVML handle of a UUID; false when NVML is absent or does not know it.
bool NvmlHandleOf(const uint8_t uuid[16], nvmlDevice_t* handle);

// The handle of the calling thread's context; 0: it has none.
inline uint64_t CurrentContext() {
  CUcontext current = nullptr;
  real::cuCtxGetCurrent(&current);
  return reinterpret_cast<uint64_t>(current);
}

// The calling thread's device: its ordinal, or kNoDevice without a current context.
uint32_t CurrentDevice();

// The device of a context: its ordinal, or kNoDevice when the driver will not say.
uint32_t DeviceOfContext(CUcontext context);

// Where a memory location is: an ordinal, or kNoDevice for host memory and whatever is unknown.
uint32_t DeviceOfLocation(const CUmemLocation_v1& location);

}  // namespace gpufence
