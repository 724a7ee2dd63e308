// Memory of allocation nodes: an address for as long as any graph holds the node, and whether the
// last launch left it allocated. Must not know streams or captures.
#include "cuda/devices/device.h"
#include "cuda/graphs/graph.h"
#include "cuda/memory/memory.h"
#include "machine/calls.h"

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
