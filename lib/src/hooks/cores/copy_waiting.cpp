// Copies and fills that wait for what the calling thread's context does: the same as in copy.cpp,
// for all its streams. Must not know what is copied.
#include "hooks/cores/cores.h"
#include "real.h"

using namespace gpufence;

extern "C" {

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  LeaveAllKernels();
  return real::cuMemcpy(dst, src, ByteCount);
}

CUresult cuMemcpy2D(const CUDA_MEMCPY2D_v1* pCopy) {
  LeaveAllKernels();
  return real::cuMemcpy2D(pCopy);
}

CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D_v1* pCopy) {
  LeaveAllKernels();
  return real::cuMemcpy2DUnaligned(pCopy);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* pCopy) {
  LeaveAllKernels();
  return real::cuMemcpy2DUnaligned_v2(pCopy);
}

CUresult cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D* pCopy) {
  LeaveAllKernels();
  return real::cuMemcpy2DUnaligned_v2_ptds(pCopy);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* pCopy) {
  LeaveAllKernels();
  return real::cuMemcpy2D_v2(pCopy);
}

CUresult cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D* pCopy) {
  LeaveAllKernels();
  return real::cuMemcpy2D_v2_ptds(pCopy);
}

CUresult cuMemcpy3D(const CUDA_MEMCPY3D_v1* pCopy) {
  LeaveAllKernels();
  return real::cuMemcpy3D(pCopy);
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* pCopy) {
  LeaveAllKernels();
  return real::cuMemcpy3DPeer(pCopy);
}

CUresult cuMemcpy3DPeer_ptds(const CUDA_MEMCPY3D_PEER* pCopy) {
  LeaveAllKernels();
  return real::cuMemcpy3DPeer_ptds(pCopy);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* pCopy) {
  LeaveAllKernels();
  return real::cuMemcpy3D_v2(pCopy);
}

CUresult cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D* pCopy) {
  LeaveAllKernels();
  return real::cuMemcpy3D_v2_ptds(pCopy);
}

CUresult cuMemcpyAtoA(CUarray dstArray, unsigned int dstOffset, CUarray srcArray,
                      unsigned int srcOffset, unsigned int ByteCount) {
  LeaveAllKernels();
  return real::cuMemcpyAtoA(dstArray, dstOffset, srcArray, srcOffset, ByteCount);
}

CUresult cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount) {
  LeaveAllKernels();
  return real::cuMemcpyAtoA_v2(dstArray, dstOffset, srcArray, srcOffset, ByteCount);
}

CUresult cuMemcpyAtoA_v2_ptds(CUarray dstArray, size_t dstOffset, CUarray srcArray,
                              size_t srcOffset, size_t ByteCount) {
  LeaveAllKernels();
  return real::cuMemcpyAtoA_v2_ptds(dstArray, dstOffset, srcArray, srcOffset, ByteCount);
}

CUresult cuMemcpyAtoD(CUdeviceptr_v1 dstDevice, CUarray srcArray, unsigned int srcOffset,
                      unsigned int ByteCount) {
  LeaveAllKernels();
  return real::cuMemcpyAtoD(dstDevice, srcArray, srcOffset, ByteCount);
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount) {
  LeaveAllKernels();
  return real::cuMemcpyAtoD_v2(dstDevice, srcArray, srcOffset, ByteCount);
}

CUresult cuMemcpyAtoD_v2_ptds(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset,
                              size_t ByteCount) {
  LeaveAllKernels();
  return real::cuMemcpyAtoD_v2_ptds(dstDevice, srcArray, srcOffset, ByteCount);
}

CUresult cuMemcpyAtoH(void* dstHost, CUarray srcArray, unsigned int srcOffset,
                      unsigned int ByteCount) {
  LeaveAllKernels();
  return real::cuMemcpyAtoH(dstHost, srcArray, srcOffset, ByteCount);
}

CUresult cuMemcpyAtoH_v2(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
  LeaveAllKernels();
  return real::cuMemcpyAtoH_v2(dstHost, srcArray, srcOffset, ByteCount);
}

CUresult cuMemcpyAtoH_v2_ptds(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
  LeaveAllKernels();
  return real::cuMemcpyAtoH_v2_ptds(dstHost, srcArray, srcOffset, ByteCount);
}

CUresult cuMemcpyDtoA(CUarray dstArray, unsigned int dstOffset, CUdeviceptr_v1 srcDevice,
                      unsigned int ByteCount) {
  LeaveAllKernels();
  return real::cuMemcpyDtoA(dstArray, dstOffset, srcDevice, ByteCount);
}

CUresult cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice,
                         size_t ByteCount) {
  LeaveAllKernels();
  return real::cuMemcpyDtoA_v2(dstArray, dstOffset, srcDevice, ByteCount);
}

CUresult cuMemcpyDtoA_v2_ptds(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice,
                              size_t ByteCount) {
  LeaveAllKernels();
  return real::cuMemcpyDtoA_v2_ptds(dstArray, dstOffset, srcDevice, ByteCount);
}

CUresult cuMemcpyDtoD(CUdeviceptr_v1 dstDevice, CUdeviceptr_v1 srcDevice, unsigned int ByteCount) {
  LeaveAllKernels();
  return real::cuMemcpyDtoD(dstDevice, srcDevice, ByteCount);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
  LeaveAllKernels();
  return real::cuMemcpyDtoD_v2(dstDevice, srcDevice, ByteCount);
}

CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
  LeaveAllKernels();
  return real::cuMemcpyDtoD_v2_ptds(dstDevice, srcDevice, ByteCount);
}

CUresult cuMemcpyDtoH(void* dstHost, CUdeviceptr_v1 srcDevice, unsigned int ByteCount) {
  LeaveAllKernels();
  return real::cuMemcpyDtoH(dstHost, srcDevice, ByteCount);
}

CUresult cuMemcpyDtoH_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  LeaveAllKernels();
  return real::cuMemcpyDtoH_v2(dstHost, srcDevice, ByteCount);
}

CUresult cuMemcpyDtoH_v2_ptds(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  LeaveAllKernels();
  return real::cuMemcpyDtoH_v2_ptds(dstHost, srcDevice, ByteCount);
}

CUresult cuMemcpyHtoA(CUarray dstArray, unsigned int dstOffset, const void* srcHost,
                      unsigned int ByteCount) {
  LeaveAllKernels();
  return real::cuMemcpyHtoA(dstArray, dstOffset, srcHost, ByteCount);
}

CUresult cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void* srcHost,
                         size_t ByteCount) {
  LeaveAllKernels();
  return real::cuMemcpyHtoA_v2(dstArray, dstOffset, srcHost, ByteCount);
}

CUresult cuMemcpyHtoA_v2_ptds(CUarray dstArray, size_t dstOffset, const void* srcHost,
                              size_t ByteCount) {
  LeaveAllKernels();
  return real::cuMemcpyHtoA_v2_ptds(dstArray, dstOffset, srcHost, ByteCount);
}

CUresult cuMemcpyHtoD(CUdeviceptr_v1 dstDevice, const void* srcHost, unsigned int ByteCount) {
  LeaveAllKernels();
  return real::cuMemcpyHtoD(dstDevice, srcHost, ByteCount);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  LeaveAllKernels();
  return real::cuMemcpyHtoD_v2(dstDevice, srcHost, ByteCount);
}

CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  LeaveAllKernels();
  return real::cuMemcpyHtoD_v2_ptds(dstDevice, srcHost, ByteCount);
}

CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                      CUcontext srcContext, size_t ByteCount) {
  LeaveAllKernels();
  return real::cuMemcpyPeer(dstDevice, dstContext, srcDevice, srcContext, ByteCount);
}

CUresult cuMemcpyPeer_ptds(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                           CUcontext srcContext, size_t ByteCount) {
  LeaveAllKernels();
  return real::cuMemcpyPeer_ptds(dstDevice, dstContext, srcDevice, srcContext, ByteCount);
}

CUresult cuMemcpy_ptds(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  LeaveAllKernels();
  return real::cuMemcpy_ptds(dst, src, ByteCount);
}

CUresult cuMemsetD16(CUdeviceptr_v1 dstDevice, unsigned short us, unsigned int N) {
  LeaveAllKernels();
  return real::cuMemsetD16(dstDevice, us, N);
}

CUresult cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N) {
  LeaveAllKernels();
  return real::cuMemsetD16_v2(dstDevice, us, N);
}

CUresult cuMemsetD16_v2_ptds(CUdeviceptr dstDevice, unsigned short us, size_t N) {
  LeaveAllKernels();
  return real::cuMemsetD16_v2_ptds(dstDevice, us, N);
}

CUresult cuMemsetD2D16(CUdeviceptr_v1 dstDevice, unsigned int dstPitch, unsigned short us,
                       unsigned int Width, unsigned int Height) {
  LeaveAllKernels();
  return real::cuMemsetD2D16(dstDevice, dstPitch, us, Width, Height);
}

CUresult cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                          size_t Height) {
  LeaveAllKernels();
  return real::cuMemsetD2D16_v2(dstDevice, dstPitch, us, Width, Height);
}

CUresult cuMemsetD2D16_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us,
                               size_t Width, size_t Height) {
  LeaveAllKernels();
  return real::cuMemsetD2D16_v2_ptds(dstDevice, dstPitch, us, Width, Height);
}

CUresult cuMemsetD2D32(CUdeviceptr_v1 dstDevice, unsigned int dstPitch, unsigned int ui,
                       unsigned int Width, unsigned int Height) {
  LeaveAllKernels();
  return real::cuMemsetD2D32(dstDevice, dstPitch, ui, Width, Height);
}

CUresult cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                          size_t Height) {
  LeaveAllKernels();
  return real::cuMemsetD2D32_v2(dstDevice, dstPitch, ui, Width, Height);
}

CUresult cuMemsetD2D32_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui,
                               size_t Width, size_t Height) {
  LeaveAllKernels();
  return real::cuMemsetD2D32_v2_ptds(dstDevice, dstPitch, ui, Width, Height);
}

CUresult cuMemsetD2D8(CUdeviceptr_v1 dstDevice, unsigned int dstPitch, unsigned char uc,
                      unsigned int Width, unsigned int Height) {
  LeaveAllKernels();
  return real::cuMemsetD2D8(dstDevice, dstPitch, uc, Width, Height);
}

CUresult cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                         size_t Height) {
  LeaveAllKernels();
  return real::cuMemsetD2D8_v2(dstDevice, dstPitch, uc, Width, Height);
}

CUresult cuMemsetD2D8_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc,
                              size_t Width, size_t Height) {
  LeaveAllKernels();
  return real::cuMemsetD2D8_v2_ptds(dstDevice, dstPitch, uc, Width, Height);
}

CUresult cuMemsetD32(CUdeviceptr_v1 dstDevice, unsigned int ui, unsigned int N) {
  LeaveAllKernels();
  return real::cuMemsetD32(dstDevice, ui, N);
}

CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
  LeaveAllKernels();
  return real::cuMemsetD32_v2(dstDevice, ui, N);
}

CUresult cuMemsetD32_v2_ptds(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
  LeaveAllKernels();
  return real::cuMemsetD32_v2_ptds(dstDevice, ui, N);
}

CUresult cuMemsetD8(CUdeviceptr_v1 dstDevice, unsigned char uc, unsigned int N) {
  LeaveAllKernels();
  return real::cuMemsetD8(dstDevice, uc, N);
}

CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  LeaveAllKernels();
  return real::cuMemsetD8_v2(dstDevice, uc, N);
}

CUresult cuMemsetD8_v2_ptds(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  LeaveAllKernels();
  return real::cuMemsetD8_v2_ptds(dstDevice, uc, N);
}

}  // extern "C"
