#include "state/sharing.h"

#include "state/exported.h"

namespace gpufence {
namespace {

constexpr uint64_t BytesOf(uint64_t word) { return word & kMostOrphans; }

constexpr uint64_t Next(uint64_t word, uint64_t bytes, bool by_descriptor) {
  const uint64_t number = (((word >> kOrphanBits) + 1) << kOrphanBits) & ~kByDescriptor;
  return number | (bytes < kMostOrphans ? bytes : kMostOrphans) |
         (by_descriptor ? kByDescriptor : 0);
}

// The mark of a word stays; none of those that count things has it.
void TakeUpTo(Word& word, uint64_t amount) {
  uint64_t seen = word.load(std::memory_order_relaxed);
  uint64_t left = 0;
  do {
    const uint64_t count = seen & ~kByDescriptor;
    left = (count > amount ? count - amount : 0) | (seen & kByDescriptor);
  } while (!word.compare_exchange_weak(seen, left, std::memory_order_seq_cst,
                                       std::memory_order_relaxed));
}

}  // namespace

void Sharing::Exported(uint64_t bytes, bool by_descriptor) const {
  const uint64_t mark = by_descriptor ? kByDescriptor : 0;
  uint64_t seen = own().exported.load(std::memory_order_relaxed);
  while (!own().exported.compare_exchange_weak(
      seen, (seen + bytes) | mark, std::memory_order_relaxed, std::memory_order_relaxed)) {
  }
}

void Sharing::Unexported(uint64_t bytes, bool held) const {
  Orphan(bytes, held);
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

void Sharing::Orphan(uint64_t bytes, bool by_descriptor) const {
  if (bytes == 0 || (!by_descriptor && !AnyImports(/*of_others=*/false))) return;
  uint64_t seen = orphans().load(std::memory_order_relaxed);
  uint64_t next = 0;
  do {
    next = Next(seen, BytesOf(seen) + bytes, by_descriptor || (seen & kByDescriptor) != 0);
  } while (!orphans().compare_exchange_weak(seen, next, std::memory_order_seq_cst,
                                            std::memory_order_relaxed));
}

// A moment without any import is one in which nobody holds what the word counted then.
uint64_t Sharing::OrphansOrClear(uint64_t seen) const {
  if ((seen & kByDescriptor) != 0 || AnyImports(/*of_others=*/false)) return BytesOf(seen);
  const bool cleared = orphans().compare_exchange_strong(
      seen, Next(seen, 0, false), std::memory_order_seq_cst, std::memory_order_relaxed);
  return cleared ? 0 : BytesOf(seen);
}

bool Sharing::HasOwnOrphans() const {
  const uint64_t seen = orphans().load(std::memory_order_seq_cst);
  return BytesOf(seen) != 0 && (seen & kByDescriptor) == 0 && !AnyImports(/*of_others=*/true);
}

bool Sharing::Adopt(uint64_t bytes) const {
  uint64_t seen = orphans().load(std::memory_order_seq_cst);
  uint64_t left = 0;
  do {
    if (BytesOf(seen) == 0 || (seen & kByDescriptor) != 0 || AnyImports(/*of_others=*/true)) {
      return false;
    }
    left = BytesOf(seen) > bytes ? BytesOf(seen) - bytes : 0;
  } while (!orphans().compare_exchange_weak(seen, Next(seen, left, false),
                                            std::memory_order_seq_cst, std::memory_order_relaxed));
  return true;
}

// The descriptors first: whoever imported through one before it was closed is counted by then.
bool Sharing::Sweep(const RegionFile& file) const {
  uint64_t seen = orphans().load(std::memory_order_seq_cst);
  if ((seen & kByDescriptor) == 0) return false;
  uint64_t held = 0;
  if (!HeldByDescriptors(file, row_, &held)) return false;
  const bool imported = AnyImports(/*of_others=*/false);
  const uint64_t bytes = imported || BytesOf(seen) < held ? BytesOf(seen) : held;
  if (bytes == BytesOf(seen) && held != 0) return false;
  return orphans().compare_exchange_strong(seen, Next(seen, bytes, held != 0),
                                           std::memory_order_seq_cst, std::memory_order_relaxed);
}

uint64_t OrphanBytesSeen(const Region* region, uint32_t row) {
  return BytesOf(region->rows[row].orphans.load(std::memory_order_relaxed));
}

void Sharing::Died() const {
  own().imports.store(0, std::memory_order_seq_cst);
  const uint64_t exported = own().exported.load(std::memory_order_relaxed);
  Orphan(exported & ~kByDescriptor, (exported & kByDescriptor) != 0);
  own().exported.store(0, std::memory_order_relaxed);
}

}  // namespace gpufence
