// How many steps a graph takes, one after the other. Must not know what kinds of nodes there are,
// nor executables.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "driver_abi.h"

namespace gpufence {

// A step is a kernel that nothing in the graph can run beside, or a stretch of kernels that can run
// side by side, up to where they meet: between steps the GPU pauses, within one it need not.
// `nodes` are the graph's, in the order in which they were added, `steps` how many each of them
// takes (0: nothing waits for the GPU). At least 1. Where it cannot be told, 1: an edge against the
// order in which the nodes were added, a huge graph, no memory.
uint32_t CountSteps(CUgraph graph, const CUgraphNode* nodes, const uint32_t* steps, size_t count);

}  // namespace gpufence
