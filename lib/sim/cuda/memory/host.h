// Pinned host memory as others see it.  DriverLock held.
#ifndef GPUFENCE_LIB_SIM_CUDA_HOST_H_
#define GPUFENCE_LIB_SIM_CUDA_HOST_H_

#include "cuda/memory/memory.h"

namespace sim::host {

// Gives the pages of a kHost range back to the operating system.
void Unmap(const memory::Range& range);

}  // namespace sim::host

#endif  // GPUFENCE_LIB_SIM_CUDA_HOST_H_
