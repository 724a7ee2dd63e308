#include "state/sharing.h"

namespace gpufence {
namespace {

constexpr uint64_t BytesOf(uint64_t word) { return word & kMostOrphans; }

constexpr uint64_t Next(uint64_t word, uint64_t bytes) {
  return (((word >> kOrphanBits) + 1) << kOrphanBits) |
         (bytes < kMostOrphans ? bytes : kMostOrphans);
}

void TakeUpTo(Word& word, uint64_t amount) {
  uint64_t seen = word.load(std::memory_order_relaxed);
  while (!word.compare_exchange_weak(seen, seen > amount ? seen - amount : 0,
                                     std::memory_order_seq_cst, std::memory_order_relaxed)) {
  }
}

}  // namespace

void Sharing::Exported(uint64_t bytes) const {
  own().exported.fetch_add(bytes, std::memory_order_relaxed);
}

void Sharing::Unexported(uint64_t bytes) const {
  Orphan(bytes);
  TakeUpTo(own().exported, bytes);
}

// Pairs with the look in Orphan: an import that reached the driver before the owner's free did
// shows here before the owner looks.
void Sharing::Imported() const { own().imports.fetch_add(1, std::memory_order_seq_cst); }

void Sharing::Dropped(uint64_t imports) const { TakeUpTo(own().imports, imports); }

bool Sharing::AnyImports(bool of_others) const {
  const uint32_t end = region_->header.high_slot.load(std::memory_order_acquire);
  for (uint32_t slot = 0; slot < end && slot < kMaxProcesses; ++slot) {
    if (of_others && slot == slot_) continue;
    if (region_->shares[row_][slot].imports.load(std::memory_order_seq_cst) != 0) return true;
  }
  return false;
}

void Sharing::Orphan(uint64_t bytes) const {
  if (bytes == 0 || !AnyImports(/*of_others=*/false)) return;
  uint64_t seen = orphans().load(std::memory_order_relaxed);
  while (!orphans().compare_exchange_weak(seen, Next(seen, BytesOf(seen) + bytes),
                                          std::memory_order_seq_cst, std::memory_order_relaxed)) {
  }
}

// A moment without any import is one in which nobody holds what the word counted then.
uint64_t Sharing::OrphansOrClear(uint64_t seen) const {
  if (AnyImports(/*of_others=*/false)) return BytesOf(seen);
  const bool cleared = orphans().compare_exchange_strong(
      seen, Next(seen, 0), std::memory_order_seq_cst, std::memory_order_relaxed);
  return cleared ? 0 : BytesOf(seen);
}

uint64_t Sharing::OwnOrphanBytes() const {
  const uint64_t bytes = OrphanBytes();
  return bytes != 0 && !AnyImports(/*of_others=*/true) ? bytes : 0;
}

uint64_t OrphanBytesSeen(const Region* region, uint32_t row) {
  return BytesOf(region->rows[row].orphans.load(std::memory_order_relaxed));
}

void Sharing::Died() const {
  own().imports.store(0, std::memory_order_seq_cst);
  Orphan(own().exported.load(std::memory_order_relaxed));
  own().exported.store(0, std::memory_order_relaxed);
}

}  // namespace gpufence
