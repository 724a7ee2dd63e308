// The calls that wait for work, after which the driver lets freed pool memory go. They cost one load
// while nothing was freed.
#include "hooks/fence.h"
#include "hooks/pool_account.h"
#include "real.h"

namespace {

CUresult Synchronized(CUresult rc) {
  if (rc != CUDA_SUCCESS || !gpufence::frees_unsettled.load(std::memory_order_relaxed)) return rc;
  gpufence::Fence* fence = gpufence::ActiveFence();
  if (fence != nullptr) gpufence::SettleFreed(fence);
  return rc;
}

}  // namespace

extern "C" {

CUresult cuCtxSynchronize() { return Synchronized(real::cuCtxSynchronize()); }

CUresult cuCtxSynchronize_v2(CUcontext ctx) { return Synchronized(real::cuCtxSynchronize_v2(ctx)); }

CUresult cuEventSynchronize(CUevent hEvent) {
  return Synchronized(real::cuEventSynchronize(hEvent));
}

CUresult cuStreamSynchronize(CUstream hStream) {
  return Synchronized(real::cuStreamSynchronize(hStream));
}

CUresult cuStreamSynchronize_ptsz(CUstream hStream) {
  return Synchronized(real::cuStreamSynchronize_ptsz(hStream));
}

// Releases nothing by itself, but a program that polls instead of waiting may have done so since the
// last look.
CUresult cuStreamQuery(CUstream hStream) { return Synchronized(real::cuStreamQuery(hStream)); }

CUresult cuStreamQuery_ptsz(CUstream hStream) {
  return Synchronized(real::cuStreamQuery_ptsz(hStream));
}

}  // extern "C"
