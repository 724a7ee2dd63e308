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

  // Keeps the charge and books it under `holding.key`, the address; fills the rest. False:
  // it cannot be kept, and the caller frees the memory again before this object ends.
  bool Commit(Holding holding);

 private:
  FencedDevice* device_;
  uint64_t context_;
  HeapKind kind_;
  Tier tier_;
  uint64_t bytes_;
  LedgerMove move_;  // ends after the grant
  PieceGrant grant_;
};

// The two halves of a piece's end, around the driver's free.
void LeavePiece(FencedDevice* device, Holding* holding);
void KeepPiece(FencedDevice* device, Holding* holding);  // the driver refused
void DischargePiece(FencedDevice* device, const Holding& holding);

}  // namespace gpufence
