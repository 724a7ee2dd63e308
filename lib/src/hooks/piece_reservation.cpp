#include "hooks/piece_reservation.h"

namespace gpufence {
namespace {

// In a piece's `count`: the first half of its end is done.
constexpr uint32_t kLeaving = 1;

HeapKind KindOf(const Holding& holding) {
  return holding.family == Family::kLinear ? HeapKind::kLinear : HeapKind::kManaged;
}

Tier TierOf(const Holding& holding) {
  return holding.family == Family::kUnified ? Tier::kUnified : Tier::kDevice;
}

Family FamilyOf(HeapKind kind, Tier tier) {
  if (tier == Tier::kUnified) return Family::kUnified;
  return kind == HeapKind::kManaged ? Family::kManaged : Family::kLinear;
}

// Charges of one tier never pay for chunks of the other.
ChunkTable* ChunksOf(FencedDevice* device, Tier tier) {
  return tier == Tier::kUnified ? &device->unified_chunks : &device->chunks;
}

SmallPiece PieceOf(const Holding& holding) {
  return {HeapOf(holding.context, KindOf(holding)), holding.owner, holding.bytes};
}

bool SharesChunk(const Holding& holding) {
  return (holding.family == Family::kLinear || holding.family == Family::kManaged ||
          holding.family == Family::kUnified) &&
         IsSmall(holding.bytes);
}

}  // namespace

PieceReservation::PieceReservation(FencedDevice* device, uint64_t context, HeapKind kind,
                                   uint64_t bytes, Tier tier)
    : device_(device),
      context_(context),
      kind_(kind),
      tier_(tier),
      bytes_(bytes),
      move_(&device->moves),
      grant_(&device->account, ChunksOf(device, tier), context, kind, bytes, tier) {
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
  holding.family = FamilyOf(kind_, tier_);
  holding.owner = holding.key;  // which a late free changes
  // First of all, since it ends what was there before.
  Hold(fence, holding);
  if (holding.family == Family::kManaged) device_->managed_bytes.fetch_add(bytes_);
  if (grant_.Placed(holding.key)) return true;
  fence->holdings.Take(holding.kind, holding.key, &holding);
  if (holding.family == Family::kManaged) device_->managed_bytes.fetch_sub(bytes_);
  return false;
}

void LeavePiece(FencedDevice* device, Holding* holding) {
  if (!SharesChunk(*holding) || holding->count == kLeaving) return;
  ChunksOf(device, TierOf(*holding))->Leave(PieceOf(*holding));
  holding->count = kLeaving;
}

void KeepPiece(FencedDevice* device, Holding* holding) {
  if (holding->count != kLeaving || !SharesChunk(*holding)) return;
  const Tier tier = TierOf(*holding);
  KeepSmallPiece(&device->account, ChunksOf(device, tier), PieceOf(*holding), tier);
  holding->count = 0;
}

void DischargePiece(FencedDevice* device, const Holding& holding) {
  Holding ending = holding;
  LeavePiece(device, &ending);
  const Tier tier = TierOf(holding);
  EndPiece(&device->account, ChunksOf(device, tier), PieceOf(ending), tier);
}

}  // namespace gpufence
