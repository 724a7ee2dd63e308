// What else takes a place in a stream and is no kernel: waits, host functions, writes of values.
// The same as in copy.cpp.
#include "hooks/cores/cores.h"
#include "hooks/cores/streams.h"
#include "real.h"

using namespace gpufence;

extern "C" {

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void* userData) {
  LeaveKernels(hStream);
  return real::cuLaunchHostFunc(hStream, fn, userData);
}

CUresult cuLaunchHostFunc_ptsz(CUstream hStream, CUhostFn fn, void* userData) {
  LeaveKernels(PerThread(hStream));
  return real::cuLaunchHostFunc_ptsz(hStream, fn, userData);
}

CUresult cuLaunchHostFunc_v2(CUstream hStream, CUhostFn fn, void* userData, unsigned int syncMode) {
  LeaveKernels(hStream);
  return real::cuLaunchHostFunc_v2(hStream, fn, userData, syncMode);
}

CUresult cuLaunchHostFunc_v2_ptsz(CUstream hStream, CUhostFn fn, void* userData,
                                  unsigned int syncMode) {
  LeaveKernels(PerThread(hStream));
  return real::cuLaunchHostFunc_v2_ptsz(hStream, fn, userData, syncMode);
}

CUresult cuSignalExternalSemaphoresAsync(const CUexternalSemaphore* extSemArray,
                                         const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS* paramsArray,
                                         unsigned int numExtSems, CUstream stream) {
  LeaveKernels(stream);
  return real::cuSignalExternalSemaphoresAsync(extSemArray, paramsArray, numExtSems, stream);
}

CUresult cuSignalExternalSemaphoresAsync_ptsz(
    const CUexternalSemaphore* extSemArray,
    const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS* paramsArray, unsigned int numExtSems,
    CUstream stream) {
  LeaveKernels(PerThread(stream));
  return real::cuSignalExternalSemaphoresAsync_ptsz(extSemArray, paramsArray, numExtSems, stream);
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void* userData,
                             unsigned int flags) {
  LeaveKernels(hStream);
  return real::cuStreamAddCallback(hStream, callback, userData, flags);
}

CUresult cuStreamAddCallback_ptsz(CUstream hStream, CUstreamCallback callback, void* userData,
                                  unsigned int flags) {
  LeaveKernels(PerThread(hStream));
  return real::cuStreamAddCallback_ptsz(hStream, callback, userData, flags);
}

CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length,
                                unsigned int flags) {
  LeaveKernels(hStream);
  return real::cuStreamAttachMemAsync(hStream, dptr, length, flags);
}

CUresult cuStreamAttachMemAsync_ptsz(CUstream hStream, CUdeviceptr dptr, size_t length,
                                     unsigned int flags) {
  LeaveKernels(PerThread(hStream));
  return real::cuStreamAttachMemAsync_ptsz(hStream, dptr, length, flags);
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count,
                            CUstreamBatchMemOpParams* paramArray, unsigned int flags) {
  LeaveKernels(stream);
  return real::cuStreamBatchMemOp(stream, count, paramArray, flags);
}

CUresult cuStreamBatchMemOp_ptsz(CUstream stream, unsigned int count,
                                 CUstreamBatchMemOpParams* paramArray, unsigned int flags) {
  LeaveKernels(PerThread(stream));
  return real::cuStreamBatchMemOp_ptsz(stream, count, paramArray, flags);
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                               CUstreamBatchMemOpParams* paramArray, unsigned int flags) {
  LeaveKernels(stream);
  return real::cuStreamBatchMemOp_v2(stream, count, paramArray, flags);
}

CUresult cuStreamBatchMemOp_v2_ptsz(CUstream stream, unsigned int count,
                                    CUstreamBatchMemOpParams* paramArray, unsigned int flags) {
  LeaveKernels(PerThread(stream));
  return real::cuStreamBatchMemOp_v2_ptsz(stream, count, paramArray, flags);
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  LeaveKernels(hStream);
  return real::cuStreamWaitEvent(hStream, hEvent, Flags);
}

CUresult cuStreamWaitEvent_ptsz(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  LeaveKernels(PerThread(hStream));
  return real::cuStreamWaitEvent_ptsz(hStream, hEvent, Flags);
}

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                             unsigned int flags) {
  LeaveKernels(stream);
  return real::cuStreamWaitValue32(stream, addr, value, flags);
}

CUresult cuStreamWaitValue32_ptsz(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                  unsigned int flags) {
  LeaveKernels(PerThread(stream));
  return real::cuStreamWaitValue32_ptsz(stream, addr, value, flags);
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                unsigned int flags) {
  LeaveKernels(stream);
  return real::cuStreamWaitValue32_v2(stream, addr, value, flags);
}

CUresult cuStreamWaitValue32_v2_ptsz(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                     unsigned int flags) {
  LeaveKernels(PerThread(stream));
  return real::cuStreamWaitValue32_v2_ptsz(stream, addr, value, flags);
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                             unsigned int flags) {
  LeaveKernels(stream);
  return real::cuStreamWaitValue64(stream, addr, value, flags);
}

CUresult cuStreamWaitValue64_ptsz(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                  unsigned int flags) {
  LeaveKernels(PerThread(stream));
  return real::cuStreamWaitValue64_ptsz(stream, addr, value, flags);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                unsigned int flags) {
  LeaveKernels(stream);
  return real::cuStreamWaitValue64_v2(stream, addr, value, flags);
}

CUresult cuStreamWaitValue64_v2_ptsz(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                     unsigned int flags) {
  LeaveKernels(PerThread(stream));
  return real::cuStreamWaitValue64_v2_ptsz(stream, addr, value, flags);
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                              unsigned int flags) {
  LeaveKernels(stream);
  return real::cuStreamWriteValue32(stream, addr, value, flags);
}

CUresult cuStreamWriteValue32_ptsz(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                   unsigned int flags) {
  LeaveKernels(PerThread(stream));
  return real::cuStreamWriteValue32_ptsz(stream, addr, value, flags);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                 unsigned int flags) {
  LeaveKernels(stream);
  return real::cuStreamWriteValue32_v2(stream, addr, value, flags);
}

CUresult cuStreamWriteValue32_v2_ptsz(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                      unsigned int flags) {
  LeaveKernels(PerThread(stream));
  return real::cuStreamWriteValue32_v2_ptsz(stream, addr, value, flags);
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                              unsigned int flags) {
  LeaveKernels(stream);
  return real::cuStreamWriteValue64(stream, addr, value, flags);
}

CUresult cuStreamWriteValue64_ptsz(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                   unsigned int flags) {
  LeaveKernels(PerThread(stream));
  return real::cuStreamWriteValue64_ptsz(stream, addr, value, flags);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                 unsigned int flags) {
  LeaveKernels(stream);
  return real::cuStreamWriteValue64_v2(stream, addr, value, flags);
}

CUresult cuStreamWriteValue64_v2_ptsz(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                      unsigned int flags) {
  LeaveKernels(PerThread(stream));
  return real::cuStreamWriteValue64_v2_ptsz(stream, addr, value, flags);
}

CUresult cuWaitExternalSemaphoresAsync(const CUexternalSemaphore* extSemArray,
                                       const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS* paramsArray,
                                       unsigned int numExtSems, CUstream stream) {
  LeaveKernels(stream);
  return real::cuWaitExternalSemaphoresAsync(extSemArray, paramsArray, numExtSems, stream);
}

CUresult cuWaitExternalSemaphoresAsync_ptsz(const CUexternalSemaphore* extSemArray,
                                            const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS* paramsArray,
                                            unsigned int numExtSems, CUstream stream) {
  LeaveKernels(PerThread(stream));
  return real::cuWaitExternalSemaphoresAsync_ptsz(extSemArray, paramsArray, numExtSems, stream);
}

}  // extern "C"
