// One free of an address: the holding leaves the table before the driver's call, since the address
// may be somebody else's the moment it returns; its bytes leave the ledger after it succeeded.
#pragma once

#include "hooks/fence.h"
#include "hooks/memory/piece_reservation.h"
#include "hooks/pools/pool_exports.h"
#include "hooks/sharing/shared_memory.h"

namespace gpufence {

// A pool's piece is about to be freed, and the driver refused to free: see
// hooks/pools/pool_exports.h.
inline bool BeginFreeOfPool(Fence* fence, const Holding& piece) {
  if (!fence->any_exported.load(std::memory_order_relaxed)) [[likely]]
    return false;
  return BeginFreeOfExported(fence, CopyOf(piece));
}
inline void Restore(Fence* fence, const Holding& taken, bool was_exported) {
  RestoreAddress(fence, CopyOf(taken));
  if (was_exported) Unfreed(fence, CopyOf(taken));
}

class Freed {
 public:
  // Takes the holding out, if there is one. A null fence, or memory nobody charged, does nothing.
  Freed(Fence* fence, uint64_t address) : fence_(fence) {
    if (fence == nullptr) return;
    found_ = TakeAddress(fence, address, &holding_);
    if (!found_) [[unlikely]]
      return;
    if (holding_.family == Family::kStreamOrdered) [[unlikely]] {
      // The pool carries the charge, which stays: nothing moves.
      was_exported_ = BeginFreeOfPool(fence, holding_);
      return;
    }
    move_.BeginCounted(&fence->devices[holding_.device].moves);
  }

  // Gives the bytes back, or the holding when the driver refused. Returns the driver's code.
  CUresult Settle(CUresult rc) {
    if (!found_) return rc;
    if (rc == CUDA_SUCCESS) [[likely]] {
      Discharge(fence_, holding_);
    } else {
      Restore(fence_, holding_, was_exported_);
    }
    return rc;
  }

  // The driver's free succeeded, and the bytes are somebody else's to give back.
  void Keep() { found_ = false; }

  bool found() const { return found_; }
  bool was_exported() const { return was_exported_; }
  const Holding& holding() const { return holding_; }

 private:
  Fence* fence_;
  Holding holding_ = {};
  bool found_ = false;
  bool was_exported_ = false;
  LedgerMove move_;
};

}  // namespace gpufence
