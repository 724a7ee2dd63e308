// The arithmetic of a share of GPU time: a token bucket in one word. Pure; time is a parameter.
//
// `due_ns` is the moment, on the monotonic clock, at which everything used is paid for. A launch
// may go once it has come. Debt is never forgiven; credit is what lies between a due moment in the
// past and now, and is capped.
#pragma once

#include <stdint.h>

namespace gpufence {

inline constexpr uint32_t kWholeShare = 100000;  // thousandths of a percent

// Who was idle may use so much GPU time at once: five points of a second, so that every second
// still has its share, and work in bursts below the limit goes as without one. Of a small share it
// would be the share of several seconds: there, what is saved in so much of the clock.
inline constexpr uint64_t kCreditWorkNs = 50'000'000;
inline constexpr uint64_t kMostCreditNs = 500'000'000;

// A due moment further ahead is damage and counts as none: nobody waits for ever because of a word
// that went wrong. No debt grows beyond it (an hour: a kernel of 36 seconds at one percent).
inline constexpr uint64_t kMostDebtNs = uint64_t{3600} * 1'000'000'000;

// The due moment after `busy_ns` more of GPU time at `share` (1 to kWholeShare; others count as the
// nearest). Rounded up, so that no sequence of charges is cheaper than their sum.
uint64_t DueAfter(uint64_t due_ns, uint64_t now_ns, uint64_t busy_ns, uint32_t share,
                  uint64_t credit_ns);

// Nanoseconds until a launch may go; 0: now.
constexpr uint64_t HeldForNs(uint64_t due_ns, uint64_t now_ns) {
  const uint64_t held_ns = due_ns > now_ns ? due_ns - now_ns : 0;
  return held_ns > kMostDebtNs ? 0 : held_ns;
}

// The same debt at another share.
uint64_t DueAtShare(uint64_t due_ns, uint64_t now_ns, uint32_t share, uint32_t other_share);

// GPU time over its share: what it costs in wall-clock time. Rounded up, saturated.
uint64_t CostOf(uint64_t busy_ns, uint32_t share);

// The most that an idle container saves, in wall-clock time. `burst_ns`: so much GPU time; 0: as
// much as is usual.
uint64_t CreditOf(uint32_t share, uint64_t burst_ns = 0);

// How far the debt is ahead of now; negative: credit, at most so much.
int64_t AheadNs(uint64_t due_ns, uint64_t now_ns, uint64_t credit_ns);

}  // namespace gpufence
