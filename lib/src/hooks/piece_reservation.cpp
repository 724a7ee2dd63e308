#include "hooks/piece_reservation.h"

namespace gpufence {
namespace {

// In a piece's `count`: the first half of its end is done.
constexpr uint32_t kLeaving = 1;

HeapKind KindOf(const Holding& holding) {
  return holding.family == Family::kManaged ? HeapKind::kManaged : HeapKind::kLinear;
}

SmallPiece PieceOf(const Holding& holding) {
  return {HeapOf(holding.context, KindOf(holding)), holding.key, holding.bytes};
}

bool SharesChunk(const Holding& holding) {
  return (holding.family == Family::kLinear || holding.family == Family::kManaged) &&
         IsSmall(holding.bytes);
}

}  // namespace

PieceReservation::PieceReservation(FencedDevice* device, uint64_t context, HeapKind kind,
                                   uint64_t bytes)
    : device_(device),
      context_(context),
      kind_(kind),
      bytes_(bytes),
      move_(&device->moves),
      grant_(&device->account, &device->chunks, context, kind, bytes) {
  if (grant_) {
    move_.Granted();
  } else {
    move_.End();
  }
}

bool PieceReservation::Commit(Holding holding) {
  Fence* fence = ActiveFence();
  holding.context = context_;
  holding.bytes = bytes_;
  holding.device = static_cast<uint16_t>(device_ - fence->devices);
  holding.family = kind_ == HeapKind::kManaged ? Family::kManaged : Family::kLinear;
  // First of all, since it ends what was there before.
  Hold(fence, holding);
  if (kind_ == HeapKind::kManaged) device_->managed_bytes.fetch_add(bytes_);
  if (grant_.Placed(holding.key)) return true;
  fence->holdings.Take(holding.kind, holding.key, &holding);
  if (kind_ == HeapKind::kManaged) device_->managed_bytes.fetch_sub(bytes_);
  return false;
}

void LeavePiece(FencedDevice* device, Holding* holding) {
  if (!SharesChunk(*holding) || holding->count == kLeaving) return;
  device->chunks.Leave(PieceOf(*holding));
  holding->count = kLeaving;
}

void KeepPiece(FencedDevice* device, Holding* holding) {
  if (holding->count != kLeaving || !SharesChunk(*holding)) return;
  KeepSmallPiece(&device->account, &device->chunks, PieceOf(*holding));
  holding->count = 0;
}

void DischargePiece(FencedDevice* device, const Holding& holding) {
  Holding ending = holding;
  LeavePiece(device, &ending);
  EndPiece(&device->account, &device->chunks, PieceOf(ending));
}

}  // namespace gpufence
