// Copies and fills in streams: no kernels, so they cost nothing. What was launched before them is
// marked first, and what is launched after them begins anew. Must not know what is copied.
#include "hooks/cores/cores.h"
#include "hooks/cores/streams.h"
#include "real.h"

using namespace gpufence;

extern "C" {

CUresult cuMemBatchDecompressAsync(CUmemDecompressParams* paramsArray, size_t count,
                                   unsigned int flags, size_t* errorIndex, CUstream stream) {
  LeaveKernels(stream);
  return real::cuMemBatchDecompressAsync(paramsArray, count, flags, errorIndex, stream);
}

CUresult cuMemBatchDecompressAsync_ptsz(CUmemDecompressParams* paramsArray, size_t count,
                                        unsigned int flags, size_t* errorIndex, CUstream stream) {
  LeaveKernels(PerThread(stream));
  return real::cuMemBatchDecompressAsync_ptsz(paramsArray, count, flags, errorIndex, stream);
}

CUresult cuMemDiscardBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                unsigned long long flags, CUstream hStream) {
  LeaveKernels(hStream);
  return real::cuMemDiscardBatchAsync(dptrs, sizes, count, flags, hStream);
}

CUresult cuMemDiscardBatchAsync_ptsz(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                     unsigned long long flags, CUstream hStream) {
  LeaveKernels(PerThread(hStream));
  return real::cuMemDiscardBatchAsync_ptsz(dptrs, sizes, count, flags, hStream);
}

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D_v1* pCopy, CUstream hStream) {
  LeaveKernels(hStream);
  return real::cuMemcpy2DAsync(pCopy, hStream);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
  LeaveKernels(hStream);
  return real::cuMemcpy2DAsync_v2(pCopy, hStream);
}

CUresult cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
  LeaveKernels(PerThread(hStream));
  return real::cuMemcpy2DAsync_v2_ptsz(pCopy, hStream);
}

CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D_v1* pCopy, CUstream hStream) {
  LeaveKernels(hStream);
  return real::cuMemcpy3DAsync(pCopy, hStream);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* pCopy, CUstream hStream) {
  LeaveKernels(hStream);
  return real::cuMemcpy3DAsync_v2(pCopy, hStream);
}

CUresult cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D* pCopy, CUstream hStream) {
  LeaveKernels(PerThread(hStream));
  return real::cuMemcpy3DAsync_v2_ptsz(pCopy, hStream);
}

CUresult cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, size_t* failIdx,
                              unsigned long long flags, CUstream hStream) {
  LeaveKernels(hStream);
  return real::cuMemcpy3DBatchAsync(numOps, opList, failIdx, flags, hStream);
}

CUresult cuMemcpy3DBatchAsync_ptsz(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, size_t* failIdx,
                                   unsigned long long flags, CUstream hStream) {
  LeaveKernels(PerThread(hStream));
  return real::cuMemcpy3DBatchAsync_ptsz(numOps, opList, failIdx, flags, hStream);
}

CUresult cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList,
                                 unsigned long long flags, CUstream hStream) {
  LeaveKernels(hStream);
  return real::cuMemcpy3DBatchAsync_v2(numOps, opList, flags, hStream);
}

CUresult cuMemcpy3DBatchAsync_v2_ptsz(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList,
                                      unsigned long long flags, CUstream hStream) {
  LeaveKernels(PerThread(hStream));
  return real::cuMemcpy3DBatchAsync_v2_ptsz(numOps, opList, flags, hStream);
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream) {
  LeaveKernels(hStream);
  return real::cuMemcpy3DPeerAsync(pCopy, hStream);
}

CUresult cuMemcpy3DPeerAsync_ptsz(const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream) {
  LeaveKernels(PerThread(hStream));
  return real::cuMemcpy3DPeerAsync_ptsz(pCopy, hStream);
}

CUresult cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP* op, unsigned long long flags,
                                       CUstream hStream) {
  LeaveKernels(hStream);
  return real::cuMemcpy3DWithAttributesAsync(op, flags, hStream);
}

CUresult cuMemcpy3DWithAttributesAsync_ptsz(CUDA_MEMCPY3D_BATCH_OP* op, unsigned long long flags,
                                            CUstream hStream) {
  LeaveKernels(PerThread(hStream));
  return real::cuMemcpy3DWithAttributesAsync_ptsz(op, flags, hStream);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
  LeaveKernels(hStream);
  return real::cuMemcpyAsync(dst, src, ByteCount, hStream);
}

CUresult cuMemcpyAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
  LeaveKernels(PerThread(hStream));
  return real::cuMemcpyAsync_ptsz(dst, src, ByteCount, hStream);
}

CUresult cuMemcpyAtoHAsync(void* dstHost, CUarray srcArray, unsigned int srcOffset,
                           unsigned int ByteCount, CUstream hStream) {
  LeaveKernels(hStream);
  return real::cuMemcpyAtoHAsync(dstHost, srcArray, srcOffset, ByteCount, hStream);
}

CUresult cuMemcpyAtoHAsync_v2(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
                              CUstream hStream) {
  LeaveKernels(hStream);
  return real::cuMemcpyAtoHAsync_v2(dstHost, srcArray, srcOffset, ByteCount, hStream);
}

CUresult cuMemcpyAtoHAsync_v2_ptsz(void* dstHost, CUarray srcArray, size_t srcOffset,
                                   size_t ByteCount, CUstream hStream) {
  LeaveKernels(PerThread(hStream));
  return real::cuMemcpyAtoHAsync_v2_ptsz(dstHost, srcArray, srcOffset, ByteCount, hStream);
}

CUresult cuMemcpyBatchAsync(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                            CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                            size_t* failIdx, CUstream hStream) {
  LeaveKernels(hStream);
  return real::cuMemcpyBatchAsync(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx,
                                  hStream);
}

CUresult cuMemcpyBatchAsync_ptsz(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                                 CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                                 size_t* failIdx, CUstream hStream) {
  LeaveKernels(PerThread(hStream));
  return real::cuMemcpyBatchAsync_ptsz(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs,
                                       failIdx, hStream);
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                               CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                               CUstream hStream) {
  LeaveKernels(hStream);
  return real::cuMemcpyBatchAsync_v2(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream);
}

CUresult cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes,
                                    size_t count, CUmemcpyAttributes* attrs, size_t* attrsIdxs,
                                    size_t numAttrs, CUstream hStream) {
  LeaveKernels(PerThread(hStream));
  return real::cuMemcpyBatchAsync_v2_ptsz(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs,
                                          hStream);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr_v1 dstDevice, CUdeviceptr_v1 srcDevice,
                           unsigned int ByteCount, CUstream hStream) {
  LeaveKernels(hStream);
  return real::cuMemcpyDtoDAsync(dstDevice, srcDevice, ByteCount, hStream);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
  LeaveKernels(hStream);
  return real::cuMemcpyDtoDAsync_v2(dstDevice, srcDevice, ByteCount, hStream);
}

CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                                   CUstream hStream) {
  LeaveKernels(PerThread(hStream));
  return real::cuMemcpyDtoDAsync_v2_ptsz(dstDevice, srcDevice, ByteCount, hStream);
}

CUresult cuMemcpyDtoHAsync(void* dstHost, CUdeviceptr_v1 srcDevice, unsigned int ByteCount,
                           CUstream hStream) {
  LeaveKernels(hStream);
  return real::cuMemcpyDtoHAsync(dstHost, srcDevice, ByteCount, hStream);
}

CUresult cuMemcpyDtoHAsync_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
  LeaveKernels(hStream);
  return real::cuMemcpyDtoHAsync_v2(dstHost, srcDevice, ByteCount, hStream);
}

CUresult cuMemcpyDtoHAsync_v2_ptsz(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                                   CUstream hStream) {
  LeaveKernels(PerThread(hStream));
  return real::cuMemcpyDtoHAsync_v2_ptsz(dstHost, srcDevice, ByteCount, hStream);
}

CUresult cuMemcpyHtoAAsync(CUarray dstArray, unsigned int dstOffset, const void* srcHost,
                           unsigned int ByteCount, CUstream hStream) {
  LeaveKernels(hStream);
  return real::cuMemcpyHtoAAsync(dstArray, dstOffset, srcHost, ByteCount, hStream);
}

CUresult cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void* srcHost,
                              size_t ByteCount, CUstream hStream) {
  LeaveKernels(hStream);
  return real::cuMemcpyHtoAAsync_v2(dstArray, dstOffset, srcHost, ByteCount, hStream);
}

CUresult cuMemcpyHtoAAsync_v2_ptsz(CUarray dstArray, size_t dstOffset, const void* srcHost,
                                   size_t ByteCount, CUstream hStream) {
  LeaveKernels(PerThread(hStream));
  return real::cuMemcpyHtoAAsync_v2_ptsz(dstArray, dstOffset, srcHost, ByteCount, hStream);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr_v1 dstDevice, const void* srcHost, unsigned int ByteCount,
                           CUstream hStream) {
  LeaveKernels(hStream);
  return real::cuMemcpyHtoDAsync(dstDevice, srcHost, ByteCount, hStream);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                              CUstream hStream) {
  LeaveKernels(hStream);
  return real::cuMemcpyHtoDAsync_v2(dstDevice, srcHost, ByteCount, hStream);
}

CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                                   CUstream hStream) {
  LeaveKernels(PerThread(hStream));
  return real::cuMemcpyHtoDAsync_v2_ptsz(dstDevice, srcHost, ByteCount, hStream);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                           CUcontext srcContext, size_t ByteCount, CUstream hStream) {
  LeaveKernels(hStream);
  return real::cuMemcpyPeerAsync(dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream);
}

CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                                CUcontext srcContext, size_t ByteCount, CUstream hStream) {
  LeaveKernels(PerThread(hStream));
  return real::cuMemcpyPeerAsync_ptsz(dstDevice, dstContext, srcDevice, srcContext, ByteCount,
                                      hStream);
}

CUresult cuMemcpyWithAttributesAsync(CUdeviceptr dst, CUdeviceptr src, size_t size,
                                     CUmemcpyAttributes* attr, CUstream hStream) {
  LeaveKernels(hStream);
  return real::cuMemcpyWithAttributesAsync(dst, src, size, attr, hStream);
}

CUresult cuMemcpyWithAttributesAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t size,
                                          CUmemcpyAttributes* attr, CUstream hStream) {
  LeaveKernels(PerThread(hStream));
  return real::cuMemcpyWithAttributesAsync_ptsz(dst, src, size, attr, hStream);
}

CUresult cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream) {
  LeaveKernels(hStream);
  return real::cuMemsetD16Async(dstDevice, us, N, hStream);
}

CUresult cuMemsetD16Async_ptsz(CUdeviceptr dstDevice, unsigned short us, size_t N,
                               CUstream hStream) {
  LeaveKernels(PerThread(hStream));
  return real::cuMemsetD16Async_ptsz(dstDevice, us, N, hStream);
}

CUresult cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                            size_t Height, CUstream hStream) {
  LeaveKernels(hStream);
  return real::cuMemsetD2D16Async(dstDevice, dstPitch, us, Width, Height, hStream);
}

CUresult cuMemsetD2D16Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us,
                                 size_t Width, size_t Height, CUstream hStream) {
  LeaveKernels(PerThread(hStream));
  return real::cuMemsetD2D16Async_ptsz(dstDevice, dstPitch, us, Width, Height, hStream);
}

CUresult cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                            size_t Height, CUstream hStream) {
  LeaveKernels(hStream);
  return real::cuMemsetD2D32Async(dstDevice, dstPitch, ui, Width, Height, hStream);
}

CUresult cuMemsetD2D32Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui,
                                 size_t Width, size_t Height, CUstream hStream) {
  LeaveKernels(PerThread(hStream));
  return real::cuMemsetD2D32Async_ptsz(dstDevice, dstPitch, ui, Width, Height, hStream);
}

CUresult cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                           size_t Height, CUstream hStream) {
  LeaveKernels(hStream);
  return real::cuMemsetD2D8Async(dstDevice, dstPitch, uc, Width, Height, hStream);
}

CUresult cuMemsetD2D8Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc,
                                size_t Width, size_t Height, CUstream hStream) {
  LeaveKernels(PerThread(hStream));
  return real::cuMemsetD2D8Async_ptsz(dstDevice, dstPitch, uc, Width, Height, hStream);
}

CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream) {
  LeaveKernels(hStream);
  return real::cuMemsetD32Async(dstDevice, ui, N, hStream);
}

CUresult cuMemsetD32Async_ptsz(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream) {
  LeaveKernels(PerThread(hStream));
  return real::cuMemsetD32Async_ptsz(dstDevice, ui, N, hStream);
}

CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {
  LeaveKernels(hStream);
  return real::cuMemsetD8Async(dstDevice, uc, N, hStream);
}

CUresult cuMemsetD8Async_ptsz(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {
  LeaveKernels(PerThread(hStream));
  return real::cuMemsetD8Async_ptsz(dstDevice, uc, N, hStream);
}

}  // extern "C"
