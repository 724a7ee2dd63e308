// Moves: the time between the ledger's word and the driver's deed. While one is under way the
// ledger counts bytes that the driver does not hold yet, or no longer, and a comparison of the two
// says less than the truth. Whoever compares looks here for a moment without any.
#pragma once

#include <stdint.h>

#include <atomic>

namespace gpufence {

// This thread's own moves: all, and those that still ask, whose bytes are not counted yet.
extern constinit thread_local uint32_t own_moves;
extern constinit thread_local uint32_t own_asking_moves;

// One move on a device. The word counts moves under way (low half) and moves ever begun (high
// half): two equal readings without moves under way mean that there was none in between either.
class LedgerMove {
 public:
  static constexpr uint64_t kBegun = (uint64_t{1} << 32) + 1;
  static constexpr uint64_t UnderWay(uint64_t moves) { return moves & UINT32_MAX; }

  LedgerMove() = default;
  explicit LedgerMove(std::atomic<uint64_t>* moves) { Begin(moves); }
  ~LedgerMove() { End(); }
  LedgerMove(const LedgerMove&) = delete;
  LedgerMove& operator=(const LedgerMove&) = delete;

  // Before the ledger is asked, or before the driver frees.
  void Begin(std::atomic<uint64_t>* moves) {
    moves_ = moves;
    asking_ = true;
    ++own_moves;
    ++own_asking_moves;
    moves->fetch_add(kBegun, std::memory_order_seq_cst);
  }

  // The ledger counts the bytes.
  void Granted() {
    asking_ = false;
    --own_asking_moves;
  }

  // Ledger and driver agree again.
  void End() {
    if (moves_ == nullptr) return;
    if (asking_) --own_asking_moves;
    --own_moves;
    moves_->fetch_sub(1, std::memory_order_seq_cst);
    moves_ = nullptr;
  }

 private:
  std::atomic<uint64_t>* moves_ = nullptr;
  bool asking_ = false;
};

}  // namespace gpufence
