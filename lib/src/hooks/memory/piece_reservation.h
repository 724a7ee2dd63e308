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

// Calls use(&held) with the reservation that memory of this size needs. Two ways apart: the one of
// memory that fills chunks is much the shorter.
template <typename Use>
CUresult WithReservation(FencedDevice* device, uint64_t context, HeapKind kind, uint64_t bytes,
                         Use use) {
  if (IsSmall(bytes)) {
    PieceReservation held(device, context, kind, bytes);
    return use(&held);
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

// Begins the end of any piece of a context that is gone; Discharge ends it. False: none is left.
// `from`: 0 at first.
bool TakePieceOf(Fence* fence, uint64_t context, size_t* from, Holding* taken);

// Gives back what memory in chunks is charged.
void DischargePiece(FencedDevice* device, const Holding& holding);

}  // namespace gpufence
