// The calls that wait for work, after which the driver lets freed pool memory go. They cost some
// loads while nothing was freed. What was launched before them is marked, so that it is known when
// it ended, or measured by the wait itself. And the events that programs record for such waits.
#include "base/futex.h"
#include "base/tuning.h"
#include "device/ids.h"
#include "hooks/cores/cores.h"
#include "hooks/cores/streams.h"
#include "hooks/fence.h"
#include "hooks/pools/pool_account.h"
#include "hooks/pools/pools.h"
#include "real.h"

using gpufence::PerThread;

namespace {

constexpr CUstream kLegacyStream = nullptr;
// A marker that was recorded before a wait for an event lies behind that event: until then a stream
// may not be ready because of it alone.
constinit thread_local uint64_t marker_tail_until_ns = 0;

template <typename Call>
CUresult Releasing(Call call) {
  gpufence::Fence* fence = gpufence::DecidedFence();
  const gpufence::PoolRelease release(fence);
  const CUresult rc = call();
  if (rc == CUDA_SUCCESS && fence != nullptr &&
      gpufence::frees_pending.load(std::memory_order_relaxed)) {
    gpufence::GiveBackFreed(fence);
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
CUresult AskingFor(CUstream stream, Call call) {
  CUresult rc = Releasing(call);
  while (rc == CUDA_ERROR_NOT_READY && marker_tail_until_ns != 0) {
    if (gpufence::NowNs() > marker_tail_until_ns) marker_tail_until_ns = 0;
    rc = call();
  }
  if (rc == CUDA_SUCCESS || rc == CUDA_ERROR_NOT_READY) {
    gpufence::TellAnswer(stream, rc == CUDA_SUCCESS);
  }
  return rc;
}

template <typename Call>
CUresult WaitingForAll(Call call) {
  const bool has_marked = gpufence::LeaveAllKernels(/*waits=*/true);
  const CUresult rc = Releasing(call);
  if (has_marked) marker_tail_until_ns = gpufence::NowNs() + gpufence::kTuning.doubt_ns;
  return rc;
}

// Here the program waits for the device anyway. `is_current`: for the thread's own context, whose
// streams can be marked; of another one the watcher tells.
template <typename Call>
CUresult WaitingForContext(bool is_current, Call call) {
  const CUresult rc = is_current ? WaitingForAll(call) : Releasing(call);
  if (is_current && rc == CUDA_SUCCESS && gpufence::HasBlockingStreams()) {
    gpufence::TellAnswer(kLegacyStream, /*ended=*/true);  // it may have had no marker
  }
  gpufence::Fence* fence = gpufence::DecidedFence();
  if (rc == CUDA_SUCCESS && fence != nullptr)
    gpufence::DischargeLateFrees(fence, /*may_wait=*/true);
  return rc;
}

// Events that the program records take no time, and no run ends with one: programs that measure put
// one behind each kernel. But each has its place in a queue, and waits for it.
template <typename Record>
CUresult Recorded(CUstream stream, Record record) {
  gpufence::Cores* cores = gpufence::ActiveCores();
  if (cores == nullptr) return record();
  gpufence::MarkedStream* known = cores->markers.streams.Find(stream);
  if (known != nullptr) known->others_put.fetch_add(1, std::memory_order_relaxed);
  const gpufence::CorePut put(stream);
  return record();
}

}  // namespace

extern "C" {

CUresult cuCtxSynchronize() {
  return WaitingForContext(/*is_current=*/true, real::cuCtxSynchronize);
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  const bool is_current = gpufence::ActiveCores() == nullptr ||
                          gpufence::CurrentContext() == reinterpret_cast<uint64_t>(ctx);
  return WaitingForContext(is_current, [&] { return real::cuCtxSynchronize_v2(ctx); });
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
  return AskingFor(hStream, [&] { return real::cuStreamQuery(hStream); });
}

CUresult cuStreamQuery_ptsz(CUstream hStream) {
  return AskingFor(PerThread(hStream), [&] { return real::cuStreamQuery_ptsz(hStream); });
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
  return Recorded(hStream, [=] { return real::cuEventRecord(hEvent, hStream); });
}

CUresult cuEventRecord_ptsz(CUevent hEvent, CUstream hStream) {
  return Recorded(PerThread(hStream), [=] { return real::cuEventRecord_ptsz(hEvent, hStream); });
}

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  return Recorded(hStream, [=] { return real::cuEventRecordWithFlags(hEvent, hStream, flags); });
}

CUresult cuEventRecordWithFlags_ptsz(CUevent hEvent, CUstream hStream, unsigned int flags) {
  return Recorded(PerThread(hStream),
                  [=] { return real::cuEventRecordWithFlags_ptsz(hEvent, hStream, flags); });
}

}  // extern "C"
