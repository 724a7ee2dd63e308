// Moves: the time between the ledger's word and the driver's deed. While one is under way the
// ledger counts bytes that the driver does not hold yet, or no longer, and a comparison of the two
// says less than the truth. Whoever compares looks here for a moment without any.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "hooks/this_thread.h"

namespace gpufence {

// Chooses this_thread.moves_cell.
[[gnu::cold, gnu::noinline]] uint32_t ClaimMovesCell();

// The moves on a device. A thread has a cell of its own, which it writes without a locked
// instruction; those that come when all are taken share the last one. In a cell: moves under way
// (low half) and moves ever begun (high half).
class Moves {
 public:
  static constexpr uint32_t kCells = 32;

  // Of all cells together. Two equal readings without moves under way mean that there was none in
  // between either, since what a cell has begun never falls. What is read before a call of this is
  // compared with it, and what is read after.
  uint64_t Read() const {
    // With the release fence in Begin: who saw anything of a move sees that it has begun.
    std::atomic_thread_fence(std::memory_order_acquire);
    uint64_t sum = 0;
    for (const Cell& cell : cells_) sum += cell.moves.load(std::memory_order_acquire);
    return sum;
  }

  static constexpr uint64_t UnderWay(uint64_t moves) { return moves & UINT32_MAX; }

  void Begin() {
    Add((uint64_t{1} << 32) + 1);
    std::atomic_thread_fence(std::memory_order_release);
  }

  void End() { Add(UINT64_MAX); }

  // Contexts that ended: of the device (low half), and the primary one of them (high half). To be
  // told before what was allocated in it is given back: then who books something after that finds
  // the count changed. Each cell has its own, since who asks has just written there.
  void ContextEnded(bool primary) {
    for (Cell& cell : cells_) {
      cell.ends.fetch_add(primary ? kPrimaryEnd + 1 : 1, std::memory_order_seq_cst);
    }
  }

  // As this thread's cell has it: between Begin and End.
  uint64_t Ends() const {
    return cells_[this_thread.moves_cell - 1].ends.load(std::memory_order_relaxed);
  }
  static constexpr bool IsPrimaryAmong(uint64_t before, uint64_t after) {
    return before / kPrimaryEnd != after / kPrimaryEnd;
  }

 private:
  static constexpr uint64_t kPrimaryEnd = uint64_t{1} << 32;

  struct alignas(64) Cell {
    std::atomic<uint64_t> moves;
    std::atomic<uint64_t> ends;
  };

  void Add(uint64_t change) {
    const uint32_t own = this_thread.moves_cell - 1;
    if (own >= kCells - 1) [[unlikely]]
      return AddElsewhere(change);
    std::atomic<uint64_t>* moves = &cells_[own].moves;
    const uint64_t seen = moves->load(std::memory_order_relaxed);
    moves->store(seen + change, std::memory_order_release);
  }

  // The thread has no cell yet, or shares the last one.
  [[gnu::cold, gnu::noinline]] void AddElsewhere(uint64_t change) {
    uint32_t own = this_thread.moves_cell;
    if (own == 0) own = ClaimMovesCell();
    cells_[own - 1].moves.fetch_add(change, std::memory_order_acq_rel);
  }

  Cell cells_[kCells];
};

// One move on a device.
class LedgerMove {
 public:
  LedgerMove() = default;
  explicit LedgerMove(Moves* moves) { Begin(moves); }
  ~LedgerMove() { End(); }
  LedgerMove(const LedgerMove&) = delete;
  LedgerMove& operator=(const LedgerMove&) = delete;

  // Before the ledger is asked.
  void Begin(Moves* moves) {
    asking_ = true;
    ++this_thread.asking;
    BeginCounted(moves);
    ends_ = moves->Ends();
  }

  // Before the driver frees what the ledger counts.
  void BeginCounted(Moves* moves) {
    moves_ = moves;
    ++this_thread.moves;
    moves->Begin();
  }

  // The ledger counts the bytes.
  void Granted() {
    asking_ = false;
    --this_thread.asking;
  }

  // A context of the device ended since the ledger was asked: what the driver granted may have gone
  // with it. Asked once that is booked.
  bool SawEnd() const { return moves_->Ends() != ends_; }
  bool SawPrimaryEnd() const { return Moves::IsPrimaryAmong(ends_, moves_->Ends()); }

  // Ledger and driver agree again.
  void End() {
    if (moves_ == nullptr) return;
    if (asking_) --this_thread.asking;
    --this_thread.moves;
    moves_->End();
    moves_ = nullptr;
  }

 private:
  Moves* moves_ = nullptr;
  uint64_t ends_ = 0;
  bool asking_ = false;
};

}  // namespace gpufence
