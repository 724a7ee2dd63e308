// What the allocation nodes of a graph need of each device, found by walking it, child graphs
// included. Must not know executables or charges.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "driver_abi.h"
#include "state/layout.h"

namespace gpufence {

struct Fence;

struct GraphNeed {
  uint64_t bytes;  // whole blocks that its addresses lie in: nodes that never live at the same
                   // time share addresses
  bool scattered;  // the driver may take one block more to begin with
  bool keeps;      // allocations are left for the program to free
};

struct GraphNeeds {
  bool any = false;
  GraphNeed devices[kMaxDevices] = {};  // by index in the fence
};

// False when there is no memory to walk the graph.
bool MeasureGraph(Fence* fence, CUgraph graph, GraphNeeds* needs);

}  // namespace gpufence
