// By how much the driver may hold more than was read, for calls that bring code or variables and
// are too frequent to be measured one by one. What the device has free and what the container is
// charged stay the same together while only requests move memory; their sum falls by what came
// beside them. Neighbours make it fall, too, and so cost a reading that was not needed.
// Any thread; zeroed memory has seen nothing. Must not know CUDA.
#pragma once

#include <stdint.h>

#include <atomic>

namespace gpufence {

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
