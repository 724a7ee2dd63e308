#include "policy/neighbours.h"

namespace gpufence {

bool NeighbourSight::Look(uint64_t now_ns, uint64_t charged_ns, uint32_t percent) {
  const uint64_t since_ns = now_ns - looked_ns_;
  const uint64_t own_ns = charged_ns - charged_ns_;
  looked_ns_ = now_ns;
  charged_ns_ = charged_ns;
  // After a pause, and at first, nothing is known of what lies behind.
  if (since_ns >= 2 * kNeighbourLookNs) count_ = 0;
  if (count_++ == 0) return true;
  seen_[count_ % kLooks] = {since_ns, own_ns, since_ns / 100 * (percent < 100 ? percent : 100)};
  const uint32_t looks = count_ - 1 < kLooks ? count_ - 1 : kLooks;
  Seen sum = {};
  for (uint32_t i = 0; i < looks; ++i) {
    const Seen& seen = seen_[(count_ - i) % kLooks];
    sum.ns += seen.ns;
    sum.own_ns += seen.own_ns;
    sum.busy_ns += seen.busy_ns;
  }
  return sum.busy_ns > sum.own_ns + sum.ns / 1000 * kMarginPermille;
}

}  // namespace gpufence
