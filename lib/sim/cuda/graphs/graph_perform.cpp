// Performing graphs: every node behind those it depends on, and the memory of allocation nodes: an
// address for as long as any graph holds the node, and whether the last launch left it allocated.
// Must not know streams or captures.
#include "cuda/devices/device.h"
#include "cuda/graphs/graph.h"
#include "cuda/memory/memory.h"
#include "machine/calls.h"

namespace sim::graph {

namespace {

// The point behind everything that a node waits for: `head` when it depends on nothing.
Work* PointBefore(TimelineLock& lock, const Node& node, Work* head) {
  if (node.before.size() <= 1) {
    Work* only = node.before.empty() ? head : FindNodeByHandle(node.before[0])->done;
    RetainWork(only);
    return only;
  }
  Vec<Work*> before{};
  for (uint64_t handle : node.before) before.Push(FindNodeByHandle(handle)->done);
  Work* join = Join(lock, before.data(), before.size());
  before.Free();
  return join;
}

// A node that depends on none of its graph is behind `head` as the graph is.
Pause PauseBefore(const Node& node, const Behind& head) {
  if (node.before.empty()) return head.pause;
  for (const CUgraphEdgeData& edge : node.edges) {
    if (edge.type != CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC) return Pause::kStep;
  }
  return Pause::kNone;
}

CUresult PerformNode(TimelineLock& lock, Node* node, const Behind& head) {
  Work* before = PointBefore(lock, *node, head.work);
  const Behind behind = {before, head.priority, PauseBefore(*node, head)};
  if (before == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  if (node->disabled) {
    node->done = before;
    return CUDA_SUCCESS;
  }
  CUresult result = CUDA_SUCCESS;
  node->done = Perform(lock, node->operation, behind, &result);
  if (node->done == nullptr) {
    node->done = before;  // what was submitted stays; the launch reports the reason
  } else {
    ReleaseWork(before);
  }
  return result;
}

uint32_t DefaultValueOf(CUgraphConditionalHandle handle) {
  const Conditional* conditional = FindConditional(handle);
  return conditional != nullptr ? conditional->default_value : 0;
}

// The body that a condition's value selects, or 0.
uint64_t SelectBody(const Condition& condition) {
  const uint32_t value = DefaultValueOf(condition.handle);
  const Vec<uint64_t>& bodies = condition.bodies;
  if (condition.type == CU_GRAPH_COND_TYPE_SWITCH) {
    return value < bodies.size() ? bodies[value] : 0;
  }
  if (value != 0) return bodies.empty() ? 0 : bodies[0];
  const bool has_else = condition.type == CU_GRAPH_COND_TYPE_IF && bodies.size() > 1;
  return has_else ? bodies[1] : 0;
}

}  // namespace

Work* PerformNodes(TimelineLock& lock, uint64_t handle, const Behind& behind, CUresult* result) {
  *result = CUDA_ERROR_INVALID_VALUE;
  Graph* graph = FindByHandle(handle);
  Vec<Node*> order{};
  if (graph == nullptr || !Sort(*graph, &order)) {
    order.Free();
    return nullptr;
  }
  Work* head = Join(lock, &behind.work, 1);
  const Behind at_head = {head, behind.priority, behind.pause};
  Vec<Work*> ends{};
  ends.Push(head);
  *result = head != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  for (Node* node : order) {
    if (*result == CUDA_SUCCESS) *result = PerformNode(lock, node, at_head);
    if (node->done != nullptr) ends.Push(node->done);
  }
  Work* tail = head != nullptr ? Join(lock, ends.data(), ends.size()) : nullptr;
  for (Node* node : order) {
    ReleaseWork(node->done);
    node->done = nullptr;
  }
  ReleaseWork(head);
  ends.Free();
  order.Free();
  return tail;
}

Work* PerformCondition(TimelineLock& lock, const Condition& condition, const Behind& behind,
                       CUresult* result) {
  const uint64_t body = SelectBody(condition);
  if (body != 0) return PerformNodes(lock, body, behind, result);
  *result = CUDA_SUCCESS;
  return Join(lock, &behind.work, 1);
}

}  // namespace sim::graph

namespace sim {

namespace graph {

namespace {

struct Block {
  CUdeviceptr address;
  uint32_t references;
  bool is_allocated;
};
constinit Vec<Block> blocks{};

Block* BlockAt(CUdeviceptr address) {
  for (Block& block : blocks) {
    if (block.address == address) return &block;
  }
  return nullptr;
}

}  // namespace

CUresult AllocateMemory(int device, size_t bytes, CUdeviceptr* address) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = memory::AllocateForGraph(device, bytes, address);
  if (result != CUDA_SUCCESS) return result;
  if (blocks.Push({*address, 1, false})) return CUDA_SUCCESS;
  memory::FreeForGraph(*address);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

void RetainMemory(CUdeviceptr address) {
  Block* block = BlockAt(address);
  if (block != nullptr) ++block->references;
}

void ReleaseMemory(CUdeviceptr address) {
  Block* block = BlockAt(address);
  if (block == nullptr || --block->references != 0) return;
  // What a launch left allocated outlives the graph: it is the program's to free.
  if (!block->is_allocated) memory::FreeForGraph(address);
  blocks.Erase(static_cast<size_t>(block - blocks.begin()));
}

bool NoteAllocated(CUdeviceptr address) {
  Block* block = BlockAt(address);
  if (block == nullptr || !memory::TakeForGraph(address)) return false;
  block->is_allocated = true;
  return true;
}

void NoteFreed(CUdeviceptr address) {
  Block* block = BlockAt(address);
  if (block != nullptr) block->is_allocated = false;
}

bool IsNodeMemory(CUdeviceptr address) { return BlockAt(address) != nullptr; }

bool FreeForProgram(CUdeviceptr address) {
  Block* block = BlockAt(address);
  if (block != nullptr) block->is_allocated = false;
  return block != nullptr;
}

bool IsIdle(CUdeviceptr address) {
  const Block* block = BlockAt(address);
  return block != nullptr && !block->is_allocated;
}

bool IsAllocated(CUdeviceptr address) {
  const Block* block = BlockAt(address);
  return block != nullptr && block->is_allocated;
}

}  // namespace graph

}  // namespace sim

// The exports are global, everything that they use is in sim.
using namespace sim;

extern "C" CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr,
                                                 void* value) {
  SIM_CALL(cuDeviceGetGraphMemAttribute, device, attr, value);
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  if (!device::IsValid(device)) return CUDA_ERROR_INVALID_DEVICE;
  memory::GraphMemory found = {};
  if (!memory::ReadGraphMemory(device, &found)) return CUDA_ERROR_OUT_OF_MEMORY;
  auto* out = static_cast<cuuint64_t*>(value);
  switch (attr) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
      *out = found.used_bytes;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
      *out = found.used_high_bytes;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
      *out = found.reserved_bytes;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      *out = found.reserved_high_bytes;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// Only the high-water marks can be set, and only to zero.
extern "C" CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr,
                                                 void* value) {
  SIM_CALL(cuDeviceSetGraphMemAttribute, device, attr, value);
  DriverLock lock;
  if (!device::IsValid(device)) return CUDA_ERROR_INVALID_DEVICE;
  const bool used = attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH;
  const bool reserved = attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
  const bool resets = value != nullptr && *static_cast<const cuuint64_t*>(value) == 0;
  if (!resets || (!used && !reserved)) return CUDA_ERROR_INVALID_VALUE;
  memory::ResetGraphMemoryPeaks(device, used, reserved);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuDeviceGraphMemTrim(CUdevice device) {
  SIM_CALL(cuDeviceGraphMemTrim, device);
  DriverLock lock;
  if (!device::IsValid(device)) return CUDA_ERROR_INVALID_DEVICE;
  for (const graph::Block& block : graph::blocks) {
    if (!block.is_allocated) memory::GiveForGraph(block.address);
  }
  memory::TrimGraphMemory(device);
  return CUDA_SUCCESS;
}
