// Reservations of memory whose address tells in which chunk it lies: linear and managed.
#pragma once

#include "hooks/contexts/context_cost.h"
#include "hooks/fence.h"
#include "policy/piece_grant.h"

namespace gpufence {

// Books memory that shares no chunk, in the move that charges it. `bytes`: of its chunks. `kind`,
// `tier`: of the heap.
void HoldWhole(FencedDevice* device, LedgerMove* move, uint64_t context, HeapKind kind,
               uint64_t address, uint64_t bytes, Tier tier = Tier::kDevice);

// A grant that goes back unless it is committed.
class PieceReservation {
 public:
  // `bytes` as asked for. The device is not null. Unified memory comes from the managed heap.
  PieceReservation(FencedDevice* device, uint64_t context, HeapKind kind, uint64_t bytes,
                   Tier tier = Tier::kDevice);

  // The same where a hole that is known serves a small piece; see policy/piece_grant.h.
  PieceReservation(FencedDevice* device, uint64_t context, HeapKind kind, uint64_t bytes,
                   PieceGrant::InKnownHole in_known_hole);

  explicit operator bool() const { return static_cast<bool>(grant_); }

  // Keeps the charge and books it under the address. False: it cannot be kept, and the caller frees
  // the memory again before this object ends.
  bool Commit(uint64_t address);

 private:
  bool Place(uint64_t address);

  FencedDevice* device_;
  uint64_t context_;
  HeapKind kind_;
  Tier tier_;
  uint64_t bytes_;
  LedgerMove move_;  // ends after the grant
  PieceGrant grant_;
};

// The same for what fills chunks of its own: not small.
class WholeReservation {
 public:
  WholeReservation(FencedDevice* device, uint64_t context, HeapKind kind, uint64_t bytes)
      : device_(device),
        context_(context),
        kind_(kind),
        bytes_(RoundUp(bytes, kChunkBytes)),
        reservation_(device, bytes_) {}

  explicit operator bool() const { return static_cast<bool>(reservation_); }

  bool Commit(uint64_t address) {
    HoldWhole(device_, reservation_.move(), context_, kind_, address, bytes_);
    reservation_.Keep();
    if (reservation_.move()->SawEnd()) [[unlikely]]
      EndAddressIfGone(device_, address);
    return true;
  }

 private:
  FencedDevice* device_;
  uint64_t context_;
  HeapKind kind_;
  uint64_t bytes_;
  Reservation reservation_;
};

// A small piece that no known hole serves.
template <typename Use>
[[gnu::noinline]] CUresult WithNewRoom(FencedDevice* device, uint64_t context, HeapKind kind,
                                       uint64_t bytes, Use use) {
  PieceReservation held(device, context, kind, bytes);
  return use(&held);
}

// Calls use(&held) with the reservation that memory of this size needs. Three ways apart: those of
// memory that fills chunks, and of a piece in a known hole, are much the shorter.
template <typename Use>
CUresult WithReservation(FencedDevice* device, uint64_t context, HeapKind kind, uint64_t bytes,
                         Use use) {
  if (IsSmall(bytes)) {
    PieceReservation held(device, context, kind, bytes, PieceGrant::InKnownHole());
    if (held) [[likely]]
      return use(&held);
    return WithNewRoom(device, context, kind, bytes, use);
  }
  WholeReservation held(device, context, kind, bytes);
  return use(&held);
}

// What an address holds, of whatever family: a piece is found in its chunk, all else among the
// holdings. False: nothing that was charged.
bool GetAddress(Fence* fence, uint64_t address, Holding* found);

// The same as its end begins, before the driver's free. It ends by Discharge, or not at all: the
// driver refused.
bool TakeAddress(Fence* fence, uint64_t address, Holding* taken);
[[gnu::cold, gnu::noinline]] void RestoreAddress(Fence* fence, Holding taken);

// The same for a piece in a chunk of device memory alone. Null: none begins there.
[[gnu::noinline]] FencedDevice* LeaveOtherChunk(Fence* fence, uint64_t address, SmallPiece* piece);
inline FencedDevice* LeaveChunk(Fence* fence, uint64_t address, SmallPiece* piece) {
  FencedDevice* first = &fence->devices[0];
  if (first->chunks.chunks() != 0 && first->chunks.Leave(address, piece)) [[likely]]
    return first;
  return LeaveOtherChunk(fence, address, piece);
}

// What such a piece is among the holdings.
Holding HoldingOf(uint32_t device, const SmallPiece& piece, Tier tier = Tier::kDevice);

// Begins the end of any piece of a context that is gone; Discharge ends it. False: none is left.
// `from`: 0 at first.
bool TakePieceOf(Fence* fence, uint64_t context, size_t* from, Holding* taken);

// Gives back what memory in chunks is charged.
void DischargePiece(FencedDevice* device, const Holding& holding);
void DischargePiece(FencedDevice* device, const SmallPiece& piece);

}  // namespace gpufence
