// Pinned host memory: allocated, registered, and as the device sees it.
//
// Costs no device memory.  Host and device see it at the same address, as with unified addressing.

#include <sys/mman.h>

#include "cuda/memory/memory_blocks.h"
#include "cuda/memory/ranges.h"
#include "machine/calls.h"

namespace sim::host {
namespace {

using context::Context;
using memory::Family;
using memory::Range;

constexpr size_t kPageBytes = 4096;
constexpr unsigned kAllocFlags =
    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
constexpr unsigned kRegisterFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                    CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;

uintptr_t AddressOf(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

size_t InPages(size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

CUresult AddRange(const Context& context, uintptr_t base, size_t bytes, Family family,
                  unsigned flags) {
  Range range = {};
  range.base = base;
  range.bytes = bytes;
  range.family = family;
  range.accessible = true;
  range.device = -1;
  range.context = context.handle;
  range.flags = flags;
  return ranges::Add(range) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// All pinned memory is mapped into the device's addresses, whatever was asked for: that is what
// unified addressing means, and what the flags report afterwards.
CUresult Allocate(void** pp, size_t bytes, unsigned flags) {
  DriverLock lock;
  Context* context = nullptr;
  CUresult rc = memory::Begin(&context);
  if (rc != CUDA_SUCCESS) return rc;
  if (pp == nullptr || bytes > SIZE_MAX - kPageBytes || (flags & ~kAllocFlags) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *pp = nullptr;
  if (bytes == 0) return CUDA_SUCCESS;
  void* map =
      mmap(nullptr, InPages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  rc = AddRange(*context, AddressOf(map), bytes, Family::kHost, flags | CU_MEMHOSTALLOC_DEVICEMAP);
  if (rc != CUDA_SUCCESS) {
    munmap(map, InPages(bytes));
    return rc;
  }
  *pp = map;
  return CUDA_SUCCESS;
}

// The pinned range that holds a host pointer, or nullptr.
Range* FindPinned(const void* pointer) {
  Range* range = memory::FindRange(AddressOf(pointer));
  const bool pinned =
      range != nullptr && (range->family == Family::kHost || range->family == Family::kRegistered);
  return pinned ? range : nullptr;
}

CUresult Register(void* pointer, size_t bytes, unsigned flags) {
  DriverLock lock;
  Context* context = nullptr;
  const CUresult rc = memory::Begin(&context);
  if (rc != CUDA_SUCCESS) return rc;
  if (pointer == nullptr || bytes == 0 || (flags & ~kRegisterFlags) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (ranges::Overlaps(AddressOf(pointer), bytes)) {
    const Range* pinned = FindPinned(pointer);
    const bool allocated = pinned != nullptr && pinned->family == Family::kHost;
    return allocated ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  return AddRange(*context, AddressOf(pointer), bytes, Family::kRegistered,
                  flags | CU_MEMHOSTREGISTER_DEVICEMAP);
}

CUresult FindDevicePointer(const void* pointer, unsigned flags, CUdeviceptr* address) {
  DriverLock lock;
  Context* context = nullptr;
  const CUresult rc = context::Current(&context);
  if (rc != CUDA_SUCCESS) return rc;
  if (pointer == nullptr || flags != 0 || FindPinned(pointer) == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *address = AddressOf(pointer);
  return CUDA_SUCCESS;
}

}  // namespace

void Unmap(const Range& range) {
  munmap(reinterpret_cast<void*>(range.base), InPages(range.bytes));
}

}  // namespace sim::host

extern "C" {

CUresult cuMemAllocHost(void** pp, unsigned int bytesize) {
  SIM_CALL(cuMemAllocHost, pp, bytesize);
  return sim::host::Allocate(pp, bytesize, 0);
}

CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) {
  SIM_CALL(cuMemAllocHost_v2, pp, bytesize);
  return sim::host::Allocate(pp, bytesize, 0);
}

CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  SIM_CALL(cuMemHostAlloc, pp, bytesize, Flags);
  return sim::host::Allocate(pp, bytesize, Flags);
}

CUresult cuMemFreeHost(void* p) {
  SIM_CALL(cuMemFreeHost, p);
  sim::memory::AwaitUse(sim::host::AddressOf(p));
  sim::DriverLock lock;
  sim::context::Context* context = nullptr;
  const CUresult rc = sim::memory::Begin(&context);
  if (rc != CUDA_SUCCESS) return rc;
  if (p == nullptr) return CUDA_SUCCESS;
  sim::memory::Range* range = sim::host::FindPinned(p);
  if (range == nullptr || range->base != sim::host::AddressOf(p) ||
      range->family != sim::memory::Family::kHost) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  sim::memory::EndRange(range);
  return CUDA_SUCCESS;
}

CUresult cuMemHostRegister(void* p, size_t bytesize, unsigned int Flags) {
  SIM_CALL(cuMemHostRegister, p, bytesize, Flags);
  return sim::host::Register(p, bytesize, Flags);
}

CUresult cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
  SIM_CALL(cuMemHostRegister_v2, p, bytesize, Flags);
  return sim::host::Register(p, bytesize, Flags);
}

CUresult cuMemHostUnregister(void* p) {
  SIM_CALL(cuMemHostUnregister, p);
  sim::memory::AwaitUse(sim::host::AddressOf(p));
  sim::DriverLock lock;
  sim::context::Context* context = nullptr;
  const CUresult rc = sim::memory::Begin(&context);
  if (rc != CUDA_SUCCESS) return rc;
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  sim::memory::Range* range = sim::host::FindPinned(p);
  if (range == nullptr) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  if (range->base != sim::host::AddressOf(p) || range->family != sim::memory::Family::kRegistered) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  sim::memory::EndRange(range);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int Flags) {
  SIM_CALL(cuMemHostGetDevicePointer_v2, pdptr, p, Flags);
  if (pdptr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return sim::host::FindDevicePointer(p, Flags, pdptr);
}

// Host addresses do not fit in 32 bits: as on a 64-bit driver, there is nothing to return.
CUresult cuMemHostGetDevicePointer(CUdeviceptr_v1* pdptr, void* p, unsigned int Flags) {
  SIM_CALL(cuMemHostGetDevicePointer, pdptr, p, Flags);
  CUdeviceptr address = 0;
  const CUresult rc = sim::host::FindDevicePointer(p, Flags, &address);
  if (rc != CUDA_SUCCESS) return rc;
  if (pdptr == nullptr || address > UINT32_MAX) return CUDA_ERROR_INVALID_VALUE;
  *pdptr = static_cast<CUdeviceptr_v1>(address);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int* pFlags, void* p) {
  SIM_CALL(cuMemHostGetFlags, pFlags, p);
  sim::DriverLock lock;
  sim::context::Context* context = nullptr;
  const CUresult rc = sim::context::Current(&context);
  if (rc != CUDA_SUCCESS) return rc;
  const sim::memory::Range* range = sim::host::FindPinned(p);
  if (pFlags == nullptr || range == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pFlags = range->flags;
  return CUDA_SUCCESS;
}

}  // extern "C"
