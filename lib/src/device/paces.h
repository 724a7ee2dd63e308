// What batches of a measurement agree on. A batch that somebody else's work fell into took longer,
// and one that the clock rounded took a little more or less. Pure: must not know what was measured.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <algorithm>

namespace gpufence {

// The means of some batches, in nanoseconds.
class Batches {
 public:
  static constexpr size_t kMost = 64;
  static constexpr size_t kEnough = 8;  // where nothing disturbs
  // By so much a batch may be off the lower quartile, beside what a clock of microseconds rounds in
  // the mean of some ten.
  static constexpr int64_t kOffParts = 100 / 15;
  static constexpr int64_t kRoundedNs = 400;

  void Add(int64_t mean_ns);
  bool HasEnough() const { return count_ >= kEnough; }

  // Their mean, of those that are not disturbed; never below 0. False: fewer than `least` agree.
  bool Agree(size_t least, uint32_t* mean_ns) const;

 private:
  int64_t means_ns_[kMost];  // in order
  size_t count_ = 0;
};

inline void Batches::Add(int64_t mean_ns) {
  if (count_ == kMost) return;
  size_t at = count_++;
  for (; at > 0 && means_ns_[at - 1] > mean_ns; --at) means_ns_[at] = means_ns_[at - 1];
  means_ns_[at] = mean_ns;
}

inline bool Batches::Agree(size_t least, uint32_t* mean_ns) const {
  if (count_ < least) return false;
  const int64_t quartile_ns = means_ns_[count_ / 4];
  const int64_t off_ns = std::max<int64_t>(quartile_ns, 0) / kOffParts + kRoundedNs;
  int64_t sum_ns = 0;
  size_t agreeing = 0;
  for (size_t i = 0; i < count_; ++i) {
    if (means_ns_[i] < quartile_ns - off_ns || means_ns_[i] > quartile_ns + off_ns) continue;
    sum_ns += means_ns_[i];
    ++agreeing;
  }
  if (agreeing < least) return false;
  const int64_t agreed_ns = sum_ns / static_cast<int64_t>(agreeing);
  *mean_ns = static_cast<uint32_t>(std::clamp<int64_t>(agreed_ns, 0, UINT32_MAX));
  return true;
}

}  // namespace gpufence
