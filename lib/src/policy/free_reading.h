// What the driver had free a moment ago, for those who ask again at once: good enough to say that
// the limit leaves less than the driver, never to say how much the driver has.
// Any thread; zeroed memory is no reading. Must not know CUDA, nor the clock.
#pragma once

#include <stdint.h>

#include <atomic>

namespace gpufence {

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

}  // namespace gpufence
