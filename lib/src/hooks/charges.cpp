#include "hooks/charges.h"

#include "base/log.h"
#include "hooks/fence.h"
#include "hooks/memory/exported.h"
#include "hooks/pools/pools.h"
#include "policy/arrays.h"

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
  AddHolding(fence, holding);
  Keep();
}

// The table grows, or something ends whose number this is now.
bool AddHoldingSlowly(Fence* fence, Holding holding) {
  Holding replaced;
  if (!fence->holdings.Put(holding, &replaced)) [[unlikely]] {
    GPUFENCE_LOG(
        kError,
        "the host has no memory left to record an allocation of %llu bytes: it stays charged until "
        "the process ends. Free host memory",
        static_cast<unsigned long long>(holding.bytes));
    return false;
  }
  if (replaced.kind != HoldingKind::kNone) [[unlikely]]
    Discharge(fence, replaced);
  return true;
}

// ---- memory in chunks ----

namespace {

constexpr uint64_t ContextOf(uint64_t heap) { return heap / 4; }
constexpr HeapKind KindOf(uint64_t heap) { return static_cast<HeapKind>(heap % 4); }

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

// Where no chunk is shared only what is said of managed memory makes a difference.
Family FamilyOfWhole(HeapKind kind, Tier tier) {
  const Family family = FamilyOf(kind, tier);
  return family == Family::kLinear ? Family::kPlain : family;
}

// Charges of one tier never pay for chunks of the other.
ChunkTable* ChunksOf(FencedDevice* device, Tier tier) {
  return tier == Tier::kUnified ? &device->unified_chunks : &device->chunks;
}

SmallPiece PieceOf(const Holding& holding) {
  return {HeapOf(holding.context, KindOf(holding)), holding.owner, holding.bytes};
}

Holding HoldingOf(uint32_t device, const SmallPiece& piece, Tier tier) {
  return {.key = piece.address,
          .bytes = piece.bytes,
          .context = ContextOf(piece.heap),
          .owner = piece.address,
          .device = static_cast<uint16_t>(device),
          .kind = HoldingKind::kAddress,
          .family = FamilyOf(KindOf(piece.heap), tier)};
}

bool SharesChunk(const Holding& holding) {
  return (holding.family == Family::kLinear || holding.family == Family::kManaged ||
          holding.family == Family::kUnified) &&
         IsSmall(holding.bytes);
}

// Calls find(chunks, &piece) for every table of pieces, until it finds one.
template <typename Find>
bool FindPiece(Fence* fence, Holding* found, Find find) {
  SmallPiece piece;
  for (uint32_t i = 0; i < fence->device_count; ++i) {
    FencedDevice* device = &fence->devices[i];
    Tier tier = Tier::kDevice;
    if (!find(&device->chunks, &piece)) [[unlikely]] {
      if (!find(&device->unified_chunks, &piece)) continue;
      tier = Tier::kUnified;
    }
    *found = HoldingOf(i, piece, tier);
    return true;
  }
  return false;
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

void AddWholeHolding(FencedDevice* device, LedgerMove* move, uint64_t context, HeapKind kind,
                     uint64_t address, uint64_t bytes, Tier tier) {
  const Family family = FamilyOfWhole(kind, tier);
  Fence* fence = the_fence.load(std::memory_order_relaxed);
  // First of all, since it ends what was there before.
  AddHolding(fence, {.key = address,
                     .bytes = bytes,
                     .context = context,
                     .owner = address,  // which a late free changes
                     .device = device->account.device(),
                     .kind = HoldingKind::kAddress,
                     .family = family});
  if (family == Family::kManaged) move->AddManaged(bytes);
}

bool PieceReservation::Place(uint64_t address) {
  if (!IsSmall(bytes_)) {
    AddWholeHolding(device_, &move_, context_, kind_, address, RoundUp(bytes_, kChunkBytes), tier_);
    return grant_.Placed(address);
  }
  const Family family = FamilyOf(kind_, tier_);
  const uint64_t units_bytes = RoundUp(bytes_, kSmallStep);  // as its end will find it
  if (family == Family::kManaged) move_.AddManaged(units_bytes);
  if (grant_.Placed(address)) [[likely]]
    return true;
  if (family == Family::kManaged) move_.AddManaged(0 - units_bytes);
  return false;
}

bool PieceReservation::Commit(uint64_t address) {
  if (!Place(address)) [[unlikely]]
    return false;
  if (move_.SawEnd()) [[unlikely]]
    EndAddressIfGone(device_, address);
  return true;
}

bool GetAddress(Fence* fence, uint64_t address, Holding* found) {
  return fence->holdings.Get(HoldingKind::kAddress, address, found) ||
         FindPiece(fence, found, [&](ChunkTable* chunks, SmallPiece* piece) {
           return chunks->chunks() != 0 && chunks->Find(address, piece);
         });
}

[[gnu::flatten]] bool TakeAddress(Fence* fence, uint64_t address, Holding* taken) {
  const auto leave = [&](ChunkTable* chunks, SmallPiece* piece) {
    return chunks->chunks() != 0 && chunks->Leave(address, piece);
  };
  // What fills chunks begins with one: the likely table first.
  if (address % kChunkBytes != 0 && FindPiece(fence, taken, leave)) return true;
  return fence->holdings.Take(HoldingKind::kAddress, address, taken) ||
         (address % kChunkBytes == 0 && FindPiece(fence, taken, leave));
}

void RestoreAddress(Fence* fence, Holding taken) {
  if (!SharesChunk(taken)) {
    AddHolding(fence, taken);
    return;
  }
  FencedDevice* device = &fence->devices[taken.device];
  const Tier tier = TierOf(taken);
  KeepSmallPiece(&device->account, ChunksOf(device, tier), PieceOf(taken), tier);
}

// Looks under the lock, whatever number of chunks is told without: see Moves::ContextEnded.
bool TakePieceOf(Fence* fence, uint64_t context, size_t* from, Holding* taken) {
  return FindPiece(fence, taken, [&](ChunkTable* chunks, SmallPiece* piece) {
    return chunks->LeaveAny(HeapOf(context, HeapKind::kLinear), from, piece) ||
           chunks->LeaveAny(HeapOf(context, HeapKind::kManaged), from, piece);
  });
}

// ---- the end of memory ----

namespace {

// Gives back what memory in chunks is charged.
void DischargePiece(FencedDevice* device, const Holding& holding) {
  const Tier tier = TierOf(holding);
  if (!IsSmall(holding.bytes)) return device->account.Release(holding.bytes, tier);
  EndPiece(&device->account, ChunksOf(device, tier), PieceOf(holding), tier);
}

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
