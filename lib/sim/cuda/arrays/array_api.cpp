// The entry points of arrays and mipmapped arrays, with their 32-bit forms.
#include <limits.h>

#include "cuda/arrays/array.h"
#include "cuda/memory/memory_blocks.h"
#include "machine/calls.h"

namespace {

using sim::DriverLock;
using sim::context::Context;

CUDA_ARRAY3D_DESCRIPTOR Widen(const CUDA_ARRAY_DESCRIPTOR& descriptor) {
  return {.Width = descriptor.Width,
          .Height = descriptor.Height,
          .Depth = 0,
          .Format = descriptor.Format,
          .NumChannels = descriptor.NumChannels,
          .Flags = 0};
}

CUDA_ARRAY3D_DESCRIPTOR Widen(const CUDA_ARRAY_DESCRIPTOR_v1& descriptor) {
  return {.Width = descriptor.Width,
          .Height = descriptor.Height,
          .Depth = 0,
          .Format = descriptor.Format,
          .NumChannels = descriptor.NumChannels,
          .Flags = 0};
}

CUDA_ARRAY3D_DESCRIPTOR Widen(const CUDA_ARRAY3D_DESCRIPTOR_v1& descriptor) {
  return {.Width = descriptor.Width,
          .Height = descriptor.Height,
          .Depth = descriptor.Depth,
          .Format = descriptor.Format,
          .NumChannels = descriptor.NumChannels,
          .Flags = descriptor.Flags};
}

CUDA_ARRAY3D_DESCRIPTOR Widen(const CUDA_ARRAY3D_DESCRIPTOR& descriptor) { return descriptor; }

template <typename Descriptor>
CUresult Create(CUarray* result, const Descriptor* descriptor) {
  DriverLock lock;
  Context* context = nullptr;
  const CUresult rc = sim::memory::Begin(&context);
  if (rc != CUDA_SUCCESS) return rc;
  if (result == nullptr || descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return sim::array::Create(*context, Widen(*descriptor), result);
}

// Arrays end when nothing that runs can use them.
template <typename Handle>
CUresult Destroy(Handle handle) {
  if (sim::stream::WaitForContext != nullptr) sim::stream::WaitForContext(0);
  DriverLock lock;
  Context* context = nullptr;
  const CUresult rc = sim::memory::Begin(&context);
  return rc == CUDA_SUCCESS ? sim::array::Destroy(handle) : rc;
}

CUresult Describe(CUarray handle, const void* result, CUDA_ARRAY3D_DESCRIPTOR* descriptor) {
  DriverLock lock;
  Context* context = nullptr;
  const CUresult rc = sim::context::Current(&context);
  if (rc != CUDA_SUCCESS) return rc;
  if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return sim::array::Describe(handle, descriptor);
}

unsigned Narrow(size_t value) { return static_cast<unsigned>(value); }  // extents have 17 bits

}  // namespace

extern "C" {

CUresult cuArrayCreate(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR_v1* pAllocateArray) {
  SIM_CALL(cuArrayCreate, pHandle, pAllocateArray);
  return Create(pHandle, pAllocateArray);
}

CUresult cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) {
  SIM_CALL(cuArrayCreate_v2, pHandle, pAllocateArray);
  return Create(pHandle, pAllocateArray);
}

CUresult cuArray3DCreate(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1* pAllocateArray) {
  SIM_CALL(cuArray3DCreate, pHandle, pAllocateArray);
  return Create(pHandle, pAllocateArray);
}

CUresult cuArray3DCreate_v2(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
  SIM_CALL(cuArray3DCreate_v2, pHandle, pAllocateArray);
  return Create(pHandle, pAllocateArray);
}

CUresult cuArrayDestroy(CUarray hArray) {
  SIM_CALL(cuArrayDestroy, hArray);
  return Destroy(hArray);
}

CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1* pArrayDescriptor, CUarray hArray) {
  SIM_CALL(cuArrayGetDescriptor, pArrayDescriptor, hArray);
  CUDA_ARRAY3D_DESCRIPTOR found = {};
  const CUresult rc = Describe(hArray, pArrayDescriptor, &found);
  if (rc != CUDA_SUCCESS) return rc;
  *pArrayDescriptor = {.Width = Narrow(found.Width),
                       .Height = Narrow(found.Height),
                       .Format = found.Format,
                       .NumChannels = found.NumChannels};
  return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
  SIM_CALL(cuArrayGetDescriptor_v2, pArrayDescriptor, hArray);
  CUDA_ARRAY3D_DESCRIPTOR found = {};
  const CUresult rc = Describe(hArray, pArrayDescriptor, &found);
  if (rc != CUDA_SUCCESS) return rc;
  *pArrayDescriptor = {.Width = found.Width,
                       .Height = found.Height,
                       .Format = found.Format,
                       .NumChannels = found.NumChannels};
  return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1* pArrayDescriptor, CUarray hArray) {
  SIM_CALL(cuArray3DGetDescriptor, pArrayDescriptor, hArray);
  CUDA_ARRAY3D_DESCRIPTOR found = {};
  const CUresult rc = Describe(hArray, pArrayDescriptor, &found);
  if (rc != CUDA_SUCCESS) return rc;
  *pArrayDescriptor = {.Width = Narrow(found.Width),
                       .Height = Narrow(found.Height),
                       .Depth = Narrow(found.Depth),
                       .Format = found.Format,
                       .NumChannels = found.NumChannels,
                       .Flags = found.Flags};
  return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
  SIM_CALL(cuArray3DGetDescriptor_v2, pArrayDescriptor, hArray);
  CUDA_ARRAY3D_DESCRIPTOR found = {};
  const CUresult rc = Describe(hArray, pArrayDescriptor, &found);
  if (rc == CUDA_SUCCESS) *pArrayDescriptor = found;
  return rc;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* pHandle,
                                const CUDA_ARRAY3D_DESCRIPTOR* pMipmappedArrayDesc,
                                unsigned int numMipmapLevels) {
  SIM_CALL(cuMipmappedArrayCreate, pHandle, pMipmappedArrayDesc, numMipmapLevels);
  DriverLock lock;
  Context* context = nullptr;
  const CUresult rc = sim::memory::Begin(&context);
  if (rc != CUDA_SUCCESS) return rc;
  if (pHandle == nullptr || pMipmappedArrayDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return sim::array::CreateMipmap(*context, *pMipmappedArrayDesc, numMipmapLevels, pHandle);
}

CUresult cuMipmappedArrayGetLevel(CUarray* pLevelArray, CUmipmappedArray hMipmappedArray,
                                  unsigned int level) {
  SIM_CALL(cuMipmappedArrayGetLevel, pLevelArray, hMipmappedArray, level);
  DriverLock lock;
  Context* context = nullptr;
  const CUresult rc = sim::context::Current(&context);
  if (rc != CUDA_SUCCESS) return rc;
  if (pLevelArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return sim::array::GetLevel(hMipmappedArray, level, pLevelArray);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  SIM_CALL(cuMipmappedArrayDestroy, hMipmappedArray);
  return Destroy(hMipmappedArray);
}

}  // extern "C"
