// The arithmetic of shares of GPU time: what a charge costs at a share and when it is paid for,
// what a soft share comes to, and whether a neighbour is seen where none can be met. Pure; time is
// a parameter. Must not know who is asked.
//
// A share is a token bucket in one word. `due_ns` is the moment, on the monotonic clock, at which
// everything used is paid for. A launch may go once it has come. Debt is never forgiven; credit is
// what lies between a due moment in the past and now, and is capped.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/tuning.h"

namespace gpufence {

// ---- moments that other processes wrote ----

// Another thread's clock may have been read a little later than ours.
inline constexpr uint64_t kClockSlackNs = 20'000'000;

// True when `moment_ns` lies in the last `window_ns`. 0 is never, and so is the far future, which
// is a word that went wrong.
constexpr bool IsRecent(uint64_t moment_ns, uint64_t now_ns, uint64_t window_ns) {
  if (moment_ns == 0) return false;
  return moment_ns > now_ns ? moment_ns - now_ns < kClockSlackNs : now_ns - moment_ns < window_ns;
}

// ---- a share ----

inline constexpr uint32_t kWholeShare = 100000;  // thousandths of a percent

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
uint64_t CreditOf(uint32_t share, uint64_t burst_ns = 0, const Tuning& tuning = kTuning);

// How far the debt is ahead of now; negative: credit, at most so much.
int64_t AheadNs(uint64_t due_ns, uint64_t now_ns, uint64_t credit_ns);

// ---- soft shares ----

// What nobody claims is divided among those who may use more than their hard shares, by their
// weights, each up to its soft share. Shares in thousandths of a percent.
struct SoftTenant {
  uint32_t hard;
  uint32_t soft;
  uint32_t weight;  // not 0
};

// Of what is used at `rate` lately a container claims a little more, so that it can grow, and no
// more than its hard share.
uint32_t ClaimOf(uint32_t rate, uint32_t hard, const Tuning& tuning = kTuning);

// The share of `own` where `free` is left beside all claims. `others` want more than they may as
// well. At most kMostSoftTenants of them count.
inline constexpr size_t kMostSoftTenants = 64;
uint32_t SoftShareOf(SoftTenant own, uint32_t free, const SoftTenant* others, size_t count);

// ---- neighbours that share no folder ----

// What was seen at the last looks. Zeroed memory is ready for use.
class NeighbourSight {
 public:
  bool IsDue(uint64_t now_ns, const Tuning& tuning = kTuning) const {
    return now_ns - looked_ns_ >= tuning.neighbour_look_ns;
  }

  // One look: the device was busy `percent` of the time lately, and we have used `charged_ns` of it
  // ever. True when somebody else seems to use it, or when that cannot be said yet.
  bool Look(uint64_t now_ns, uint64_t charged_ns, uint32_t percent, const Tuning& tuning = kTuning);

 private:
  // Samples and looks cover different moments, which matters less over several.
  static constexpr uint32_t kLooks = 3;

  struct Seen {
    uint64_t ns;
    uint64_t own_ns;
    uint64_t busy_ns;
  };

  uint64_t looked_ns_;
  uint64_t charged_ns_;
  Seen seen_[kLooks];
  uint32_t count_;
};

}  // namespace gpufence
