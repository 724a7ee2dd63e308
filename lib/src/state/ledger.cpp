#include "state/ledger.h"

#include <sched.h>

#include "base/futex.h"

namespace gpufence {
namespace {

// Some twenty milliseconds in all, since the kernel stretches a short sleep to sixty microseconds:
// far longer than any process needs between asking and deciding, short enough for a caller when a
// stopped process keeps asking.
constexpr int kAttempts = 400;
constexpr long kPauseNs = 5000;

// Each costs a sum. Where the total never rests, a request that needs the room asks the cells.
constexpr int kRebuilds = 16;

constexpr uint64_t kOneChange = kMostBytes + 1;

uint64_t AddSaturating(uint64_t one, uint64_t other) {
  return one > UINT64_MAX - other ? UINT64_MAX : one + other;
}

// A full total stays full until it is rebuilt, since nobody knows how far above it the truth is.
uint64_t Sub(uint64_t total, uint64_t bytes) {
  const uint64_t seen = TotalBytes(total);
  if (bytes <= seen && seen != kMostBytes) [[likely]]
    return total + kOneChange - bytes;
  return (total & ~kMostBytes) + kOneChange + (seen == kMostBytes ? seen : 0);
}

uint64_t WithBytes(uint64_t total, uint64_t bytes) {
  return (total & ~kMostBytes) + kOneChange + (bytes < kMostBytes ? bytes : kMostBytes);
}

bool HasRoom(uint64_t total, uint64_t bytes, uint64_t limit_bytes) {
  const uint64_t most = limit_bytes < kMostBytes ? limit_bytes : kMostBytes - 1;
  return bytes <= most && TotalBytes(total) <= most - bytes;
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
  Nap(kPauseNs);
}

}  // namespace

bool Ledger::AddToTotalWithin(uint64_t seen, uint64_t bytes, uint64_t limit_bytes) const {
  while (!total().compare_exchange_weak(seen, seen + kOneChange + bytes, std::memory_order_acq_rel,
                                        std::memory_order_relaxed)) {
    if (!HasRoom(seen, bytes, limit_bytes)) return false;
  }
  return true;
}

void Ledger::AddToTotal(uint64_t bytes) const {
  uint64_t seen = total().load(std::memory_order_relaxed);
  while (!total().compare_exchange_weak(seen,
                                        WithBytes(seen, AddSaturating(TotalBytes(seen), bytes)),
                                        std::memory_order_acq_rel, std::memory_order_relaxed)) {
  }
}

void Ledger::TakeFromTotal(uint64_t bytes) const {
  uint64_t seen = total().load(std::memory_order_relaxed);
  while (!total().compare_exchange_weak(seen, Sub(seen, bytes), std::memory_order_acq_rel,
                                        std::memory_order_relaxed)) {
  }
}

Totals Ledger::Sum() const {
  Totals totals{0, 0};
  const Cell* cells = cell_ - slot_;
  const uint32_t end = region_->header.high_slot.load(std::memory_order_acquire);
  for (uint32_t slot = 0; slot < end && slot < kMaxProcesses; ++slot) {
    // `asking` first: a request moves from there to `held`, so in this order it is seen in at
    // least one of them. Acquire pairs with the release in Grant.
    const uint64_t asking = cells[slot].asking.load(std::memory_order_acquire);
    const uint64_t held = cells[slot].held.load(std::memory_order_relaxed);
    totals.asking = AddSaturating(totals.asking, asking);
    totals.held = AddSaturating(totals.held, held);
  }
  return totals;
}

void Ledger::Publish(uint64_t bytes) const {
  cell().asking.fetch_add(bytes, std::memory_order_relaxed);
  AddToTotal(bytes);  // releases the line before
}

void Ledger::Withdraw(uint64_t bytes) const {
  TakeFromTotal(bytes);
  cell().asking.fetch_sub(bytes, std::memory_order_release);
}

void Ledger::Grant(uint64_t bytes) const {
  cell().held.fetch_add(bytes, std::memory_order_relaxed);
  cell().asking.fetch_sub(bytes, std::memory_order_release);
}

// Where the total has room, the bytes are held at once: whoever fits under it is granted, so there
// is nothing to ask for. Only when the room goes in between are they taken back, as a request that
// asks: first one more word that counts them, then one less, like everywhere.
Verdict Ledger::Reserve(uint64_t bytes, uint64_t limit_bytes) const {
  if (bytes > limit_bytes) return Verdict::kNoRoom;
  __builtin_prefetch(cell_);  // see Holdings::ShardOf: it is first touched by a locked instruction
  uint64_t seen = total().load(std::memory_order_relaxed);
  if (HasRoom(seen, bytes, limit_bytes)) [[likely]] {
    cell().held.fetch_add(bytes, std::memory_order_relaxed);
    if (AddToTotalWithin(seen, bytes, limit_bytes)) [[likely]]  // releases it
      return Verdict::kGranted;
    cell().asking.fetch_add(bytes, std::memory_order_relaxed);
    cell().held.fetch_sub(bytes, std::memory_order_relaxed);
  } else {
    cell().asking.fetch_add(bytes, std::memory_order_relaxed);
  }
  return ReserveSlowly(bytes, limit_bytes);
}

Verdict Ledger::ReserveSlowly(uint64_t bytes, uint64_t limit_bytes) const {
  uint64_t seed = reinterpret_cast<uint64_t>(&seed) ^ slot_;
  // Whoever is granted quickly from here on counts this request; who was before shows in its cell.
  AddToTotal(bytes);
  bool published = true;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const uint64_t counted = UsedBytes();
    const Totals totals = Sum();
    if (AddSaturating(totals.held, bytes) > limit_bytes) {
      // Cells that say more than the total: a quick request is between its two words, and what it
      // holds may yet turn out to be asked for.
      if (AddSaturating(totals.held, totals.asking) <= counted) break;
      Pause(attempt);
      continue;
    }
    const uint64_t unasked = published ? 0 : bytes;
    const bool fits =
        AddSaturating(AddSaturating(totals.held, totals.asking), unasked) <= limit_bytes;
    if (fits && published) {
      Grant(bytes);
      Rebuild();  // the total said otherwise: it counts what is gone
      return Verdict::kGranted;
    }
    // Only other requests stand in the way. Whoever throws heads steps back and asks again only
    // when the rest would let it in: however many equals there are, after a few throws one stands
    // alone.
    if (fits) {
      Publish(bytes);
      published = true;
      continue;
    }
    if (published && Coin(&seed)) {
      Withdraw(bytes);
      published = false;
    }
    Pause(attempt);
  }
  if (published) Withdraw(bytes);
  return Verdict::kNoRoom;
}

void Ledger::Book(uint64_t bytes) const {
  Publish(bytes);
  Grant(bytes);
}

// Never more than the cell has: bytes that another process took for a dead one's are gone from the
// total already.
void Ledger::Release(uint64_t bytes) const {
  Word& held = cell().held;
  uint64_t seen = held.load(std::memory_order_relaxed);
  if (bytes > seen) bytes = seen;
  TakeFromTotal(bytes);
  while (!held.compare_exchange_weak(seen, seen > bytes ? seen - bytes : 0,
                                     std::memory_order_release, std::memory_order_relaxed)) {
  }
}

// Everything that a sum misses changes the total after it was read here, and then nothing is
// written.
bool Ledger::Rebuild() const {
  for (int i = 0; i < kRebuilds; ++i) {
    uint64_t seen = total().load(std::memory_order_acquire);
    const Totals totals = Sum();
    const uint64_t rebuilt = WithBytes(seen, AddSaturating(totals.held, totals.asking));
    if (TotalBytes(rebuilt) == TotalBytes(seen)) return false;
    if (total().compare_exchange_strong(seen, rebuilt, std::memory_order_acq_rel,
                                        std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

void Ledger::ShowOverhead(uint64_t bytes) const {
  region_->overhead[row_][slot_].store(bytes, std::memory_order_relaxed);
}

}  // namespace gpufence
