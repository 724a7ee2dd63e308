// In how many steps the kernels of each executable graph run, and on which devices: told when it is
// made, asked at every launch. One table for the process, of fixed size; asking takes no lock. Must
// not know how steps are counted, nor what they cost.
#pragma once

#include <stdint.h>

#include "driver_abi.h"

namespace gpufence {

// What an executable that is not known, or for which there was no room, counts for.
inline constexpr uint32_t kUnknownSteps = 1;

struct GraphRuns {
  uint32_t steps = kUnknownSteps;
  uint64_t ordinals = 0;  // of devices, a bit each; 0: there is one alone, or they are not known
  bool has_collective = false;  // a kernel that meets others on other devices
};

void RememberRuns(CUgraphExec executable, GraphRuns runs);
GraphRuns RunsOf(CUgraphExec executable);
GraphRuns ForgetRuns(CUgraphExec executable);  // returns them

}  // namespace gpufence
