// Linear device memory: cuMemAlloc, cuMemFree, cuMemGetInfo, cuMemGetAddressRange and their 32-bit
// forms; cuMemAllocPitch, whose rows begin at aligned addresses.
//
// Must not know how memory is dealt (heap.cpp) nor other families.
#include <limits.h>

#include <algorithm>

#include "cuda/devices/device.h"
#include "cuda/memory/memory_blocks.h"
#include "machine/calls.h"
#include "machine/machine.h"

namespace {

using sim::DriverLock;
using sim::context::Context;

struct MemoryInfo {
  uint64_t free_bytes;
  uint64_t total_bytes;
};

CUresult ReadInfo(MemoryInfo* info) {
  DriverLock lock;
  Context* context = nullptr;
  const CUresult rc = sim::context::Current(&context);
  if (rc != CUDA_SUCCESS) return rc;
  const int physical = sim::context::PhysicalDevice(*context);
  info->total_bytes = sim::machine::Device(physical).memory_bytes;
  const uint64_t used_bytes = sim::machine::UsedBytes(physical);
  info->free_bytes = info->total_bytes - std::min(info->total_bytes, used_bytes);
  return CUDA_SUCCESS;
}

// What an address is matters first, the context only then. `begin` is one of memory::Begin*.
CUresult Free(CUdeviceptr address, CUresult (*begin)(Context**)) {
  sim::memory::AwaitUse(address);
  DriverLock lock;
  if (address != 0 && !sim::memory::IsFreeable(address)) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  const CUresult rc = begin(&context);
  return rc == CUDA_SUCCESS ? sim::memory::FreeAny(address) : rc;
}

// The range that holds an address, for callers that want its extent.
CUresult FindExtent(CUdeviceptr address, uint64_t* base, uint64_t* bytes) {
  Context* context = nullptr;
  const CUresult rc = sim::context::Current(&context);
  if (rc != CUDA_SUCCESS) return rc;
  const sim::memory::Range* range = sim::memory::FindRange(address);
  if (range == nullptr) return CUDA_ERROR_NOT_FOUND;
  *base = range->base;
  *bytes = range->bytes;
  return CUDA_SUCCESS;
}

unsigned Clamp(uint64_t value) {
  return static_cast<unsigned>(std::min<uint64_t>(value, UINT_MAX));
}

}  // namespace

extern "C" {

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  SIM_CALL(cuMemGetInfo_v2, free, total);
  MemoryInfo info = {};
  const CUresult rc = ReadInfo(&info);
  if (rc != CUDA_SUCCESS) return rc;
  if (free != nullptr) *free = info.free_bytes;
  if (total != nullptr) *total = info.total_bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(unsigned int* free, unsigned int* total) {
  SIM_CALL(cuMemGetInfo, free, total);
  DriverLock lock;
  Context* context = nullptr;
  CUresult rc = sim::memory::BeginLow(&context);
  if (rc != CUDA_SUCCESS) return rc;
  MemoryInfo info = {};
  rc = ReadInfo(&info);
  if (rc != CUDA_SUCCESS) return rc;
  if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *free = Clamp(info.free_bytes);
  *total = Clamp(info.total_bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  sim::memory::ClearResult(dptr);
  SIM_CALL(cuMemAlloc_v2, dptr, bytesize);
  DriverLock lock;
  Context* context = nullptr;
  const CUresult rc = sim::memory::Begin(&context);
  if (rc != CUDA_SUCCESS) return rc;
  if (dptr == nullptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  return sim::memory::AllocateLinear(context, bytesize, dptr);
}

CUresult cuMemAlloc(CUdeviceptr_v1* dptr, unsigned int bytesize) {
  SIM_CALL(cuMemAlloc, dptr, bytesize);
  DriverLock lock;
  Context* context = nullptr;
  CUresult rc = sim::memory::BeginLow(&context);
  if (rc != CUDA_SUCCESS) return rc;
  if (dptr == nullptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  sim::heap::Block block = {};
  rc = sim::heap::TakeWhole(context->device, bytesize, &block);
  if (rc != CUDA_SUCCESS) return rc;
  CUdeviceptr address = 0;
  rc = sim::memory::AddLow(*context, block, bytesize, &address);
  if (rc == CUDA_SUCCESS) *dptr = static_cast<CUdeviceptr_v1>(address);
  return rc;
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
  SIM_CALL(cuMemFree_v2, dptr);
  return Free(dptr, sim::memory::Begin);
}

CUresult cuMemFree(CUdeviceptr_v1 dptr) {
  SIM_CALL(cuMemFree, dptr);
  return Free(dptr, sim::memory::BeginLow);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  SIM_CALL(cuMemGetAddressRange_v2, pbase, psize, dptr);
  DriverLock lock;
  uint64_t base = 0;
  uint64_t bytes = 0;
  const CUresult rc = FindExtent(dptr, &base, &bytes);
  if (rc != CUDA_SUCCESS) return rc;
  if (pbase != nullptr) *pbase = base;
  if (psize != nullptr) *psize = bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr_v1* pbase, unsigned int* psize, CUdeviceptr_v1 dptr) {
  SIM_CALL(cuMemGetAddressRange, pbase, psize, dptr);
  DriverLock lock;
  uint64_t base = 0;
  uint64_t bytes = 0;
  const CUresult rc = FindExtent(dptr, &base, &bytes);
  if (rc != CUDA_SUCCESS) return rc;
  if (pbase != nullptr) *pbase = static_cast<CUdeviceptr_v1>(base);
  if (psize != nullptr) *psize = Clamp(bytes);
  return CUDA_SUCCESS;
}

}  // extern "C"

namespace {

constexpr size_t kPitchAlignment = 512;

// The pitch and the bytes of rows * pitch; false when a size makes no sense or overflows.
bool Measure(size_t width_bytes, size_t height, unsigned element_bytes, size_t* pitch,
             size_t* bytes) {
  if (width_bytes == 0 || height == 0) return false;
  if (element_bytes != 4 && element_bytes != 8 && element_bytes != 16) return false;
  size_t padded = 0;
  if (__builtin_add_overflow(width_bytes, kPitchAlignment - 1, &padded)) return false;
  *pitch = padded / kPitchAlignment * kPitchAlignment;
  return !__builtin_mul_overflow(*pitch, height, bytes);
}

}  // namespace

extern "C" {

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
  sim::memory::ClearResult(dptr);
  if (pPitch != nullptr) *pPitch = 0;
  SIM_CALL(cuMemAllocPitch_v2, dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
  sim::DriverLock lock;
  sim::context::Context* context = nullptr;
  CUresult rc = sim::memory::Begin(&context);
  if (rc != CUDA_SUCCESS) return rc;
  size_t pitch = 0;
  size_t bytes = 0;
  if (dptr == nullptr || pPitch == nullptr ||
      !Measure(WidthInBytes, Height, ElementSizeBytes, &pitch, &bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *pPitch = pitch;  // told even when there is no room
  return sim::memory::AllocateLinear(context, bytes, dptr);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1* dptr, unsigned int* pPitch, unsigned int WidthInBytes,
                         unsigned int Height, unsigned int ElementSizeBytes) {
  SIM_CALL(cuMemAllocPitch, dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
  sim::DriverLock lock;
  sim::context::Context* context = nullptr;
  CUresult rc = sim::memory::BeginLow(&context);
  if (rc != CUDA_SUCCESS) return rc;
  size_t pitch = 0;
  size_t bytes = 0;
  if (dptr == nullptr || pPitch == nullptr ||
      !Measure(WidthInBytes, Height, ElementSizeBytes, &pitch, &bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  sim::heap::Block block = {};
  rc = sim::heap::TakeWhole(context->device, bytes, &block);
  if (rc != CUDA_SUCCESS) return rc;
  CUdeviceptr address = 0;
  rc = sim::memory::AddLow(*context, block, bytes, &address);
  if (rc != CUDA_SUCCESS) return rc;
  *dptr = static_cast<CUdeviceptr_v1>(address);
  *pPitch = static_cast<unsigned>(pitch);
  return CUDA_SUCCESS;
}

}  // extern "C"
