// In how many steps the kernels of each executable graph run: told when it is made, asked at every
// launch. One table for the process, of fixed size; asking takes no lock. Must not know how steps
// are counted, nor what they cost.
#pragma once

#include <stdint.h>

#include "driver_abi.h"

namespace gpufence {

// What an executable that is not known, or for which there was no room, counts for.
inline constexpr uint32_t kUnknownSteps = 1;

void RememberSteps(CUgraphExec executable, uint32_t steps);
uint32_t StepsOf(CUgraphExec executable);
uint32_t ForgetSteps(CUgraphExec executable);  // returns them

}  // namespace gpufence
