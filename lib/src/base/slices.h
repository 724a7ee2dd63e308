// How the driver lets processes alternate on a GPU (H200, driver 580; tests/sim holds the
// simulated driver to it).
#pragma once

#include <stdint.h>

namespace gpufence {

// What it gives to one process while others wait, and what it takes the GPU to change hands. That
// time is nobody's.
inline constexpr uint64_t kSliceNs = 2'091'000;
inline constexpr uint64_t kSwitchNs = 155'000;

}  // namespace gpufence
