// When the work of a process stood at yield points (yield_points.h): that time is not its own.
// Pure: time is a parameter.
#pragma once

#include <stdint.h>

#include <algorithm>
#include <atomic>

namespace gpufence {

// Zeroed memory is ready for use. One thread tells, any asks. What was told long ago is forgotten,
// and counts as if it had not stood.
class StoodTimes {
 public:
  // It stands since then, or goes on. Both may be said again.
  void Begin(uint64_t now_ns) {
    if (Stands()) return;
    const uint32_t number = count_.load(std::memory_order_relaxed);
    begins_[number % kMost].store(now_ns, std::memory_order_relaxed);
    ends_[number % kMost].store(0, std::memory_order_relaxed);
    count_.store(number + 1, std::memory_order_release);
  }
  void End(uint64_t now_ns) {
    if (Stands()) ends_[Last()].store(now_ns, std::memory_order_release);
  }
  bool Stands() const {
    return count_.load(std::memory_order_relaxed) != 0 &&
           ends_[Last()].load(std::memory_order_relaxed) == 0;
  }

  // For how long it stood in a stretch of time.
  uint64_t WithinNs(uint64_t begin_ns, uint64_t end_ns) const {
    uint64_t sum_ns = 0;
    ForEachIn(begin_ns, end_ns,
              [&](uint64_t from_ns, uint64_t to_ns) { sum_ns += to_ns - from_ns; });
    return sum_ns;
  }

  // Calls `visit` with the begin and the end of each part of the stretch in which it did not stand.
  template <typename Visit>
  void ForEachOutside(uint64_t begin_ns, uint64_t end_ns, Visit visit) const {
    uint64_t at_ns = begin_ns;
    ForEachIn(begin_ns, end_ns, [&](uint64_t from_ns, uint64_t to_ns) {
      if (from_ns > at_ns) visit(at_ns, from_ns);
      at_ns = to_ns;
    });
    if (end_ns > at_ns) visit(at_ns, end_ns);
  }

 private:
  static constexpr uint32_t kMost = 16;  // one of them may be written anew while it is read

  uint32_t Last() const { return (count_.load(std::memory_order_relaxed) - 1) % kMost; }

  // What of the stretch it stood, oldest first.
  template <typename Visit>
  void ForEachIn(uint64_t begin_ns, uint64_t end_ns, Visit visit) const {
    const uint32_t count = count_.load(std::memory_order_acquire);
    for (uint32_t number = count - std::min(count, kMost - 1); number != count; ++number) {
      const uint64_t told_ns = ends_[number % kMost].load(std::memory_order_acquire);
      const uint64_t from_ns =
          std::max(begins_[number % kMost].load(std::memory_order_relaxed), begin_ns);
      const uint64_t to_ns = told_ns != 0 ? std::min(told_ns, end_ns) : end_ns;
      std::atomic_thread_fence(std::memory_order_acquire);
      const bool is_anew = count_.load(std::memory_order_relaxed) - number >= kMost;
      if (!is_anew && to_ns > from_ns) visit(from_ns, to_ns);
    }
  }

  std::atomic<uint32_t> count_;
  std::atomic<uint64_t> begins_[kMost];
  std::atomic<uint64_t> ends_[kMost];  // 0: it stands
};

}  // namespace gpufence
