// cuMemAllocPitch: linear memory whose rows begin at aligned addresses.
#include "cuda/memory/memory_blocks.h"
#include "machine/calls.h"

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
