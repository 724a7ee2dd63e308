// How long a request waits for others of its own process that are under way: some twenty
// milliseconds in all. That is longer than a driver call that allocates, and shorter than a caller
// would mind where one hangs.
#pragma once

#include <sched.h>

#include "base/futex.h"

namespace gpufence {

inline constexpr int kWaits = 300;

inline void Wait(int turn) {
  constexpr int kYields = 32;
  constexpr uint64_t kPauseNs = 5000;
  if (turn < kYields) {
    sched_yield();
  } else {
    Nap(kPauseNs);
  }
}

}  // namespace gpufence
