// What a request for memory is charged: reserved before the driver's call, booked as a holding
// behind it, and given back when the memory is freed. Must not know which call asks, nor how the
// ledger counts (policy/account.h).
#pragma once

#include "hooks/contexts/context_cost.h"
#include "hooks/fence.h"
#include "hooks/memory/exported.h"
#include "policy/charge.h"
#include "policy/chunks.h"

namespace gpufence {

// ---- before and behind the driver's call ----

// A grant that goes back unless it is committed. Empty (true, nothing to give back) for a device
// without a limit.
class Reservation {
 public:
  // `bytes` as the driver takes them. For memory that shares chunks: PieceReservation.
  Reservation(FencedDevice* device, uint64_t bytes, Tier tier = Tier::kDevice);
  ~Reservation();
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  explicit operator bool() const { return granted_; }

  // Keeps the charge and books it under `holding.key`; fills its bytes, small and device.
  void Commit(Holding holding);

  // Keeps the charge without a holding; the caller gives it back.
  void Keep();

  // The device is not null.
  LedgerMove* move() { return &move_; }

 private:
  bool Forget();

  FencedDevice* device_;
  uint64_t bytes_;
  Tier tier_;
  bool granted_;
  bool keep_ = false;
  bool noted_ = false;  // as the thread's
  LedgerMove move_;
};

// Puts a holding into the table. What was there under its key is discharged: the driver gave the
// same number out again, so it ended by a door that was not seen. False: no memory; it stays
// charged for good rather than being lost, and the process's end gives it back.
[[gnu::cold, gnu::noinline]] bool AddHoldingSlowly(Fence* fence, Holding holding);
inline bool AddHolding(Fence* fence, const Holding& holding) {
  if (fence->holdings.PutNew(holding)) [[likely]]
    return true;
  return AddHoldingSlowly(fence, CopyOf(holding));
}

// Books memory that shares no chunk, in the move that charges it. `bytes`: of its chunks. `kind`,
// `tier`: of the heap.
void AddWholeHolding(FencedDevice* device, LedgerMove* move, uint64_t context, HeapKind kind,
                     uint64_t address, uint64_t bytes, Tier tier = Tier::kDevice);

// The same for memory whose address tells in which chunk it lies: linear and managed.
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
    AddWholeHolding(device_, reservation_.move(), context_, kind_, address, bytes_);
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

// ---- the end of memory ----

// Gives back what a holding was charged.
void Discharge(Fence* fence, const Holding& holding);

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

// A pool's piece is about to be freed, and the driver refused to free: see
// hooks/memory/exported.h.
inline bool BeginFreeOfPool(Fence* fence, const Holding& piece) {
  if (!fence->any_exported.load(std::memory_order_relaxed)) [[likely]]
    return false;
  return BeginFreeOfExported(fence, CopyOf(piece));
}
inline void Restore(Fence* fence, const Holding& taken, bool was_exported) {
  RestoreAddress(fence, CopyOf(taken));
  if (was_exported) Unfreed(fence, CopyOf(taken));
}

// One free of an address: the holding leaves the table before the driver's call, since the address
// may be somebody else's the moment it returns; its bytes leave the ledger after it succeeded.
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
