#include "device/paces.h"

#include <algorithm>

namespace gpufence {
namespace {

// By so much a batch may be off the lower quartile, beside what a clock of microseconds rounds in
// the mean of some ten.
constexpr int64_t kOffParts = 100 / 15;
constexpr int64_t kRoundedNs = 400;

}  // namespace

void Batches::Add(int64_t mean_ns) {
  if (count_ == kMost) return;
  size_t at = count_++;
  for (; at > 0 && means_ns_[at - 1] > mean_ns; --at) means_ns_[at] = means_ns_[at - 1];
  means_ns_[at] = mean_ns;
}

bool Batches::Agree(uint32_t* mean_ns) const {
  if (count_ < kLeast) return false;
  const int64_t quartile_ns = means_ns_[count_ / 4];
  const int64_t off_ns = std::max<int64_t>(quartile_ns, 0) / kOffParts + kRoundedNs;
  int64_t sum_ns = 0;
  int64_t agreeing = 0;
  for (size_t i = 0; i < count_; ++i) {
    if (means_ns_[i] < quartile_ns - off_ns || means_ns_[i] > quartile_ns + off_ns) continue;
    sum_ns += means_ns_[i];
    ++agreeing;
  }
  if (agreeing < static_cast<int64_t>(kLeast)) return false;
  *mean_ns = static_cast<uint32_t>(std::clamp<int64_t>(sum_ns / agreeing, 0, UINT32_MAX));
  return true;
}

}  // namespace gpufence
