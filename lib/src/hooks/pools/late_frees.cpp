#include "hooks/pools/late_frees.h"

#include "device/capture_mode.h"
#include "hooks/fence.h"
#include "hooks/pools/pool_account.h"
#include "real.h"

namespace gpufence {
namespace {

CUevent EventOf(const Holding& holding) { return reinterpret_cast<CUevent>(holding.key); }

void Finish(Fence* fence, const Holding& holding) {
  fence->late_frees.count.fetch_sub(1, std::memory_order_relaxed);
  Discharge(fence, holding);
}

}  // namespace

void FreeLater(Fence* fence, Holding holding, CUstream stream, RecordCall record) {
  const CaptureRelaxed relaxed;
  LateFrees* late = &fence->late_frees;
  CUevent event = nullptr;
  if (real::cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
    return Discharge(fence, holding);
  }
  holding.key = reinterpret_cast<uint64_t>(event);
  late->count.fetch_add(1, std::memory_order_relaxed);
  if (record(event, stream) == CUDA_SUCCESS && late->waiting.Put(holding)) {
    frees_unsettled.store(true, std::memory_order_release);
    return;
  }
  real::cuEventDestroy_v2(event);
  Finish(fence, holding);
}

void SettleLateFrees(Fence* fence, bool may_wait) {
  LateFrees* late = &fence->late_frees;
  if (late->count.load(std::memory_order_relaxed) == 0) return;
  const CaptureRelaxed relaxed;
  // All of them come out first: nothing is locked while the driver is asked.
  Holding found[32];
  size_t count = 0;
  late->waiting.TakeWhere(
      [&](const Holding& holding) {
        return count < 32 && (may_wait || holding.family != Family::kUnified);
      },
      [&](const Holding& holding) { found[count++] = holding; });
  for (size_t i = 0; i < count; ++i) {
    const CUevent event = EventOf(found[i]);
    const CUresult reached = real::cuEventQuery(event);
    if (reached == CUDA_ERROR_NOT_READY && late->waiting.Put(found[i])) continue;
    LedgerMove move;
    move.BeginCounted(&fence->devices[found[i].device].moves);
    // The driver lets go when somebody waits, not when the stream gets there.
    if (reached == CUDA_SUCCESS) real::cuEventSynchronize(event);
    real::cuEventDestroy_v2(event);
    if (found[i].family == Family::kUnified) real::cuMemFree_v2(found[i].owner);
    Finish(fence, found[i]);
  }
  if (late->count.load(std::memory_order_relaxed) != 0) {
    frees_unsettled.store(true, std::memory_order_release);
  }
}

void ForgetLateFrees(Fence* fence, uint64_t context) {
  if (fence->late_frees.count.load(std::memory_order_relaxed) == 0) return;
  fence->late_frees.waiting.TakeWhere(
      [&](const Holding& holding) { return holding.context == context; },
      [&](const Holding& holding) { Finish(fence, holding); });
}

}  // namespace gpufence
