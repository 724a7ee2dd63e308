// What requests charge before the driver's call and keep behind it: reservations, and the end of
// what was held.
#include "base/log.h"
#include "hooks/fence.h"
#include "hooks/memory/piece_reservation.h"
#include "hooks/pools/pool_release.h"
#include "hooks/sharing/shared_memory.h"
#include "policy/array_grant.h"

namespace gpufence {

Reservation::Reservation(FencedDevice* device, uint64_t bytes, Tier tier)
    : device_(device), bytes_(bytes), tier_(tier), granted_(true) {
  if (device == nullptr) return;
  move_.Begin(&device->moves);
  granted_ = device->account.Reserve(bytes, tier);
  if (!granted_) {
    move_.End();
    return;
  }
  move_.Granted();
  if (this_thread.reservation != nullptr) return;
  this_thread.reservation = this;
  this_thread.device = device;
  this_thread.bytes = bytes;
  this_thread.tier = static_cast<uint32_t>(tier);
  noted_ = true;
}

// False: it was taken for abandoned, and given back.
bool Reservation::Forget() {
  if (!noted_) return true;
  noted_ = false;
  if (this_thread.reservation != this) return false;
  this_thread.reservation = nullptr;
  return true;
}

Reservation::~Reservation() {
  if (device_ == nullptr || !granted_ || keep_) return;
  if (Forget()) device_->account.Release(bytes_, tier_);
}

void Reservation::Keep() {
  keep_ = true;
  if (device_ != nullptr && !Forget()) device_->account.Book(bytes_, tier_);
}

void Reservation::Commit(Holding holding) {
  if (device_ == nullptr) return;
  Fence* fence = the_fence.load(std::memory_order_relaxed);
  holding.device = device_->account.device();
  holding.bytes = bytes_;
  Hold(fence, holding);
  Keep();
}

namespace {

// An address is closed as often as it was opened; a handle is one import, a mark is none.
uint64_t ImportsOf(const Holding& holding) {
  if (holding.kind == HoldingKind::kAddress) return holding.count;
  return holding.kind == HoldingKind::kPhysical ? 1 : 0;
}

// On the device, and alone in them.
bool FillsChunks(const Holding& holding) {
  return holding.family == Family::kPlain ||
         (holding.family == Family::kManaged && !IsSmall(holding.bytes));
}

}  // namespace

// The table grows, or something ends whose number this is now.
bool HoldAgain(Fence* fence, Holding holding) {
  Holding replaced;
  if (!fence->holdings.Put(holding, &replaced)) [[unlikely]] {
    GPUFENCE_LOG(kError, "no memory to remember an allocation of %llu bytes; it stays charged",
                 static_cast<unsigned long long>(holding.bytes));
    return false;
  }
  if (replaced.kind != HoldingKind::kNone) [[unlikely]]
    Discharge(fence, replaced);
  return true;
}

// What fills its chunks comes first: the most of what is freed, and the shortest way.
void Discharge(Fence* fence, const Holding& holding) {
  FencedDevice* device = &fence->devices[holding.device];
  if (holding.family != Family::kStreamOrdered && !EndExported(fence, holding)) return;
  if (holding.family == Family::kManaged) device->moves.TakeManaged(holding.bytes);
  if (FillsChunks(holding)) [[likely]]
    return device->account.Release(holding.bytes);
  if (holding.family == Family::kLinear) [[likely]]
    return DischargePiece(device, holding);
  switch (holding.family) {
    case Family::kHosted:
      return device->account.Release(holding.bytes, Tier::kUnified);
    case Family::kLinear:
    case Family::kManaged:
    case Family::kUnified:
      return DischargePiece(device, holding);
    case Family::kSmallArray:
      return EndArray(&device->account, &device->array_places,
                      ArrayHeapOf(holding.context, holding.count), holding.owner, holding.bytes);
    case Family::kStreamOrdered:
      if (fence->any_exported.load(std::memory_order_relaxed)) [[unlikely]]
        BeginFreeOfExported(fence, holding);
      return ReturnToPool(reinterpret_cast<PoolAccount*>(holding.owner), holding.bytes);
    case Family::kImport:
      return EndImports(device, ImportsOf(holding));
    case Family::kPlain:
    case Family::kGraph:
      return;  // charged elsewhere
  }
}

}  // namespace gpufence
