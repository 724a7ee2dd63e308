#include "base/translate.h"

#include <stddef.h>
#include <stdint.h>

#include <atomic>

namespace gpufence {
namespace {

// One word per driver function keeps insertion a single compare-and-swap: two threads may fill the
// table at once (see base/resolve), and a reader never sees half an entry. User addresses fit 48
// bits on x86-64 and aarch64 unless a process asks for more, which drivers do not.
constexpr unsigned kSymBits = 16;
constexpr size_t kBuckets = 8192;
static_assert(kSymCount < (1u << kSymBits) - 1, "symbol number and its +1 fit the low bits");
static_assert(kBuckets >= 4 * kSymCount, "short probe chains, and never full");
static_assert((kBuckets & (kBuckets - 1)) == 0, "the mask below needs a power of two");

constinit std::atomic<uint64_t> table[kBuckets] = {};

uint64_t Pack(const void* address, Sym sym) {
  return (reinterpret_cast<uint64_t>(address) << kSymBits) | (static_cast<uint64_t>(sym) + 1);
}

bool Holds(uint64_t word, const void* address) {
  return (word >> kSymBits) == (reinterpret_cast<uint64_t>(address) << kSymBits >> kSymBits);
}

size_t FirstBucket(const void* address) {
  const uint64_t mixed = (reinterpret_cast<uint64_t>(address) >> 4) * 0x9e3779b97f4a7c15u;
  return static_cast<size_t>(mixed >> 51) & (kBuckets - 1);
}

}  // namespace

void RememberAddress(const void* address, Sym sym) {
  const uint64_t word = Pack(address, sym);
  size_t bucket = FirstBucket(address);
  for (size_t probes = 0; probes < kBuckets; ++probes, bucket = (bucket + 1) & (kBuckets - 1)) {
    uint64_t seen = 0;
    // Release pairs with the acquire in SymAt; the entry table is published separately.
    if (table[bucket].compare_exchange_strong(seen, word, std::memory_order_release,
                                              std::memory_order_relaxed) ||
        Holds(seen, address)) {
      return;
    }
  }
}

Sym SymAt(const void* address) {
  size_t bucket = FirstBucket(address);
  for (size_t probes = 0; probes < kBuckets; ++probes, bucket = (bucket + 1) & (kBuckets - 1)) {
    const uint64_t word = table[bucket].load(std::memory_order_acquire);
    if (word == 0) return kNoSym;
    if (Holds(word, address)) return static_cast<Sym>((word & ((1u << kSymBits) - 1)) - 1);
  }
  return kNoSym;
}

}  // namespace gpufence
