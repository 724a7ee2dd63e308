// Reservations of memory whose address tells in which chunk it lies: linear and managed.
#pragma once

#include "hooks/fence.h"
#include "policy/piece_grant.h"

namespace gpufence {

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
  FencedDevice* device_;
  uint64_t context_;
  HeapKind kind_;
  Tier tier_;
  uint64_t bytes_;
  LedgerMove move_;  // ends after the grant
  PieceGrant grant_;
};

// What an address holds, of whatever family: a piece is found in its chunk, all else among the
// holdings. False: nothing that was charged.
bool GetAddress(Fence* fence, uint64_t address, Holding* found);

// The same as its end begins, before the driver's free. It ends by Discharge, or not at all: the
// driver refused.
bool TakeAddress(Fence* fence, uint64_t address, Holding* taken);
[[gnu::noinline]] void RestoreAddress(Fence* fence, const Holding& taken);

// Begins the end of any piece of a context that is gone; Discharge ends it. False: none is left.
// `from`: 0 at first.
bool TakePieceOf(Fence* fence, uint64_t context, size_t* from, Holding* taken);

// Gives back what memory in chunks is charged.
void DischargePiece(FencedDevice* device, const Holding& holding);

}  // namespace gpufence
