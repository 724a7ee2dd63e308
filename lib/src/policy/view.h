// What memory queries answer inside a limit, and what is remembered of the driver's own answers so
// that it is asked less often. Must not know who asks, through which library, CUDA or the clock.
#pragma once

#include <stdint.h>

#include <algorithm>
#include <atomic>

namespace gpufence {

// Fields always agree: used + free <= total, and reserved is what is left of it.
struct MemoryView {
  uint64_t total_bytes;
  uint64_t used_bytes;
  uint64_t free_bytes;
  uint64_t reserved_bytes;  // of the total, but neither used nor free: taken by others, or withheld
};

// What the container holds and may hold.
struct LimitAndUse {
  uint64_t limit_bytes;
  uint64_t used_bytes;
  bool is_oversold;
};

// Pure. `driver_*` is the driver's own answer for the whole GPU.
//
// total = min(limit, total); used = the container's, at most total, since a limit that was lowered
// may lie below it; free = what is left of the limit, at most what the driver has free. Without a
// limit (UINT64_MAX) total and free are the driver's own. Where memory is oversold the driver's
// figures bound nothing: total = limit, free = what is left of it.
inline MemoryView ViewMemory(const LimitAndUse& seen, uint64_t driver_total_bytes,
                             uint64_t driver_free_bytes) {
  MemoryView view = {};
  const bool is_virtual = seen.is_oversold && seen.limit_bytes != UINT64_MAX;
  view.total_bytes = is_virtual ? seen.limit_bytes : std::min(seen.limit_bytes, driver_total_bytes);
  view.used_bytes = std::min(seen.used_bytes, view.total_bytes);
  view.free_bytes = view.total_bytes - view.used_bytes;
  if (!is_virtual) view.free_bytes = std::min(view.free_bytes, driver_free_bytes);
  view.reserved_bytes = view.total_bytes - view.used_bytes - view.free_bytes;
  return view;
}

// What the driver had free a moment ago, for those who ask again at once: good enough to say that
// the limit leaves less than the driver, never to say how much the driver has.
// Any thread; zeroed memory is no reading.
class FreeReading {
 public:
  // A neighbour takes less than the margin within the window: docs/memory-limiter-details.md.
  static constexpr uint64_t kWindowNs = 30'000;
  static constexpr uint64_t kMarginBytes = uint64_t{8} << 30;

  // The driver was asked at `asked_ns`, and answered.
  void Keep(uint64_t free_bytes, uint64_t asked_ns) {
    const uint64_t gib = free_bytes >> 30;
    word_.store(MomentOf(asked_ns) << kGibBits | (gib < kMostGib ? gib : kMostGib),
                std::memory_order_relaxed);
  }

  // True when the driver surely has more than `bytes` free.
  bool LeavesMoreThan(uint64_t bytes, uint64_t now_ns) const {
    const uint64_t word = word_.load(std::memory_order_relaxed);
    const uint64_t gib = word & kMostGib;
    // A thread whose clock was read before the reading's finds the difference huge, and asks.
    return word != 0 && bytes <= gib << 30 && (gib << 30) - bytes >= kMarginBytes &&
           MomentOf(now_ns) - (word >> kGibBits) < MomentOf(kWindowNs);
  }

 private:
  static constexpr int kGibBits = 16;
  static constexpr uint64_t kMostGib = (uint64_t{1} << kGibBits) - 1;
  static constexpr uint64_t MomentOf(uint64_t ns) { return ns >> 10; }  // fits for two years

  std::atomic<uint64_t> word_;  // both in one, so that no reader sees half a reading
};

// By how much the driver may hold more than was read, for calls that bring code or variables and
// are too frequent to be measured one by one. What the device has free and what the container is
// charged stay the same together while only requests move memory; their sum falls by what came
// beside them. Neighbours make it fall, too, and so cost a reading that was not needed.
// Any thread; zeroed memory has seen nothing.
class UnreadGrowth {
 public:
  // Before it is read: what comes from here on is unread.
  void Forget() { highest_bytes_.store(0, std::memory_order_relaxed); }

  // The highest sum since then, this one included. What several threads see at once may be lost to
  // one of them.
  uint64_t HighestWith(uint64_t sum_bytes) {
    const uint64_t highest_bytes = highest_bytes_.load(std::memory_order_relaxed);
    if (sum_bytes <= highest_bytes) return highest_bytes;
    highest_bytes_.store(sum_bytes, std::memory_order_relaxed);
    return sum_bytes;
  }

 private:
  std::atomic<uint64_t> highest_bytes_;
};

}  // namespace gpufence
