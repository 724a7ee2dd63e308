// The door for copies, and the exports that copy rectangles, boxes and batches. Must not know how
// bytes are moved.
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

namespace sim {

namespace {

using copy::Waiting;

// All descriptions name their fields alike; 2D ones have one slice.
template <typename Description>
CUDA_MEMCPY3D_v2 GeneralFrom2D(const Description& from) {
  CUDA_MEMCPY3D_v2 to = {};
  to.srcXInBytes = from.srcXInBytes;
  to.srcY = from.srcY;
  to.srcMemoryType = from.srcMemoryType;
  to.srcHost = from.srcHost;
  to.srcDevice = from.srcDevice;
  to.srcArray = from.srcArray;
  to.srcPitch = from.srcPitch;
  to.dstXInBytes = from.dstXInBytes;
  to.dstY = from.dstY;
  to.dstMemoryType = from.dstMemoryType;
  to.dstHost = from.dstHost;
  to.dstDevice = from.dstDevice;
  to.dstArray = from.dstArray;
  to.dstPitch = from.dstPitch;
  to.WidthInBytes = from.WidthInBytes;
  to.Height = from.Height;
  to.Depth = 1;
  return to;
}

template <typename Description>
CUDA_MEMCPY3D_v2 GeneralFrom3D(const Description& from) {
  CUDA_MEMCPY3D_v2 to = GeneralFrom2D(from);
  to.srcZ = from.srcZ;
  to.srcLOD = from.srcLOD;
  to.srcHeight = from.srcHeight;
  to.dstZ = from.dstZ;
  to.dstLOD = from.dstLOD;
  to.dstHeight = from.dstHeight;
  to.Depth = from.Depth;
  return to;
}

template <typename Description>
CUresult Copy2D(bool per_thread, const Description* description) {
  if (description == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return copy::IssueSynchronous(per_thread, GeneralFrom2D(*description));
}

template <typename Description>
CUresult Copy2DAsync(bool per_thread, const Description* description, CUstream stream) {
  if (description == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return copy::Issue(per_thread, stream, GeneralFrom2D(*description), Waiting::kNever);
}

template <typename Description>
CUresult Copy3D(bool per_thread, const Description* description) {
  if (description == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return copy::IssueSynchronous(per_thread, GeneralFrom3D(*description));
}

template <typename Description>
CUresult Copy3DAsync(bool per_thread, const Description* description, CUstream stream) {
  if (description == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return copy::Issue(per_thread, stream, GeneralFrom3D(*description), Waiting::kNever);
}

// Batches stop at the first copy that is wrong and say which; the copies before it are under way.
// Their order among each other is not promised; here it is the list's.
CUresult Batch(bool per_thread, CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
               CUmemcpyAttributes* attributes, size_t* attribute_starts, size_t attribute_count,
               size_t* failed_at, CUstream stream) {
  const bool complete = dsts != nullptr && srcs != nullptr && sizes != nullptr && count != 0 &&
                        attributes != nullptr && attribute_starts != nullptr &&
                        attribute_count != 0 && attribute_count <= count;
  if (failed_at != nullptr) *failed_at = SIZE_MAX;
  // Batches have no default stream to fall back to.
  if (!complete || attribute_starts[0] != 0 || HandleValue(stream) <= 1) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; ++i) {
    const CUresult result =
        copy::Issue(per_thread, stream, PlainCopy(dsts[i], srcs[i], sizes[i]), Waiting::kNever);
    if (result == CUDA_SUCCESS) continue;
    if (failed_at != nullptr) *failed_at = i;
    return result;
  }
  return CUDA_SUCCESS;
}

CUresult BatchWithoutIndex(bool per_thread, CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes,
                           size_t count, CUmemcpyAttributes* attributes, size_t* attribute_starts,
                           size_t attribute_count, CUstream stream) {
  return Batch(per_thread, dsts, srcs, sizes, count, attributes, attribute_starts, attribute_count,
               nullptr, stream);
}

// Extents and offsets of a box are in elements: an array's, or bytes between two pointers.
size_t ElementBytes(const CUmemcpy3DOperand& operand) {
  memory::ArrayView view;
  DriverLock lock;
  const bool is_array = operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY;
  return is_array && memory::ViewArray(operand.op.array.array, &view) ? view.element_bytes : 1;
}

CUDA_MEMCPY3D_v2 GeneralFromBox(const CUDA_MEMCPY3D_BATCH_OP& box) {
  const size_t src_bytes = ElementBytes(box.src);
  const size_t element = src_bytes != 1 ? src_bytes : ElementBytes(box.dst);
  CUDA_MEMCPY3D_v2 to = {};
  to.WidthInBytes = box.extent.width * element;
  to.Height = box.extent.height;
  to.Depth = box.extent.depth;
  if (box.src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    copy::FromArray(&to, box.src.op.array.array, box.src.op.array.offset.x * element);
    to.srcY = box.src.op.array.offset.y;
    to.srcZ = box.src.op.array.offset.z;
  } else {
    to.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    to.srcDevice = box.src.op.ptr.ptr;
    to.srcPitch = box.src.op.ptr.rowLength * element;
    to.srcHeight = box.src.op.ptr.layerHeight;
  }
  if (box.dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    copy::ToArray(&to, box.dst.op.array.array, box.dst.op.array.offset.x * element);
    to.dstY = box.dst.op.array.offset.y;
    to.dstZ = box.dst.op.array.offset.z;
  } else {
    to.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    to.dstDevice = box.dst.op.ptr.ptr;
    to.dstPitch = box.dst.op.ptr.rowLength * element;
    to.dstHeight = box.dst.op.ptr.layerHeight;
  }
  return to;
}

CUresult BoxBatch(bool per_thread, size_t count, CUDA_MEMCPY3D_BATCH_OP* boxes, size_t* failed_at,
                  unsigned long long flags, CUstream stream) {
  if (failed_at != nullptr) *failed_at = SIZE_MAX;
  if (count == 0 || boxes == nullptr || flags != 0 || HandleValue(stream) <= 1) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; ++i) {
    const CUresult result =
        copy::Issue(per_thread, stream, GeneralFromBox(boxes[i]), Waiting::kNever);
    if (result == CUDA_SUCCESS) continue;
    if (failed_at != nullptr) *failed_at = i;
    return result;
  }
  return CUDA_SUCCESS;
}

CUresult BoxBatchWithoutIndex(bool per_thread, size_t count, CUDA_MEMCPY3D_BATCH_OP* boxes,
                              unsigned long long flags, CUstream stream) {
  return BoxBatch(per_thread, count, boxes, nullptr, flags, stream);
}

CUresult Box(bool per_thread, CUDA_MEMCPY3D_BATCH_OP* box, unsigned long long flags,
             CUstream stream) {
  if (box == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return copy::Issue(per_thread, stream, GeneralFromBox(*box), Waiting::kNever);
}

}  // namespace

}  // namespace sim

// The exports are global, everything that they use is in sim.
using namespace sim;

SIM_ONE(cuMemcpy2D, Copy2D, (const CUDA_MEMCPY2D_v1* pCopy), pCopy);
SIM_TWINS_DS(cuMemcpy2D_v2, Copy2D, (const CUDA_MEMCPY2D_v2* pCopy), pCopy);
SIM_ONE(cuMemcpy2DUnaligned, Copy2D, (const CUDA_MEMCPY2D_v1* pCopy), pCopy);
SIM_TWINS_DS(cuMemcpy2DUnaligned_v2, Copy2D, (const CUDA_MEMCPY2D_v2* pCopy), pCopy);
SIM_ONE(cuMemcpy2DAsync, Copy2DAsync, (const CUDA_MEMCPY2D_v1* pCopy, CUstream hStream), pCopy,
        hStream);
SIM_TWINS(cuMemcpy2DAsync_v2, Copy2DAsync, (const CUDA_MEMCPY2D_v2* pCopy, CUstream hStream), pCopy,
          hStream);
SIM_ONE(cuMemcpy3D, Copy3D, (const CUDA_MEMCPY3D_v1* pCopy), pCopy);
SIM_TWINS_DS(cuMemcpy3D_v2, Copy3D, (const CUDA_MEMCPY3D_v2* pCopy), pCopy);
SIM_ONE(cuMemcpy3DAsync, Copy3DAsync, (const CUDA_MEMCPY3D_v1* pCopy, CUstream hStream), pCopy,
        hStream);
SIM_TWINS(cuMemcpy3DAsync_v2, Copy3DAsync, (const CUDA_MEMCPY3D_v2* pCopy, CUstream hStream), pCopy,
          hStream);
SIM_TWINS_DS(cuMemcpy3DPeer, Copy3D, (const CUDA_MEMCPY3D_PEER* pCopy), pCopy);
SIM_TWINS(cuMemcpy3DPeerAsync, Copy3DAsync, (const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream),
          pCopy, hStream);
SIM_TWINS(cuMemcpyBatchAsync, Batch,
          (CUdeviceptr * dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
           CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs, size_t* failIdx,
           CUstream hStream),
          dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream);
SIM_TWINS(cuMemcpyBatchAsync_v2, BatchWithoutIndex,
          (CUdeviceptr * dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
           CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs, CUstream hStream),
          dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream);
SIM_TWINS(cuMemcpy3DBatchAsync, BoxBatch,
          (size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, size_t* failIdx, unsigned long long flags,
           CUstream hStream),
          numOps, opList, failIdx, flags, hStream);
SIM_TWINS(cuMemcpy3DBatchAsync_v2, BoxBatchWithoutIndex,
          (size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, unsigned long long flags,
           CUstream hStream),
          numOps, opList, flags, hStream);
SIM_TWINS(cuMemcpy3DWithAttributesAsync, Box,
          (CUDA_MEMCPY3D_BATCH_OP * op, unsigned long long flags, CUstream hStream), op, flags,
          hStream);
