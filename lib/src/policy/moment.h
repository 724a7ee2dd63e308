// Comparing moments that other processes wrote. Pure.
#pragma once

#include <stdint.h>

namespace gpufence {

// Another thread's clock may have been read a little later than ours.
inline constexpr uint64_t kClockSlackNs = 20'000'000;

// True when `moment_ns` lies in the last `window_ns`. 0 is never, and so is the far future, which
// is a word that went wrong.
constexpr bool IsRecent(uint64_t moment_ns, uint64_t now_ns, uint64_t window_ns) {
  if (moment_ns == 0) return false;
  return moment_ns > now_ns ? moment_ns - now_ns < kClockSlackNs : now_ns - moment_ns < window_ns;
}

}  // namespace gpufence
