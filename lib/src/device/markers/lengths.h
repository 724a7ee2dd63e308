// What each launch takes, by what is launched: a function and its grid, or a graph. Where a queue
// must be short the mean of all launches tells too little of a few of them: training has kernels of
// 1 to 400 us. Pure: must not know streams, markers or CUDA.
#pragma once

#include <stdint.h>

#include <atomic>

namespace gpufence {

// What is launched, as one word: the same for the same function and blocks.
inline uint32_t LaunchKindOf(const void* function, uint64_t blocks) {
  const uint64_t word = reinterpret_cast<uint64_t>(function) ^ blocks * 0x9e3779b97f4a7c15u;
  return static_cast<uint32_t>(word * 0xd6e8feb86659fd93u >> 32);
}

// What was launched into a stream last. Any thread; where two launch into it at once their order
// may be wrong.
class LaunchLog {
 public:
  static constexpr uint32_t kMost = 64;

  void Add(uint32_t kind) {
    const uint32_t at = count_.fetch_add(1, std::memory_order_relaxed);
    kinds_[at % kMost].store(kind, std::memory_order_relaxed);
  }
  uint32_t count() const { return count_.load(std::memory_order_relaxed); }
  // Of launch `number`, which is one of the last kMost before count().
  uint32_t At(uint32_t number) const {
    return kinds_[number % kMost].load(std::memory_order_relaxed);
  }

 private:
  std::atomic<uint32_t> count_;
  std::atomic<uint32_t> kinds_[kMost];
};

class LaunchLengths {
 public:
  // The launches before `end` in the log, so many; of each that is not known `usual_ns`.
  uint64_t OfNs(const LaunchLog& log, uint32_t end, uint64_t launches, uint64_t usual_ns) const;

  // Those ran in an interval, for so long. One thread at a time.
  void Learn(const LaunchLog& log, uint32_t end, uint32_t launches, uint64_t ran_ns);

 private:
  static constexpr uint32_t kKinds = 1024;

  // 0: not known.
  uint64_t KnownNs(uint32_t kind) const;
  void Store(uint32_t kind, int64_t ns);

  std::atomic<uint64_t> known_[kKinds];  // a kind, and in the lower half nanoseconds
};

}  // namespace gpufence
