#include "state/ledger.h"

#include <sched.h>
#include <time.h>

namespace gpufence {
namespace {

// Some twenty milliseconds in all, since the kernel stretches a short sleep to sixty microseconds: far
// longer than any process needs between asking and deciding, short enough for a caller when a stopped
// process keeps asking.
constexpr int kAttempts = 400;
constexpr long kPauseNs = 5000;

uint64_t AddSaturating(uint64_t one, uint64_t other) {
  return one > UINT64_MAX - other ? UINT64_MAX : one + other;
}

// A coin per thread and attempt: enough to break a tie between equals, no state to share.
bool Coin(uint64_t* seed) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return (*seed >> 63) != 0;
}

void Pause(int attempt) {
  if (attempt < 16) {
    sched_yield();
    return;
  }
  const timespec pause{0, kPauseNs};
  nanosleep(&pause, nullptr);
}

}  // namespace

Totals Ledger::Sum() const {
  Totals totals{0, 0};
  const uint32_t end = region_->header.high_slot.load(std::memory_order_acquire);
  const Cell* row = region_->cells[row_];
  for (uint32_t slot = 0; slot < end && slot < kMaxProcesses; ++slot) {
    // `asking` first: a request moves from there to `held`, so in this order it is seen in at
    // least one of them. Acquire pairs with the release in Reserve.
    const uint64_t asking = row[slot].asking.load(std::memory_order_acquire);
    const uint64_t held = row[slot].held.load(std::memory_order_relaxed);
    totals.asking = AddSaturating(totals.asking, asking);
    totals.held = AddSaturating(totals.held, held);
  }
  return totals;
}

Verdict Ledger::Reserve(uint64_t bytes, uint64_t limit_bytes) const {
  if (bytes > limit_bytes) return Verdict::kNoRoom;
  Word& asking = cell().asking;
  uint64_t seed = reinterpret_cast<uint64_t>(&seed) ^ slot_;
  asking.fetch_add(bytes, std::memory_order_seq_cst);
  bool published = true;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    // Sequentially consistent on both sides of two racers: one of them sees the other's request.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const Totals totals = Sum();
    if (AddSaturating(totals.held, bytes) > limit_bytes) break;
    const uint64_t unasked = published ? 0 : bytes;
    const bool fits =
        AddSaturating(AddSaturating(totals.held, totals.asking), unasked) <= limit_bytes;
    if (fits && published) {
      cell().held.fetch_add(bytes, std::memory_order_relaxed);
      asking.fetch_sub(bytes, std::memory_order_release);
      return Verdict::kGranted;
    }
    // Only other requests stand in the way. Whoever throws heads steps back and asks again only when
    // the rest would let it in: however many equals there are, after a few throws one stands alone.
    if (fits) {
      asking.fetch_add(bytes, std::memory_order_seq_cst);
      published = true;
      continue;
    }
    if (published && Coin(&seed)) {
      asking.fetch_sub(bytes, std::memory_order_relaxed);
      published = false;
    }
    Pause(attempt);
  }
  if (published) asking.fetch_sub(bytes, std::memory_order_relaxed);
  return Verdict::kNoRoom;
}

void Ledger::Book(uint64_t bytes) const {
  cell().held.fetch_add(bytes, std::memory_order_seq_cst);
}

void Ledger::Release(uint64_t bytes) const {
  Word& held = cell().held;
  uint64_t seen = held.load(std::memory_order_relaxed);
  while (!held.compare_exchange_weak(seen, seen > bytes ? seen - bytes : 0,
                                     std::memory_order_release, std::memory_order_relaxed)) {
  }
}

void Ledger::ShowOverhead(uint64_t bytes) const {
  region_->overhead[row_][slot_].store(bytes, std::memory_order_relaxed);
}

}  // namespace gpufence
