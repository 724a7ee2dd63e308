#include "hooks/pools/late_frees.h"

#include "base/forked.h"
#include "base/futex.h"
#include "device/context_scope.h"
#include "hooks/charges.h"
#include "hooks/contexts/overhead.h"
#include "hooks/fence.h"
#include "hooks/pools/pool_account.h"
#include "policy/charge.h"
#include "real.h"

namespace gpufence {
namespace {

constexpr size_t kSlabBytes = 4096;

// Looked at by a call that asks for no memory.
constexpr uint32_t kFew = 32;

// A record to be filled; null when no memory could be had.
LateFree* NewRecord(LateFrees* late) {
  {
    SpinGuard guard(&late->lock);
    LateFree* record = late->unused;
    if (record != nullptr) {
      late->unused = record->next;
      return record;
    }
  }
  auto* slab = static_cast<LateFree*>(MapWipedOnFork(kSlabBytes));
  if (slab == nullptr) return nullptr;
  SpinGuard guard(&late->lock);
  for (size_t i = 1; i < kSlabBytes / sizeof(LateFree); ++i) {
    slab[i].next = late->unused;
    late->unused = &slab[i];
  }
  return &slab[0];
}

void DropRecord(LateFrees* late, LateFree* record) {
  SpinGuard guard(&late->lock);
  record->next = late->unused;
  late->unused = record;
}

void Append(LateFrees* late, LateFree* record) {
  SpinGuard guard(&late->lock);
  record->next = nullptr;
  (late->last != nullptr ? late->last->next : late->first) = record;
  late->last = record;
}

// The oldest record for which matches(record) is true; null when there is none.
template <typename Matches>
LateFree* Take(LateFrees* late, Matches matches) {
  SpinGuard guard(&late->lock);
  LateFree* before = nullptr;
  for (LateFree* record = late->first; record != nullptr; before = record, record = record->next) {
    if (!matches(*record)) continue;
    (before != nullptr ? before->next : late->first) = record->next;
    if (late->last == record) late->last = before;
    return record;
  }
  return nullptr;
}

// Nobody can tell when the driver lets go: the charge becomes overhead, which the next reading sets
// right. At most, where pieces share chunks.
void BecomeOverhead(Fence* fence, const Holding& holding) {
  FencedDevice* device = &fence->devices[holding.device];
  if (holding.family != Family::kUnified) {
    const uint64_t bytes = RoundUp(holding.bytes, kChunkBytes);
    device->account.LooseOverhead(0, static_cast<int64_t>(bytes));
  }
  Discharge(fence, holding);
  OverheadChanged(device);
}

// The record is over, and its event with it.
void End(Fence* fence, LateFree* record) {
  if (record->event != nullptr) real::cuEventDestroy_v2(record->event);
  LateFrees* late = &fence->late_frees;
  const bool is_ours = record->is_ours;
  DropRecord(late, record);
  if (!is_ours) late->of_driver.fetch_sub(1, std::memory_order_release);
  late->count.fetch_sub(1, std::memory_order_release);
}

// Whether the stream got to the free; an error where nobody can tell. `waits`: until it does.
CUresult Reach(const LateFree& record, bool waits) {
  if (record.event == nullptr) return CUDA_SUCCESS;  // its stream is gone
  const CUresult reached = waits ? CUDA_SUCCESS : real::cuEventQuery(record.event);
  // The driver lets go when somebody waits, not when the stream gets there.
  return reached == CUDA_SUCCESS ? real::cuEventSynchronize(record.event) : reached;
}

// False: the stream did not get there yet. `waits`: until it does.
bool DischargeIfReached(Fence* fence, LateFree* record, bool waits) {
  const Holding holding = record->holding;
  LedgerMove move;
  move.BeginCounted(&fence->devices[holding.device].moves);
  const ContextScope scope(record->context);
  CUresult gone = Reach(*record, waits);
  if (gone == CUDA_ERROR_NOT_READY) return false;
  if (record->is_ours) {
    if (gone == CUDA_SUCCESS) gone = real::cuMemFree_v2(holding.owner);
    if (gone != CUDA_SUCCESS) return false;  // it is there, and charged, until a later call
  }
  if (gone == CUDA_SUCCESS) {
    Discharge(fence, holding);
  } else {
    BecomeOverhead(fence, holding);
  }
  End(fence, record);
  return true;
}

// Each of those that match and are there now, once: what stays goes to the end of the list.
template <typename Matches>
void DischargeWhere(Fence* fence, uint32_t most, bool waits, Matches matches) {
  LateFrees* late = &fence->late_frees;
  const Uncancelled during;
  const CaptureRelaxed relaxed;
  LateFree* first_kept = nullptr;
  for (uint32_t i = 0; i < most; ++i) {
    LateFree* record = Take(late, matches);
    if (record == nullptr) return;
    const bool is_seen = record == first_kept;
    if (!is_seen && DischargeIfReached(fence, record, waits)) continue;
    Append(late, record);
    if (is_seen) return;
    if (first_kept == nullptr) first_kept = record;
  }
}

}  // namespace

bool FreeLater(Fence* fence, const Holding& holding, const FreeingStream& stream, bool is_ours) {
  const Uncancelled during;
  const CaptureRelaxed relaxed;
  LateFrees* late = &fence->late_frees;
  LateFree* record = NewRecord(late);
  if (record == nullptr) {
    if (!is_ours) BecomeOverhead(fence, holding);
    return !is_ours;
  }
  late->count.fetch_add(1, std::memory_order_relaxed);
  if (!is_ours) late->of_driver.fetch_add(1, std::memory_order_relaxed);
  record->holding = holding;
  record->event = nullptr;
  record->is_ours = is_ours;
  if (stream.context(stream.handle, &record->context) == CUDA_SUCCESS) {
    const ContextScope scope(record->context);
    if (real::cuEventCreate(&record->event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
        stream.record(record->event, stream.handle) == CUDA_SUCCESS) {
      Append(late, record);
      frees_pending.store(true, std::memory_order_release);
      return true;
    }
  }
  if (!is_ours) BecomeOverhead(fence, holding);
  End(fence, record);
  return !is_ours;
}

void DischargeLateFrees(Fence* fence, bool may_wait) {
  LateFrees* late = &fence->late_frees;
  const uint32_t count = late->count.load(std::memory_order_relaxed);
  if (count == 0) return;
  DischargeWhere(fence, may_wait ? count : kFew, /*waits=*/false,
                 [=](const LateFree& record) { return may_wait || !record.is_ours; });
  if (late->count.load(std::memory_order_relaxed) != 0) {
    frees_pending.store(true, std::memory_order_release);
  }
}

void DischargeBeforeEnd(Fence* fence, CUcontext context, bool waits) {
  const uint32_t count = fence->late_frees.count.load(std::memory_order_relaxed);
  if (count == 0) return;
  DischargeWhere(fence, count, waits,
                 [=](const LateFree& record) { return record.context == context; });
}

void ForgetLateFrees(Fence* fence, CUcontext context) {
  LateFrees* late = &fence->late_frees;
  if (late->count.load(std::memory_order_relaxed) == 0) return;
  const Uncancelled during;
  const auto owner = reinterpret_cast<uint64_t>(context);
  while (LateFree* record = Take(late, [=](const LateFree& each) {
           return each.holding.context == owner || each.context == context;
         })) {
    if (record->context == context) record->event = nullptr;  // it went as well
    if (record->holding.context == owner) {
      Discharge(fence, record->holding);
    } else if (record->is_ours) {
      record->context = reinterpret_cast<CUcontext>(record->holding.context);
      Append(late, record);
      continue;
    } else {
      BecomeOverhead(fence, record->holding);
    }
    End(fence, record);
  }
}

}  // namespace gpufence
