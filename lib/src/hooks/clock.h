// A steady clock that costs a few nanoseconds and moves every few milliseconds: for what must not
// be done too often.
#pragma once

#include <stdint.h>
#include <time.h>

namespace gpufence {

// Never 0.
inline uint64_t CoarseNowNs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec) +
         1;
}

}  // namespace gpufence
