// Memory pools: blocks reserved from the device, used in small pieces, kept or given back; what a
// pool tells and lets be set: attributes and peer access.
//
// Where a piece goes is the space's affair (pool_space.cpp); the memory of graphs is counted in
// steps and not placed. Must not know streams: a freed piece is reusable at once, and its blocks go
// back at the next synchronisation, or trim behind one.
#include "cuda/pools/pool.h"

#include <algorithm>

#include "cuda/devices/device.h"
#include "cuda/memory/arena.h"
#include "cuda/memory/heap.h"
#include "cuda/memory/memory_blocks.h"
#include "cuda/memory/ranges.h"
#include "cuda/sharing/sharing.h"
#include "machine/calls.h"
#include "machine/config.h"
#include "machine/version.h"

namespace sim::pool {
namespace {

constexpr uint32_t kAllReuseFlags = ~0u;

constinit Table<Pool, Kind::kMemoryPool> g_pools;
constinit uint64_t g_defaults[kMaxDevices] = {};
constinit uint64_t g_currents[kMaxDevices] = {};
constinit uint64_t g_host_default = 0;
constinit uint64_t g_graph_pools[kMaxDevices] = {};

Pool* DevicePool(uint64_t* handle, int device) {
  if (*handle != 0) return g_pools.Find(*handle);
  Pool* pool = Create();
  if (pool == nullptr) return nullptr;
  const bool on_device = device >= 0;
  pool->device = device;
  pool->location_type = on_device ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_HOST;
  pool->location_id = on_device ? device : 0;
  pool->location_domain = -1;
  pool->is_default = true;
  *handle = pool->handle;
  return pool;
}

// Bytes in whole blocks; saturates, which no device can hold.
uint64_t InBlocks(uint64_t bytes) {
  if (bytes > UINT64_MAX - kBlockBytes) return UINT64_MAX;
  return (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

bool GrowTo(Pool* pool, uint64_t reserved_bytes) {
  if (reserved_bytes <= pool->reserved_bytes) return true;
  if (pool->max_bytes != 0 && reserved_bytes > InBlocks(pool->max_bytes)) return false;
  const uint64_t more_bytes = reserved_bytes - pool->reserved_bytes;
  if (pool->device >= 0 && !memory::ChargeHidden(pool->device, more_bytes)) return false;
  pool->reserved_bytes = reserved_bytes;
  pool->reserved_high_bytes = std::max(pool->reserved_high_bytes, reserved_bytes);
  return true;
}

void Shrink(Pool* pool, uint64_t reserved_bytes) {
  const uint64_t freed_bytes = pool->reserved_bytes - reserved_bytes;
  pool->reserved_bytes = reserved_bytes;
  if (pool->device >= 0) memory::ReleaseHidden(pool->device, freed_bytes);
}

// Makes room for `bytes` more of a graph's: in whole blocks, or where they do not fit in granules.
bool MakeRoom(Pool* pool, uint64_t bytes) {
  const uint64_t wanted_bytes = pool->used_bytes + bytes;
  return GrowTo(pool, InBlocks(wanted_bytes)) || GrowTo(pool, heap::InGranules(wanted_bytes));
}

// Puts physical memory under a piece: idle blocks first, then new ones.  What was got before the
// device had no more stays with the pool, as it does on an H200.
bool Back(Pool* pool, uint64_t offset, uint64_t bytes) {
  while (Block* block = FirstUnbacked(&pool->space, offset, bytes)) {
    Block* idle = LastIdle(&pool->space, /*settled=*/false);
    if (idle != nullptr) {
      Unback(idle);
    } else if (!GrowTo(pool, pool->reserved_bytes + kBlockBytes)) {
      return false;
    }
    block->is_backed = true;
  }
  return true;
}

// Finds addresses for a piece, and memory unless it is a graph's.
bool FindRoom(Pool* pool, uint64_t bytes, bool counted, uint64_t* offset) {
  if (!counted) return arena::Take(heap::InGranules(bytes), offset);
  if (!Place(&pool->space, bytes, offset)) return false;
  if (Back(pool, *offset, bytes)) return true;
  Vacate(&pool->space, *offset, bytes);
  return false;
}

void CountUse(Pool* pool, uint64_t bytes) {
  pool->used_bytes += bytes;
  pool->used_high_bytes = std::max(pool->used_high_bytes, pool->used_bytes);
  ++pool->piece_count;
}

// Memory of a graph's node has its address from the start, but bytes only while `detail` is set.
bool IsCounted(const memory::Range& range) {
  return range.family != memory::Family::kGraph || range.detail != 0;
}

void Return(Pool* pool, const memory::Range& range) {
  if (range.family == memory::Family::kGraph) {
    arena::Give(range.arena_offset, heap::InGranules(range.bytes));
  } else {
    Vacate(&pool->space, range.arena_offset, range.bytes);
  }
  if (!IsCounted(range)) return;
  pool->used_bytes -= range.bytes;
  --pool->piece_count;
}

// The pool loses a block that its file keeps.
void LeaveToFile(Pool* pool, Block* block) {
  block->is_exported = false;
  block->is_left = true;
  machine::ChangePoolFile(pool->file, -int64_t{kBlockBytes}, kBlockBytes);
}

uint64_t CurrentContext() {
  context::Context* context = nullptr;
  return context::Current(&context) == CUDA_SUCCESS ? context->handle : 0;
}

}  // namespace

Pool* Find(CUmemoryPool handle) {
  Pool* pool = g_pools.Find(handle);
  return pool != nullptr && !pool->is_destroyed && !pool->is_graph ? pool : nullptr;
}

Pool* DefaultOf(int device) { return DevicePool(&g_defaults[device], device); }

Pool* DefaultOfHost() { return DevicePool(&g_host_default, -1); }

Pool* CurrentOf(int device) {
  Pool* pool = g_currents[device] != 0 ? Find(AsHandle<CUmemoryPool>(g_currents[device])) : nullptr;
  return pool != nullptr ? pool : DefaultOf(device);
}

void SetCurrent(int device, const Pool& pool) { g_currents[device] = pool.handle; }

Pool* GraphPoolOf(int device) {
  Pool* pool = DevicePool(&g_graph_pools[device], device);
  if (pool != nullptr) pool->is_graph = true;
  return pool;
}

Pool* Create() {
  uint64_t handle = 0;
  Pool* pool = g_pools.Create(&handle);
  if (pool == nullptr) return nullptr;
  pool->handle = handle;
  pool->allocation_type = CU_MEM_ALLOCATION_TYPE_PINNED;
  pool->reuse_flags = kAllReuseFlags;
  pool->file = {};
  return pool;
}

void Destroy(Pool* pool) {
  pool->is_destroyed = true;
  Settle(&pool->space);
  Trim(pool, 0);
  if (pool->piece_count > 0) return;  // the last of its allocations comes back here
  End(&pool->space);
  if (pool->file.fd >= 0) machine::LetGo(&pool->file);
  g_pools.Destroy(pool->handle);
}

CUresult Allocate(Pool* pool, size_t bytes, memory::Family family, CUdeviceptr* address) {
  *address = 0;
  if (bytes == 0) return CUDA_SUCCESS;
  const bool counted = family != memory::Family::kGraph;
  memory::Range range = {};
  if (bytes > SIZE_MAX / 2 || !FindRoom(pool, bytes, counted, &range.arena_offset)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  range.base = arena::AddressOf(range.arena_offset);
  range.bytes = bytes;
  range.family = family;
  range.accessible = true;
  range.device = pool->device;
  range.context = CurrentContext();
  range.pool = pool->handle;
  if (counted) CountUse(pool, bytes);
  if (ranges::Add(range) == nullptr) {
    Return(pool, range);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = range.base;
  return CUDA_SUCCESS;
}

void End(memory::Range* range) {
  Pool* pool = g_pools.Find(range->pool);
  Return(pool, *range);
  ranges::Remove(range);
  if (pool->is_destroyed) Destroy(pool);
}

void EndNow(memory::Range* range) {
  Pool* pool = g_pools.Find(range->pool);
  const uint64_t bytes = range->bytes;
  const bool is_kept = !pool->is_destroyed;
  End(range);
  if (!is_kept) return;
  pool->used_bytes += bytes;
  Settle(&pool->space);
  Trim(pool, pool->release_threshold);
}

void Trim(Pool* pool, uint64_t keep_bytes) {
  if (pool->is_graph) {
    const uint64_t floor_bytes = InBlocks(std::max(pool->used_bytes, keep_bytes));
    if (floor_bytes < pool->reserved_bytes) Shrink(pool, floor_bytes);
    return;
  }
  while (pool->reserved_bytes >= kBlockBytes && pool->reserved_bytes - kBlockBytes >= keep_bytes) {
    Block* idle = LastIdle(&pool->space, /*settled=*/true);
    if (idle == nullptr) return;
    if (idle->is_exported) LeaveToFile(pool, idle);
    dma_buf::Leave(idle->offset);
    Unback(idle);
    Shrink(pool, pool->reserved_bytes - kBlockBytes);
  }
}

void ExportBlocks(Pool* pool, uint64_t offset, uint64_t bytes) {
  for (Block& block : pool->space.blocks) {
    const bool is_under = block.offset < offset + bytes && block.offset + kBlockBytes > offset;
    if (!is_under || block.is_exported) continue;
    block.is_exported = true;
    machine::ChangePoolFile(pool->file, kBlockBytes, block.is_left ? -int64_t{kBlockBytes} : 0);
    block.is_left = false;
  }
}

void AfterContext(int device) {
  g_pools.ForEach([&](uint64_t, Pool* pool) {
    if (pool->device != device) return;
    Settle(&pool->space);
    Trim(pool, 0);
  });
}

CUresult RefuseIfCapturing() {
  return stream::RefuseIfCapturing != nullptr ? stream::RefuseIfCapturing() : CUDA_SUCCESS;
}

}  // namespace sim::pool

namespace sim::memory {

void AfterSynchronize(int device) {
  DriverLock lock;
  EndFreed(device);
  pool::g_pools.ForEach([&](uint64_t, pool::Pool* pool) {
    const bool is_elsewhere = pool->device >= 0 && pool->device != device;
    if (is_elsewhere || pool->is_graph) return;
    pool::Settle(&pool->space);
    pool::Trim(pool, pool->release_threshold);
  });
}

CUresult AllocateForGraph(int device, size_t bytes, CUdeviceptr* address) {
  pool::Pool* pool = pool::GraphPoolOf(device);
  if (pool == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  return pool::Allocate(pool, bytes, Family::kGraph, address);
}

CUresult FreeForGraph(CUdeviceptr address) {
  Range* range = FindRange(address);
  if (range == nullptr || range->base != address || range->family != Family::kGraph) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  pool::End(range);
  return CUDA_SUCCESS;
}

bool TakeForGraph(CUdeviceptr address) {
  Range* range = FindRange(address);
  if (range == nullptr || range->family != Family::kGraph) return false;
  if (range->detail != 0) return true;
  pool::Pool* pool = pool::GraphPoolOf(range->device);
  if (!pool::MakeRoom(pool, range->bytes)) return false;
  pool::CountUse(pool, range->bytes);
  range->detail = 1;
  return true;
}

void GiveForGraph(CUdeviceptr address) {
  Range* range = FindRange(address);
  if (range == nullptr || range->family != Family::kGraph || range->detail == 0) return;
  pool::Pool* pool = pool::GraphPoolOf(range->device);
  pool->used_bytes -= range->bytes;
  --pool->piece_count;
  range->detail = 0;
}

bool ReadGraphMemory(int device, GraphMemory* result) {
  const pool::Pool* pool = pool::GraphPoolOf(device);
  if (pool == nullptr) return false;
  *result = {.used_bytes = pool->used_bytes,
             .used_high_bytes = pool->used_high_bytes,
             .reserved_bytes = pool->reserved_bytes,
             .reserved_high_bytes = pool->reserved_high_bytes};
  return true;
}

void ResetGraphMemoryPeaks(int device, bool used, bool reserved) {
  pool::Pool* pool = pool::GraphPoolOf(device);
  if (pool == nullptr) return;
  if (used) pool->used_high_bytes = pool->used_bytes;
  if (reserved) pool->reserved_high_bytes = pool->reserved_bytes;
}

void TrimGraphMemory(int device) {
  pool::Pool* pool = pool::GraphPoolOf(device);
  if (pool != nullptr) pool::Trim(pool, 0);
}

}  // namespace sim::memory

namespace {

using sim::DriverLock;
using sim::pool::Pool;

bool IsReuseFlag(CUmemPool_attribute attribute) {
  return attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
         attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

// The 64-bit attributes; false for an attribute that is none.
bool ReadBytes(const Pool& pool, CUmemPool_attribute attribute, uint64_t* value) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      *value = pool.release_threshold;
      return true;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      *value = pool.reserved_bytes;
      return true;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      *value = pool.reserved_high_bytes;
      return true;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      *value = pool.used_bytes;
      return true;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      *value = pool.used_high_bytes;
      return true;
    case CU_MEMPOOL_ATTR_MAX_POOL_SIZE:
      *value = pool.max_bytes;
      return true;
    default:
      return false;
  }
}

// The attributes that are an int or an enum.
bool ReadInt(const Pool& pool, CUmemPool_attribute attribute, int* value) {
  if (IsReuseFlag(attribute)) {
    *value = pool.reuse_flags >> attribute & 1;
    return true;
  }
  switch (attribute) {
    case CU_MEMPOOL_ATTR_ALLOCATION_TYPE:
      *value = static_cast<int>(pool.allocation_type);
      return true;
    case CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES:
      *value = static_cast<int>(pool.handle_types);
      return true;
    case CU_MEMPOOL_ATTR_LOCATION_ID:
      *value = pool.location_id;
      return true;
    case CU_MEMPOOL_ATTR_LOCATION_TYPE:
      *value = static_cast<int>(pool.location_type);
      return true;
    case CU_MEMPOOL_ATTR_LOCALITY_DOMAIN_ID:
      *value = pool.location_domain;
      return sim::ConfiguredDriver().cuda_version >= 13040;
    case CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED:
      *value = 0;
      return true;
    default:
      return false;
  }
}

// Peaks can only be reset.
CUresult Write(Pool* pool, CUmemPool_attribute attribute, const void* value) {
  if (IsReuseFlag(attribute)) {
    const uint32_t bit = 1u << attribute;
    const bool enabled = *static_cast<const int*>(value) != 0;
    pool->reuse_flags = enabled ? pool->reuse_flags | bit : pool->reuse_flags & ~bit;
    return CUDA_SUCCESS;
  }
  const uint64_t bytes = *static_cast<const uint64_t*>(value);
  if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
    pool->release_threshold = bytes;
    return CUDA_SUCCESS;
  }
  if (bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) {
    pool->reserved_high_bytes = pool->reserved_bytes;
  } else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
    pool->used_high_bytes = pool->used_bytes;
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  SIM_CALL(cuMemPoolGetAttribute, pool, attr, value);
  DriverLock lock;
  const CUresult capturing = sim::pool::RefuseIfCapturing();
  if (capturing != CUDA_SUCCESS) return capturing;
  const Pool* found = sim::pool::Find(pool);
  if (found == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool known = ReadBytes(*found, attr, static_cast<uint64_t*>(value)) ||
                     ReadInt(*found, attr, static_cast<int*>(value));
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  SIM_CALL(cuMemPoolSetAttribute, pool, attr, value);
  DriverLock lock;
  Pool* found = sim::pool::Find(pool);
  if (found == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Write(found, attr, value);
}

// A pool's own device cannot lose access.
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, size_t count) {
  SIM_CALL(cuMemPoolSetAccess, pool, map, count);
  DriverLock lock;
  Pool* found = sim::pool::Find(pool);
  if (found == nullptr || (map == nullptr && count > 0)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t index = 0; index < count; ++index) {
    const CUmemAccessDesc& access = map[index];
    if (access.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    if (!sim::device::IsValid(access.location.id)) return CUDA_ERROR_INVALID_DEVICE;
    const bool allowed = access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (!allowed && access.location.id == found->device) return CUDA_ERROR_INVALID_DEVICE;
    const auto bit = static_cast<uint16_t>(1u << access.location.id);
    found->accessible_mask = static_cast<uint16_t>(allowed ? found->accessible_mask | bit
                                                           : found->accessible_mask & ~bit);
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool memPool,
                            CUmemLocation* location) {
  SIM_CALL(cuMemPoolGetAccess, flags, memPool, location);
  DriverLock lock;
  const Pool* found = sim::pool::Find(memPool);
  if (flags == nullptr || found == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (!sim::device::IsValid(location->id)) return CUDA_ERROR_INVALID_DEVICE;
  const bool allowed =
      location->id == found->device || (found->accessible_mask >> location->id & 1) != 0;
  *flags = allowed ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

}  // extern "C"
