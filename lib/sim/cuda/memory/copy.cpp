// The door for copies. Must not know how bytes are moved.
#include "cuda/memory/copy.h"

#include "cuda/graphs/capture.h"
#include "cuda/memory/memory.h"
#include "cuda/streams/stream.h"

namespace sim::copy {

namespace {

// What the API types as a device pointer must be one.
CUresult ValidateEnds(const CUDA_MEMCPY3D_v2& copy) {
  const size_t row = copy.WidthInBytes;
  const bool source = copy.srcMemoryType != CU_MEMORYTYPE_DEVICE ||
                      memory::IsDeviceRange(copy.srcDevice + copy.srcXInBytes, row);
  const bool destination = copy.dstMemoryType != CU_MEMORYTYPE_DEVICE ||
                           memory::IsDeviceRange(copy.dstDevice + copy.dstXInBytes, row);
  return source && destination ? ValidateCopy(copy) : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult Issue(bool per_thread, CUstream handle, const CUDA_MEMCPY3D_v2& copy, Waiting waiting) {
  TimelineLock lock;
  stream::Stream* stream = nullptr;
  CUresult result = stream::Resolve(handle, per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (copy.WidthInBytes == 0 || copy.Height == 0 || copy.Depth == 0) return CUDA_SUCCESS;
  result = ValidateEnds(copy);
  if (result != CUDA_SUCCESS) return result;
  const context::Context* context = context::Find(AsHandle<CUcontext>(stream->context));
  if (context == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;

  Operation operation = MakeOperation(CU_GRAPH_NODE_TYPE_MEMCPY, *context);
  operation.copy = copy;
  Work* done = nullptr;
  result = stream::Issue(lock, handle, per_thread, operation, &done);
  const bool to_pageable = DestinationSide(copy) == Side::kPageable;
  if (waiting == Waiting::kUntilDone || to_pageable) lock.Wait(done);
  ReleaseWork(done);
  return result;
}

CUresult RefuseSynchronous(bool per_thread) {
  DriverLock lock;
  stream::Stream* stream = nullptr;
  CUresult result = stream::Resolve(nullptr, per_thread, &stream);
  if (result == CUDA_SUCCESS && stream->is_legacy) result = capture::RefuseLegacy(stream->context);
  return result == CUDA_SUCCESS ? capture::RefuseCapturing(*stream) : result;
}

CUresult IssueSynchronous(bool per_thread, const CUDA_MEMCPY3D_v2& copy) {
  const CUresult result = RefuseSynchronous(per_thread);
  if (result != CUDA_SUCCESS) return result;
  bool within_devices = false;
  {
    DriverLock lock;
    within_devices = SourceSide(copy) == Side::kDevice && DestinationSide(copy) == Side::kDevice;
  }
  return Issue(per_thread, nullptr, copy, within_devices ? Waiting::kNever : Waiting::kUntilDone);
}

void FromHost(CUDA_MEMCPY3D_v2* copy, const void* host) {
  copy->srcMemoryType = CU_MEMORYTYPE_HOST;
  copy->srcHost = host;
}

void FromDevice(CUDA_MEMCPY3D_v2* copy, CUdeviceptr device) {
  copy->srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy->srcDevice = device;
}

void FromArray(CUDA_MEMCPY3D_v2* copy, CUarray array, size_t offset) {
  copy->srcMemoryType = CU_MEMORYTYPE_ARRAY;
  copy->srcArray = array;
  copy->srcXInBytes = offset;
}

void ToHost(CUDA_MEMCPY3D_v2* copy, void* host) {
  copy->dstMemoryType = CU_MEMORYTYPE_HOST;
  copy->dstHost = host;
}

void ToDevice(CUDA_MEMCPY3D_v2* copy, CUdeviceptr device) {
  copy->dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy->dstDevice = device;
}

void ToArray(CUDA_MEMCPY3D_v2* copy, CUarray array, size_t offset) {
  copy->dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy->dstArray = array;
  copy->dstXInBytes = offset;
}

CUDA_MEMCPY3D_v2 Row(size_t bytes) {
  CUDA_MEMCPY3D_v2 row = {};
  row.WidthInBytes = bytes;
  row.Height = 1;
  row.Depth = 1;
  return row;
}

}  // namespace sim::copy
