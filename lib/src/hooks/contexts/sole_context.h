// The context that every thread of the process has that has any: known as long as it is the only
// one that was made. Then nobody asks the driver for it on the way to an allocation. Must not know
// how contexts are made, or what they cost.
#pragma once

#include <stdint.h>

#include <atomic>

namespace gpufence {

class SoleContext {
 public:
  // One is about to be made, or there may be one that was not seen.
  void Another() {
    uint64_t none = kNone;
    if (!word_.compare_exchange_strong(none, kFirst, std::memory_order_acq_rel)) {
      word_.store(kSeveral, std::memory_order_release);
    }
  }

  // It is there, and nobody was given it yet. Nothing happens when another one is about to be.
  void Made(uint64_t handle) {
    uint64_t first = kFirst;
    word_.compare_exchange_strong(first, handle, std::memory_order_acq_rel);
  }

  // 0: not known, for good after the second. Whoever has another one current was given it after it
  // was announced here.
  uint64_t handle() const {
    const uint64_t seen = word_.load(std::memory_order_relaxed);
    return seen > kSeveral ? seen : 0;
  }

 private:
  static constexpr uint64_t kNone = 0;
  static constexpr uint64_t kFirst = 1;
  static constexpr uint64_t kSeveral = 2;  // no handle is as small

  std::atomic<uint64_t> word_;
};

}  // namespace gpufence
