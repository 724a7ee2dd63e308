// What a pool tells and lets be set: attributes and peer access.
#include "cuda/devices/device.h"
#include "cuda/pools/pool.h"
#include "machine/calls.h"
#include "machine/version.h"

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
