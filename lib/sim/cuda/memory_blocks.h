// Ranges made of heap blocks: linear, managed and low-address memory, and their end.
//
// Shared by memory.cpp, pitch.cpp and managed.cpp.  DriverLock held throughout.
#ifndef GPUFENCE_LIB_SIM_CUDA_MEMORY_BLOCKS_H_
#define GPUFENCE_LIB_SIM_CUDA_MEMORY_BLOCKS_H_

#include "cuda/heap.h"
#include "cuda/memory.h"

namespace sim::memory {

// What every call that allocates or frees at once asks first: a context, and no capture under way
// that it would break.
CUresult Begin(context::Context** context);

// Puts a block on the address map as `bytes` of the current context's linear memory.
CUresult AddLinear(const context::Context& context, const heap::Block& block, size_t bytes,
                   CUdeviceptr* address);

// The same at an address below 4 GiB.
CUresult AddLow(const context::Context& context, const heap::Block& block, size_t bytes,
                CUdeviceptr* address);

// Gives back whatever family of memory begins at `address`, as cuMemFree may.
// CUDA_ERROR_INVALID_VALUE: nothing that it could free begins there.
CUresult FreeAny(CUdeviceptr address);

// Ends a range of any family and everything behind it.
void EndRange(Range* range);

// The block behind a linear range.
heap::Block BlockOf(const Range& range);

}  // namespace sim::memory

#endif  // GPUFENCE_LIB_SIM_CUDA_MEMORY_BLOCKS_H_
