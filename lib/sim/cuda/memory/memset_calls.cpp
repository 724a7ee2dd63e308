// The exports that fill memory. Fills are kernels, so they take turns on the compute engine.
// Must not know how bytes are written.
#include "cuda/memory/copy.h"
#include "cuda/memory/memory.h"
#include "cuda/streams/stream.h"

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
