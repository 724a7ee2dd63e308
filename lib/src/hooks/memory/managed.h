// Managed memory that stays on the host, where the GPU reaches it: memory beyond the container's
// share of the device, or beyond what the driver has, is unified memory. One allocation is wholly
// device memory or wholly this. Must not know how limit and share are kept.
#pragma once

#include <stdint.h>

#include "hooks/fence.h"

namespace gpufence {

// True when a request that ended like this on the device is tried as unified memory.
inline bool Overflows(const FencedDevice* device, CUresult rc) {
  return rc == CUDA_ERROR_OUT_OF_MEMORY && device->account.oversold();
}

// A request for which the device has no room: refused, unless it goes on as unified memory.
inline CUresult NoRoomOnDevice(FencedDevice* device) {
  return device->account.oversold() ? CUDA_ERROR_OUT_OF_MEMORY : OverLimit(device);
}

// The same where memory would lie in the calling thread's context.
inline CUresult NoRoomInContext(FencedDevice* device) {
  return device->account.oversold() ? CUDA_ERROR_OUT_OF_MEMORY : OverLimitInContext(device);
}

// Takes `bytes` within the limit. `flags`: as cuMemAllocManaged has them. On failure *address is
// untouched.
[[gnu::noinline]] CUresult AllocateUnified(FencedDevice* device, uint64_t context, uint64_t bytes,
                                           unsigned flags, CUdeviceptr* address);

// True when the address lies in memory that must not move to the device. One load while the process
// has none.
bool StaysOnHost(Fence* fence, CUdeviceptr address);

// The process has such memory, or had.
void NoteUnified();
bool HasUnified(const Fence* fence);

// False where the GPU cannot reach managed memory while the host does: nothing can be oversold.
bool CanOversell(CUdevice device);

}  // namespace gpufence
