// The calls that wait for work, after which the driver lets freed pool memory go. They cost one
// load while nothing was freed. Before them what was launched is marked, so that it is known when
// it ended.
#include "hooks/cores.h"
#include "hooks/fence.h"
#include "hooks/pool_account.h"
#include "hooks/streams.h"
#include "real.h"

namespace {

template <typename Call>
CUresult WaitingFor(CUstream stream, Call call) {
  gpufence::LeaveKernels(stream);
  return call();
}

template <typename Call>
CUresult WaitingForAll(Call call) {
  gpufence::LeaveAllKernels();
  return call();
}

CUresult Synchronized(CUresult rc) {
  if (rc != CUDA_SUCCESS || !gpufence::frees_unsettled.load(std::memory_order_relaxed)) return rc;
  gpufence::Fence* fence = gpufence::ActiveFence();
  if (fence != nullptr) gpufence::SettleFreed(fence);
  return rc;
}

}  // namespace

extern "C" {

CUresult cuCtxSynchronize() { return Synchronized(WaitingForAll(real::cuCtxSynchronize)); }

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  return Synchronized(WaitingForAll([&] { return real::cuCtxSynchronize_v2(ctx); }));
}

CUresult cuEventSynchronize(CUevent hEvent) {
  return Synchronized(WaitingForAll([&] { return real::cuEventSynchronize(hEvent); }));
}

CUresult cuStreamSynchronize(CUstream hStream) {
  return Synchronized(WaitingFor(hStream, [&] { return real::cuStreamSynchronize(hStream); }));
}

CUresult cuStreamSynchronize_ptsz(CUstream hStream) {
  return Synchronized(WaitingFor(gpufence::PerThread(hStream),
                                 [&] { return real::cuStreamSynchronize_ptsz(hStream); }));
}

// Releases nothing by itself, but a program that polls instead of waiting may have done so since
// the last look.
CUresult cuStreamQuery(CUstream hStream) {
  return Synchronized(WaitingFor(hStream, [&] { return real::cuStreamQuery(hStream); }));
}

CUresult cuStreamQuery_ptsz(CUstream hStream) {
  return Synchronized(
      WaitingFor(gpufence::PerThread(hStream), [&] { return real::cuStreamQuery_ptsz(hStream); }));
}

}  // extern "C"
