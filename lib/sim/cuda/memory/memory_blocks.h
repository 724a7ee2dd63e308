// Ranges made of heap blocks: linear, managed and low-address memory, and their end; and what the
// families of pinned and managed memory do for that.
//
// Shared by memory.cpp, host.cpp and managed.cpp. DriverLock held throughout.
#pragma once

#include <stdint.h>

#include "cuda/memory/heap.h"
#include "cuda/memory/memory.h"

namespace sim::memory {

// What every call that allocates or frees at once asks first: a context, and no capture under way
// that it would break.
CUresult Begin(context::Context** context);

// What the driver does before anything else, cuInit included: a refused allocation gives null.
inline void ClearResult(CUdeviceptr* result) {
  if (result != nullptr) *result = 0;
}

// Waits until nothing that runs can use the memory that begins at `address`: linear, managed or
// pinned memory ends only when its context has nothing left to do, whichever stream it is in. Call
// it before taking the lock. Other families and strangers: returns at once.
void AwaitUse(uintptr_t address);

// The same question for the 32-bit forms, which work only in a context of cuCtxCreate's own 32-bit
// form: others are refused with CUDA_ERROR_INVALID_CONTEXT.
CUresult BeginLow(context::Context** context);

// Puts a block on the address map as `bytes` of the current context's linear memory.
CUresult AddLinear(const context::Context& context, const heap::Block& block, size_t bytes,
                   CUdeviceptr* address);

// The same at an address below 4 GiB.
CUresult AddLow(const context::Context& context, const heap::Block& block, size_t bytes,
                CUdeviceptr* address);

// Whether memory that cuMemFree may give back begins at `address`.
bool IsFreeable(CUdeviceptr address);

// Gives back whatever family of memory begins at `address`, as cuMemFree may.
// CUDA_ERROR_INVALID_VALUE: nothing that it could free begins there.
CUresult FreeAny(CUdeviceptr address);

// Ends a range of any family and everything behind it.
void EndRange(Range* range);

// The same once somebody has waited; and what was ended so on a device.
void EndLater(Range* range);
void EndFreed(int device);

// The block behind a linear range.
heap::Block BlockOf(const Range& range);

}  // namespace sim::memory

namespace sim::host {

// Gives the pages of a kHost range back to the operating system.
void Unmap(const memory::Range& range);

}  // namespace sim::host

namespace sim::managed {

// Moves this process's managed bytes off a device until `bytes` were freed or none are left.
// Returns what was freed.
uint64_t Evict(int device, uint64_t bytes);

// Gives back a managed range's resident bytes and its addresses.
void End(memory::Range* range);

}  // namespace sim::managed
