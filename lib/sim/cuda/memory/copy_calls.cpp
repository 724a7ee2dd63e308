// The exports that copy rows of bytes between host, device and arrays, and that fill memory. Fills
// are kernels, so they take turns on the compute engine.
//
// A function here builds one description; the macros below export it in every width and for both
// default streams. Must not know how bytes are moved or written.
#include "cuda/memory/copy.h"
#include "cuda/memory/memory.h"
#include "cuda/streams/stream.h"

namespace sim {

namespace {

using copy::Waiting;

CUDA_MEMCPY3D_v2 HtoD(CUdeviceptr dst, const void* src, size_t bytes) {
  CUDA_MEMCPY3D_v2 row = copy::Row(bytes);
  copy::ToDevice(&row, dst);
  copy::FromHost(&row, src);
  return row;
}

CUDA_MEMCPY3D_v2 DtoH(void* dst, CUdeviceptr src, size_t bytes) {
  CUDA_MEMCPY3D_v2 row = copy::Row(bytes);
  copy::ToHost(&row, dst);
  copy::FromDevice(&row, src);
  return row;
}

CUDA_MEMCPY3D_v2 DtoD(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
  CUDA_MEMCPY3D_v2 row = copy::Row(bytes);
  copy::ToDevice(&row, dst);
  copy::FromDevice(&row, src);
  return row;
}

CUDA_MEMCPY3D_v2 DtoA(CUarray dst, size_t offset, CUdeviceptr src, size_t bytes) {
  CUDA_MEMCPY3D_v2 row = copy::Row(bytes);
  copy::ToArray(&row, dst, offset);
  copy::FromDevice(&row, src);
  return row;
}

CUDA_MEMCPY3D_v2 AtoD(CUdeviceptr dst, CUarray src, size_t offset, size_t bytes) {
  CUDA_MEMCPY3D_v2 row = copy::Row(bytes);
  copy::ToDevice(&row, dst);
  copy::FromArray(&row, src, offset);
  return row;
}

CUDA_MEMCPY3D_v2 HtoA(CUarray dst, size_t offset, const void* src, size_t bytes) {
  CUDA_MEMCPY3D_v2 row = copy::Row(bytes);
  copy::ToArray(&row, dst, offset);
  copy::FromHost(&row, src);
  return row;
}

CUDA_MEMCPY3D_v2 AtoH(void* dst, CUarray src, size_t offset, size_t bytes) {
  CUDA_MEMCPY3D_v2 row = copy::Row(bytes);
  copy::ToHost(&row, dst);
  copy::FromArray(&row, src, offset);
  return row;
}

CUDA_MEMCPY3D_v2 AtoA(CUarray dst, size_t dst_offset, CUarray src, size_t src_offset,
                      size_t bytes) {
  CUDA_MEMCPY3D_v2 row = copy::Row(bytes);
  copy::ToArray(&row, dst, dst_offset);
  copy::FromArray(&row, src, src_offset);
  return row;
}

CUDA_MEMCPY3D_v2 Any(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
  return PlainCopy(dst, src, bytes);
}

CUresult AnyWithAttributes(bool per_thread, CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                           CUmemcpyAttributes*, CUstream stream) {
  return copy::Issue(per_thread, stream, Any(dst, src, bytes), Waiting::kNever);
}

// Between contexts, which need not be peers of each other.
CUresult CheckContexts(CUcontext dst, CUcontext src) {
  DriverLock lock;
  const bool both = context::Find(dst) != nullptr && context::Find(src) != nullptr;
  return both ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult Peer(bool per_thread, CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
              CUcontext src_context, size_t bytes) {
  const CUresult result = CheckContexts(dst_context, src_context);
  return result != CUDA_SUCCESS ? result
                                : copy::IssueSynchronous(per_thread, DtoD(dst, src, bytes));
}

CUresult PeerAsync(bool per_thread, CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                   CUcontext src_context, size_t bytes, CUstream stream) {
  const CUresult result = CheckContexts(dst_context, src_context);
  return result != CUDA_SUCCESS
             ? result
             : copy::Issue(per_thread, stream, DtoD(dst, src, bytes), Waiting::kNever);
}

}  // namespace

}  // namespace sim

// The exports are global, everything that they use is in sim.
using namespace sim;

// NAME in 32 bits, NAME_v2 and NAME_v2_ptds: the description in the default stream.
#define SIM_SYNC_BODY(build) \
  [](bool per_thread, auto... args) { return copy::IssueSynchronous(per_thread, build(args...)); }
#define SIM_SYNC(name, build, narrow, wide, ...)            \
  SIM_ONE(name, SIM_SYNC_BODY(build), narrow, __VA_ARGS__); \
  SIM_TWINS_DS(name##_v2, SIM_SYNC_BODY(build), wide, __VA_ARGS__)

// NAMEAsync in 32 bits, NAMEAsync_v2 and NAMEAsync_v2_ptsz: the same in a stream, given last.
#define SIM_ASYNC_BODY(build)                                                      \
  [](bool per_thread, CUstream stream, auto... args) {                             \
    return copy::Issue(per_thread, stream, build(args...), copy::Waiting::kNever); \
  }
#define SIM_ASYNC_ONE(name, build, parameters, ...)            \
  extern "C" CUresult name parameters {                        \
    SIM_CALL(name, __VA_ARGS__, hStream);                      \
    return SIM_ASYNC_BODY(build)(false, hStream, __VA_ARGS__); \
  }                                                            \
  static_assert(true)
#define SIM_ASYNC_TWINS(name, build, parameters, ...)         \
  SIM_ASYNC_ONE(name, build, parameters, __VA_ARGS__);        \
  extern "C" CUresult name##_ptsz parameters {                \
    SIM_CALL(name##_ptsz, __VA_ARGS__, hStream);              \
    return SIM_ASYNC_BODY(build)(true, hStream, __VA_ARGS__); \
  }                                                           \
  static_assert(true)
#define SIM_ASYNC(name, build, narrow, wide, ...)  \
  SIM_ASYNC_ONE(name, build, narrow, __VA_ARGS__); \
  SIM_ASYNC_TWINS(name##_v2, build, wide, __VA_ARGS__)

SIM_TWINS_DS(cuMemcpy, SIM_SYNC_BODY(Any), (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount),
             dst, src, ByteCount);
SIM_ASYNC_TWINS(cuMemcpyAsync, Any,
                (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream), dst, src,
                ByteCount);
SIM_TWINS(cuMemcpyWithAttributesAsync, AnyWithAttributes,
          (CUdeviceptr dst, CUdeviceptr src, size_t size, CUmemcpyAttributes* attr,
           CUstream hStream),
          dst, src, size, attr, hStream);

SIM_SYNC(cuMemcpyHtoD, HtoD,
         (CUdeviceptr_v1 dstDevice, const void* srcHost, unsigned int ByteCount),
         (CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount), dstDevice, srcHost,
         ByteCount);
SIM_SYNC(cuMemcpyDtoH, DtoH, (void* dstHost, CUdeviceptr_v1 srcDevice, unsigned int ByteCount),
         (void* dstHost, CUdeviceptr srcDevice, size_t ByteCount), dstHost, srcDevice, ByteCount);
SIM_SYNC(cuMemcpyDtoD, DtoD,
         (CUdeviceptr_v1 dstDevice, CUdeviceptr_v1 srcDevice, unsigned int ByteCount),
         (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount), dstDevice, srcDevice,
         ByteCount);
SIM_SYNC(cuMemcpyDtoA, DtoA,
         (CUarray dstArray, unsigned int dstOffset, CUdeviceptr_v1 srcDevice,
          unsigned int ByteCount),
         (CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount), dstArray,
         dstOffset, srcDevice, ByteCount);
SIM_SYNC(cuMemcpyAtoD, AtoD,
         (CUdeviceptr_v1 dstDevice, CUarray srcArray, unsigned int srcOffset,
          unsigned int ByteCount),
         (CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount), dstDevice,
         srcArray, srcOffset, ByteCount);
SIM_SYNC(cuMemcpyHtoA, HtoA,
         (CUarray dstArray, unsigned int dstOffset, const void* srcHost, unsigned int ByteCount),
         (CUarray dstArray, size_t dstOffset, const void* srcHost, size_t ByteCount), dstArray,
         dstOffset, srcHost, ByteCount);
SIM_SYNC(cuMemcpyAtoH, AtoH,
         (void* dstHost, CUarray srcArray, unsigned int srcOffset, unsigned int ByteCount),
         (void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount), dstHost, srcArray,
         srcOffset, ByteCount);
SIM_SYNC(cuMemcpyAtoA, AtoA,
         (CUarray dstArray, unsigned int dstOffset, CUarray srcArray, unsigned int srcOffset,
          unsigned int ByteCount),
         (CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset, size_t ByteCount),
         dstArray, dstOffset, srcArray, srcOffset, ByteCount);

SIM_ASYNC(cuMemcpyHtoDAsync, HtoD,
          (CUdeviceptr_v1 dstDevice, const void* srcHost, unsigned int ByteCount, CUstream hStream),
          (CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount, CUstream hStream),
          dstDevice, srcHost, ByteCount);
SIM_ASYNC(cuMemcpyDtoHAsync, DtoH,
          (void* dstHost, CUdeviceptr_v1 srcDevice, unsigned int ByteCount, CUstream hStream),
          (void* dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream), dstHost,
          srcDevice, ByteCount);
SIM_ASYNC(cuMemcpyDtoDAsync, DtoD,
          (CUdeviceptr_v1 dstDevice, CUdeviceptr_v1 srcDevice, unsigned int ByteCount,
           CUstream hStream),
          (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream),
          dstDevice, srcDevice, ByteCount);
SIM_ASYNC(cuMemcpyHtoAAsync, HtoA,
          (CUarray dstArray, unsigned int dstOffset, const void* srcHost, unsigned int ByteCount,
           CUstream hStream),
          (CUarray dstArray, size_t dstOffset, const void* srcHost, size_t ByteCount,
           CUstream hStream),
          dstArray, dstOffset, srcHost, ByteCount);
SIM_ASYNC(cuMemcpyAtoHAsync, AtoH,
          (void* dstHost, CUarray srcArray, unsigned int srcOffset, unsigned int ByteCount,
           CUstream hStream),
          (void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount, CUstream hStream),
          dstHost, srcArray, srcOffset, ByteCount);

SIM_TWINS_DS(cuMemcpyPeer, Peer,
             (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
              CUcontext srcContext, size_t ByteCount),
             dstDevice, dstContext, srcDevice, srcContext, ByteCount);
SIM_TWINS(cuMemcpyPeerAsync, PeerAsync,
          (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
           size_t ByteCount, CUstream hStream),
          dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream);

namespace sim {

namespace {

CUresult IssueFill(bool per_thread, CUstream handle, const CUDA_MEMSET_NODE_PARAMS_v2& fill) {
  if (fill.width == 0 || fill.height == 0) return CUDA_SUCCESS;
  if (fill.dst % fill.elementSize != 0) return CUDA_ERROR_INVALID_VALUE;
  const size_t row_bytes = fill.width * fill.elementSize;
  if (fill.height > 1 && fill.pitch < row_bytes) return CUDA_ERROR_INVALID_VALUE;
  TimelineLock lock;
  stream::Stream* stream = nullptr;
  const CUresult result = stream::Resolve(handle, per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (memory::FindRange(fill.dst) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const context::Context* context = context::Find(AsHandle<CUcontext>(stream->context));
  if (context == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  Operation operation = MakeOperation(CU_GRAPH_NODE_TYPE_MEMSET, *context);
  operation.fill = fill;
  return stream::Issue(lock, handle, per_thread, operation);
}

template <unsigned kElementBytes>
CUresult FillAsync(bool per_thread, CUdeviceptr dst, unsigned value, size_t count,
                   CUstream stream) {
  return IssueFill(per_thread, stream, {dst, 0, value, kElementBytes, count, 1, nullptr});
}

template <unsigned kElementBytes>
CUresult Fill2DAsync(bool per_thread, CUdeviceptr dst, size_t pitch, unsigned value, size_t width,
                     size_t height, CUstream stream) {
  return IssueFill(per_thread, stream, {dst, pitch, value, kElementBytes, width, height, nullptr});
}

// Without "Async" in their names they only differ in what a capture forbids: the caller does not
// wait for device memory.
template <unsigned kElementBytes>
CUresult Fill(bool per_thread, CUdeviceptr dst, unsigned value, size_t count) {
  const CUresult result = copy::RefuseSynchronous(per_thread);
  if (result != CUDA_SUCCESS) return result;
  return FillAsync<kElementBytes>(per_thread, dst, value, count, nullptr);
}

template <unsigned kElementBytes>
CUresult Fill2D(bool per_thread, CUdeviceptr dst, size_t pitch, unsigned value, size_t width,
                size_t height) {
  const CUresult result = copy::RefuseSynchronous(per_thread);
  if (result != CUDA_SUCCESS) return result;
  return Fill2DAsync<kElementBytes>(per_thread, dst, pitch, value, width, height, nullptr);
}

}  // namespace

}  // namespace sim

// The exports are global, everything that they use is in sim.
using namespace sim;

// The nine exports of one element width.
#define SIM_MEMSET(bits, type, value)                                                              \
  SIM_ONE(cuMemsetD##bits, Fill<bits / 8>, (CUdeviceptr_v1 dstDevice, type value, unsigned int N), \
          dstDevice, value, N);                                                                    \
  SIM_TWINS_DS(cuMemsetD##bits##_v2, Fill<bits / 8>,                                               \
               (CUdeviceptr dstDevice, type value, size_t N), dstDevice, value, N);                \
  SIM_TWINS(cuMemsetD##bits##Async, FillAsync<bits / 8>,                                           \
            (CUdeviceptr dstDevice, type value, size_t N, CUstream hStream), dstDevice, value, N,  \
            hStream);                                                                              \
  SIM_ONE(cuMemsetD2D##bits, Fill2D<bits / 8>,                                                     \
          (CUdeviceptr_v1 dstDevice, unsigned int dstPitch, type value, unsigned int Width,        \
           unsigned int Height),                                                                   \
          dstDevice, dstPitch, value, Width, Height);                                              \
  SIM_TWINS_DS(cuMemsetD2D##bits##_v2, Fill2D<bits / 8>,                                           \
               (CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width, size_t Height),  \
               dstDevice, dstPitch, value, Width, Height);                                         \
  SIM_TWINS(cuMemsetD2D##bits##Async, Fill2DAsync<bits / 8>,                                       \
            (CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width, size_t Height,      \
             CUstream hStream),                                                                    \
            dstDevice, dstPitch, value, Width, Height, hStream)

SIM_MEMSET(8, unsigned char, uc);
SIM_MEMSET(16, unsigned short, us);
SIM_MEMSET(32, unsigned int, ui);
