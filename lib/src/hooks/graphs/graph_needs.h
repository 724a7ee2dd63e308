// What a graph will make the driver hold, found by walking it, child graphs included: the blocks of
// its allocation nodes, and the stack of its kernels; in how many steps they run, and where. Must
// not know executables or charges.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "driver_abi.h"
#include "shared_layouts.h"

namespace gpufence {

struct Fence;

// A step of it is a kernel that nothing in the graph can run beside, or a stretch of kernels that
// can run side by side, up to where they meet: between steps the GPU pauses, within one it need
// not.
struct GraphNeeds {
  bool takes_memory = false;
  uint64_t bytes[kMaxDevices] = {};  // of allocation nodes, by index in the fence
  uint64_t stack_bytes = 0;          // the deepest that a kernel wants for each of its threads
  uint64_t nodes = 0;
  uint32_t steps = 0;           // in which its kernels run
  uint64_t ordinals = 0;        // of the devices where they do, a bit each; 0: one alone is visible
  bool has_collective = false;  // a kernel that meets others on other devices
  bool has_unseen = false;      // bodies of conditional nodes, or nodes of unknown types
};

// False when there is no memory to walk the graph, or when it allocates at a place that cannot be
// charged. Names of kernels are asked only where somebody wants to know of collectives: programs
// change graphs at each launch.
enum class Names : bool { kSkip, kAsk };
bool MeasureGraph(Fence* fence, CUgraph graph, GraphNeeds* needs, Names names = Names::kSkip);

}  // namespace gpufence
