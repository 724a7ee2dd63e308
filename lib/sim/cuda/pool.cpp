// Memory pools: segments taken from the device, dealt in small pieces, given back when unused.
//
// Must not know streams: a freed piece is reusable at once, and its segment goes back at the next
// synchronisation or trim.  Nor the API's entry points (pool_api.cpp and its siblings).
#include "cuda/pool.h"

#include <unistd.h>

#include <algorithm>

#include "cuda/arena.h"
#include "cuda/device.h"
#include "cuda/heap.h"
#include "cuda/ranges.h"
#include "machine/config.h"

namespace sim::pool {
namespace {

// A pool grows by this much at a time, as an H200's does; by less only where that would not fit.
constexpr uint64_t kSegmentBytes = uint64_t{32} << 20;
constexpr uint32_t kAllReuseFlags = ~0u;

constinit Table<Pool, Kind::kMemoryPool> g_pools;
constinit uint64_t g_defaults[kMaxDevices] = {};
constinit uint64_t g_currents[kMaxDevices] = {};
constinit uint64_t g_graph_pools[kMaxDevices] = {};

Pool* DevicePool(uint64_t* handle, int device) {
  if (*handle != 0) return g_pools.Find(*handle);
  Pool* pool = Create();
  if (pool == nullptr) return nullptr;
  pool->device = device;
  pool->location_type = CU_MEM_LOCATION_TYPE_DEVICE;
  pool->location_id = device;
  pool->is_default = true;
  *handle = pool->handle;
  return pool;
}

// Index of the segment that holds an offset.
size_t SegmentOf(Pool* pool, uint64_t offset) {
  size_t index = 0;
  while (offset - pool->segments[index].offset >= pool->segments[index].bytes) ++index;
  return index;
}

// Index of the first hole behind an offset.
size_t HoleBehind(Pool* pool, uint64_t offset) {
  const Hole* hole = std::upper_bound(
      pool->holes.begin(), pool->holes.end(), offset,
      [](uint64_t wanted, const Hole& candidate) { return wanted < candidate.offset; });
  return static_cast<size_t>(hole - pool->holes.begin());
}

// There are never more holes than pieces and segments together; room for one more of either.
bool ReserveHole(Pool* pool) {
  return pool->holes.Reserve(pool->piece_count + pool->segments.size() + 2);
}

bool AddSegment(Pool* pool, uint64_t bytes) {
  if (pool->max_bytes != 0 && pool->reserved_bytes + bytes > pool->max_bytes) return false;
  if (!pool->segments.Reserve(pool->segments.size() + 1) || !ReserveHole(pool)) return false;
  if (pool->device >= 0 && !memory::ChargeHidden(pool->device, bytes)) return false;
  uint64_t offset = 0;
  if (!arena::Take(bytes, &offset)) {
    if (pool->device >= 0) memory::ReleaseHidden(pool->device, bytes);
    return false;
  }
  pool->holes.Insert(HoleBehind(pool, offset), {offset, bytes});
  pool->segments.Push({.offset = offset, .bytes = bytes, .used_bytes = 0});
  pool->reserved_bytes += bytes;
  pool->reserved_high_bytes = std::max(pool->reserved_high_bytes, pool->reserved_bytes);
  return true;
}

void DropSegment(Pool* pool, size_t index) {
  const Segment segment = pool->segments[index];
  pool->holes.Erase(HoleBehind(pool, segment.offset) - 1);
  pool->segments.Erase(index);
  pool->reserved_bytes -= segment.bytes;
  arena::Give(segment.offset, segment.bytes);
  if (pool->device >= 0) memory::ReleaseHidden(pool->device, segment.bytes);
}

bool Grow(Pool* pool, uint64_t bytes) {
  const uint64_t least_bytes = heap::InGranules(bytes);
  if (least_bytes == 0 || least_bytes > UINT64_MAX - kSegmentBytes) return false;
  const uint64_t usual_bytes = (bytes + kSegmentBytes - 1) / kSegmentBytes * kSegmentBytes;
  if (AddSegment(pool, usual_bytes) || AddSegment(pool, least_bytes)) return true;
  Trim(pool, 0);  // unused segments that are each too small
  return AddSegment(pool, usual_bytes) || AddSegment(pool, least_bytes);
}

// Cuts a piece out of the first hole that has room.
bool Cut(Pool* pool, uint64_t bytes, uint64_t* offset) {
  for (size_t index = 0; index < pool->holes.size(); ++index) {
    Hole& hole = pool->holes[index];
    if (hole.bytes < bytes) continue;
    *offset = hole.offset;
    hole.offset += bytes;
    hole.bytes -= bytes;
    if (hole.bytes == 0) pool->holes.Erase(index);
    pool->segments[SegmentOf(pool, *offset)].used_bytes += bytes;
    pool->used_bytes += bytes;
    ++pool->piece_count;
    pool->used_high_bytes = std::max(pool->used_high_bytes, pool->used_bytes);
    return true;
  }
  return false;
}

// Makes a piece a hole again, joined with its neighbours in the same segment.
void Return(Pool* pool, uint64_t offset, uint64_t bytes) {
  Segment& segment = pool->segments[SegmentOf(pool, offset)];
  segment.used_bytes -= bytes;
  pool->used_bytes -= bytes;
  --pool->piece_count;
  size_t at = HoleBehind(pool, offset);
  const bool has_right = at < pool->holes.size() && pool->holes[at].offset == offset + bytes &&
                         pool->holes[at].offset - segment.offset < segment.bytes;
  if (has_right) {
    bytes += pool->holes[at].bytes;
    pool->holes.Erase(at);
  }
  const bool has_left = at > 0 && pool->holes[at - 1].offset >= segment.offset &&
                        pool->holes[at - 1].offset + pool->holes[at - 1].bytes == offset;
  if (has_left) {
    pool->holes[at - 1].bytes += bytes;
  } else {
    pool->holes.Insert(at, {offset, bytes});  // cannot fail: Allocate reserved the room
  }
}

uint64_t InUnits(uint64_t bytes) {
  return (bytes + heap::kUnitBytes - 1) / heap::kUnitBytes * heap::kUnitBytes;
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
  pool->imported_fd = -1;
  return pool;
}

void Destroy(Pool* pool) {
  pool->is_destroyed = true;
  Trim(pool, 0);
  if (pool->used_bytes > 0) return;  // the last of its allocations comes back here
  if (pool->imported_fd >= 0) close(pool->imported_fd);
  pool->segments.Free();
  pool->holes.Free();
  g_pools.Destroy(pool->handle);
}

CUresult Allocate(Pool* pool, size_t bytes, memory::Family family, CUdeviceptr* address) {
  if (bytes > SIZE_MAX / 2) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t unit_bytes = InUnits(bytes);
  uint64_t offset = 0;
  if (!ReserveHole(pool) ||
      (!Cut(pool, unit_bytes, &offset) &&
       !(Grow(pool, unit_bytes) && Cut(pool, unit_bytes, &offset)))) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memory::Range range = {};
  range.base = arena::AddressOf(offset);
  range.bytes = bytes;
  range.family = family;
  range.accessible = true;
  range.device = pool->device;
  range.context = CurrentContext();
  range.pool = pool->handle;
  range.arena_offset = offset;
  range.detail = unit_bytes;
  if (ranges::Add(range) == nullptr) {
    Return(pool, offset, unit_bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = range.base;
  return CUDA_SUCCESS;
}

void End(memory::Range* range) {
  Pool* pool = g_pools.Find(range->pool);
  Return(pool, range->arena_offset, range->detail);
  ranges::Remove(range);
  if (pool->is_destroyed) Destroy(pool);
}

void Trim(Pool* pool, uint64_t keep_bytes) {
  for (size_t index = pool->segments.size(); index-- > 0 && pool->reserved_bytes > keep_bytes;) {
    if (pool->segments[index].used_bytes == 0) DropSegment(pool, index);
  }
}

void AfterContext(int device) {
  g_pools.ForEach([&](uint64_t, Pool* pool) {
    if (pool->device == device) Trim(pool, 0);
  });
}

CUresult RefuseIfCapturing() {
  return stream::RefuseIfCapturing != nullptr ? stream::RefuseIfCapturing() : CUDA_SUCCESS;
}

}  // namespace sim::pool

namespace sim::memory {

void AfterSynchronize(int device) {
  DriverLock lock;
  pool::g_pools.ForEach([&](uint64_t, pool::Pool* pool) {
    if (pool->device == device && !pool->is_graph) pool::Trim(pool, pool->release_threshold);
  });
}

CUresult AllocateFromPool(int device, uint64_t handle, size_t bytes, CUdeviceptr* address) {
  pool::Pool* pool =
      handle == 0 ? pool::CurrentOf(device) : pool::Find(AsHandle<CUmemoryPool>(handle));
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return pool::Allocate(pool, bytes, Family::kPool, address);
}

CUresult FreeToPool(CUdeviceptr address) {
  Range* range = FindRange(address);
  if (range == nullptr || range->base != address || range->family != Family::kPool) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  pool::End(range);
  return CUDA_SUCCESS;
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
