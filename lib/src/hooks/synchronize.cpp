// The calls that wait for work, after which the driver lets freed pool memory go. They cost some
// loads while nothing was freed. What was launched before them is marked, so that it is known when
// it ended, or measured by the wait itself.
#include "hooks/cores.h"
#include "hooks/fence.h"
#include "hooks/pool_account.h"
#include "hooks/pool_release.h"
#include "hooks/streams.h"
#include "real.h"

using gpufence::PerThread;

namespace {

template <typename Call>
CUresult Releasing(Call call) {
  gpufence::Fence* fence = gpufence::DecidedFence();
  const gpufence::PoolRelease release(fence);
  const CUresult rc = call();
  if (rc == CUDA_SUCCESS && fence != nullptr &&
      gpufence::frees_unsettled.load(std::memory_order_relaxed)) {
    gpufence::SettleFreed(fence);
  }
  return rc;
}

template <typename Call>
CUresult WaitingFor(CUstream stream, Call call) {
  gpufence::CoreWait wait(stream);
  const CUresult rc = Releasing(call);
  wait.Settle(rc == CUDA_SUCCESS);
  return rc;
}

template <typename Call>
CUresult WaitingForAll(Call call) {
  gpufence::LeaveAllKernels(/*waits=*/true);
  return Releasing(call);
}

// Here the program waits for the device anyway.
template <typename Call>
CUresult WaitingForContext(Call call) {
  const CUresult rc = WaitingForAll(call);
  gpufence::Fence* fence = gpufence::DecidedFence();
  if (rc == CUDA_SUCCESS && fence != nullptr) gpufence::SettleLateFrees(fence, /*may_wait=*/true);
  return rc;
}

}  // namespace

extern "C" {

CUresult cuCtxSynchronize() { return WaitingForContext(real::cuCtxSynchronize); }

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  return WaitingForContext([&] { return real::cuCtxSynchronize_v2(ctx); });
}

CUresult cuEventSynchronize(CUevent hEvent) {
  return WaitingForAll([&] { return real::cuEventSynchronize(hEvent); });
}

CUresult cuStreamSynchronize(CUstream hStream) {
  return WaitingFor(hStream, [&] { return real::cuStreamSynchronize(hStream); });
}

CUresult cuStreamSynchronize_ptsz(CUstream hStream) {
  return WaitingFor(PerThread(hStream), [&] { return real::cuStreamSynchronize_ptsz(hStream); });
}

// Releases nothing by itself, but a program that polls instead of waiting may have done so since
// the last look.
CUresult cuStreamQuery(CUstream hStream) {
  return WaitingFor(hStream, [&] { return real::cuStreamQuery(hStream); });
}

CUresult cuStreamQuery_ptsz(CUstream hStream) {
  return WaitingFor(PerThread(hStream), [&] { return real::cuStreamQuery_ptsz(hStream); });
}

}  // extern "C"
