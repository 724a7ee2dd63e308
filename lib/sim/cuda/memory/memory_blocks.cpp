// See memory_blocks.h; also how device bytes are charged and what ends with a context.
#include "cuda/memory/memory_blocks.h"

#include "cuda/devices/device.h"
#include "cuda/memory/arena.h"
#include "cuda/memory/ranges.h"
#include "cuda/pools/pool.h"
#include "machine/machine.h"

namespace sim::memory {

CUresult Begin(context::Context** context) {
  const CUresult rc = context::Current(context);
  if (rc != CUDA_SUCCESS) return rc;
  return stream::RefuseIfCapturing != nullptr ? stream::RefuseIfCapturing() : CUDA_SUCCESS;
}

void AwaitUse(uintptr_t address) {
  uint64_t context = 0;
  {
    DriverLock lock;
    const Range* range = FindRange(address);
    if (range == nullptr || range->base != address) return;
    const bool is_awaited = range->family == Family::kLinear || range->family == Family::kManaged ||
                            range->family == Family::kHost || range->family == Family::kRegistered;
    if (is_awaited) context = range->context;
  }
  if (context != 0 && stream::WaitForContext != nullptr) stream::WaitForContext(context);
}

CUresult BeginLow(context::Context** context) {
  const CUresult rc = Begin(context);
  if (rc != CUDA_SUCCESS) return rc;
  return (*context)->api_version < 3020 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

bool ChargeHidden(int device, uint64_t bytes) {
  if (device == heap::kNowhere) return true;
  const int physical = device::Physical(device);
  if (bytes == 0 || machine::Reserve(physical, bytes)) return true;
  // Managed pages of our own make room for memory that cannot move.
  return managed::Evict(device, bytes) > 0 && machine::Reserve(physical, bytes);
}

void ReleaseHidden(int device, uint64_t bytes) {
  if (bytes > 0 && device != heap::kNowhere) machine::Release(device::Physical(device), bytes);
}

heap::Block BlockOf(const Range& range) {
  return {.offset = range.arena_offset,
          .granule_bytes = range.charged_bytes,
          .units = static_cast<uint32_t>(range.detail),
          .device = range.device};
}

namespace {

constinit size_t g_ending = 0;  // ranges of that family

CUresult AddBlock(const context::Context& context, const heap::Block& block, uintptr_t base,
                  size_t bytes, CUdeviceptr* address) {
  Range range = {};
  range.base = base;
  range.bytes = bytes;
  range.family = Family::kLinear;
  range.accessible = true;
  range.device = context.device;
  range.context = context.handle;
  range.charged_bytes = block.granule_bytes;
  range.arena_offset = block.offset;
  range.detail = block.units;
  if (base == 0 || ranges::Add(range) == nullptr) {
    heap::Give(block);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = base;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult AddLinear(const context::Context& context, const heap::Block& block, size_t bytes,
                   CUdeviceptr* address) {
  return AddBlock(context, block, arena::AddressOf(block.offset), bytes, address);
}

CUresult AddLow(const context::Context& context, const heap::Block& block, size_t bytes,
                CUdeviceptr* address) {
  const uintptr_t base = arena::MapFileLow(block.granule_bytes, arena::Descriptor(), block.offset);
  const CUresult rc = AddBlock(context, block, base, bytes, address);
  if (rc != CUDA_SUCCESS && base != 0) arena::Unmap(base, block.granule_bytes);
  return rc;
}

void EndRange(Range* range) {
  switch (range->family) {
    case Family::kLinear:
    case Family::kEnding: {
      const heap::Block block = BlockOf(*range);
      if (range->family == Family::kEnding) --g_ending;
      if (range->flags != 0) arena::ClearMark(range->flags);  // it was exported
      if (range->base != arena::AddressOf(block.offset)) {
        arena::Unmap(range->base, block.granule_bytes);
      }
      heap::Give(block);
      break;
    }
    case Family::kManaged:
      managed::End(range);
      break;
    case Family::kHost:
      host::Unmap(*range);
      break;
    case Family::kImported:
      // A mapping begins at a granule, the memory in it perhaps later.
      arena::Unmap(range->base / machine::kGranuleBytes * machine::kGranuleBytes, range->detail);
      break;
    case Family::kGraph:
      if (graph::FreeForProgram != nullptr && graph::FreeForProgram(range->base)) return;
      pool::End(range);
      return;
    case Family::kPool:
      pool::End(range);
      return;  // the pool forgets the range itself
    case Family::kGlobal:
      arena::Give(range->arena_offset, heap::InGranules(range->bytes));
      break;
    case Family::kMapped:
    case Family::kReserved:
    case Family::kRegistered:
    case Family::kArray:  // its array gives the block back
      break;
  }
  ranges::Remove(range);
}

void EndLater(Range* range) {
  range->family = Family::kEnding;
  ++g_ending;
}

void EndFreed(int device) {
  uintptr_t from = 0;
  while (g_ending > 0) {
    Range* range = ranges::FirstFrom(from);
    if (range == nullptr) return;
    from = range->base + 1;
    if (range->family == Family::kEnding && range->device == device) EndRange(range);
  }
}

bool IsFreeable(CUdeviceptr address) {
  const Range* range = FindRange(address);
  if (range == nullptr || range->base != address) return false;
  if (graph::IsIdle != nullptr && graph::IsIdle(address)) return false;
  return range->family == Family::kLinear || range->family == Family::kManaged ||
         range->family == Family::kPool || range->family == Family::kGraph;
}

CUresult FreeAny(CUdeviceptr address) {
  if (address == 0) return CUDA_SUCCESS;
  if (!IsFreeable(address)) return CUDA_ERROR_INVALID_VALUE;
  Range* range = FindRange(address);
  if (range->family == Family::kPool) {
    pool::EndNow(range);
  } else {
    EndRange(range);
  }
  return CUDA_SUCCESS;
}

CUresult AllocateLinear(context::Context* context, size_t bytes, CUdeviceptr* address) {
  heap::Block block = {};
  const CUresult rc = heap::Take(context->device, context->handle, bytes, &block);
  return rc == CUDA_SUCCESS ? AddLinear(*context, block, bytes, address) : rc;
}

CUresult AllocateGlobal(const context::Context& context, size_t bytes, CUdeviceptr* address) {
  Range range = {};
  if (!arena::Take(heap::InGranules(bytes), &range.arena_offset)) return CUDA_ERROR_OUT_OF_MEMORY;
  range.base = arena::AddressOf(range.arena_offset);
  range.bytes = bytes;
  range.family = Family::kGlobal;
  range.accessible = true;
  range.device = context.device;
  range.context = context.handle;
  if (ranges::Add(range) == nullptr) {
    arena::Give(range.arena_offset, heap::InGranules(bytes));
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = range.base;
  return CUDA_SUCCESS;
}

void FreeGlobal(CUdeviceptr address) {
  Range* range = FindRange(address);
  if (range != nullptr && range->family == Family::kGlobal) EndRange(range);
}

}  // namespace sim::memory

namespace sim {

void EndMemoryOf(context::Context* context) {
  uintptr_t from = 0;
  while (memory::Range* range = ranges::FirstFrom(from)) {
    from = range->base + 1;
    if (range->context == context->handle) memory::EndRange(range);
  }
  pool::AfterContext(context->device);
}

}  // namespace sim
