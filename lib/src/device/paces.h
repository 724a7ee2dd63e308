// What batches of a measurement agree on. A batch that somebody else's work fell into took longer,
// and one that the clock rounded took a little more or less. Pure: must not know what was measured.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace gpufence {

// The means of some batches, in nanoseconds.
class Batches {
 public:
  static constexpr size_t kMost = 8;
  static constexpr size_t kLeast = 5;  // that must agree

  void Add(int64_t mean_ns);
  bool IsFull() const { return count_ == kMost; }

  // Their mean, of those that are not disturbed; never below 0. False: too few agree.
  bool Agree(uint32_t* mean_ns) const;

 private:
  int64_t means_ns_[kMost];  // in order
  size_t count_ = 0;
};

}  // namespace gpufence
