#include "hooks/memory/overflow_pool.h"

#include "device/capture_mode.h"
#include "hooks/memory/unified.h"
#include "hooks/pools/pool_release.h"
#include "real.h"

namespace gpufence {
namespace {

CUresult Make(const FencedDevice* device, CUmemoryPool* pool) {
  CUmemPoolProps props = {};
  props.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
  props.location.type = CU_MEM_LOCATION_TYPE_HOST;
  CUresult rc = real::cuMemPoolCreate(pool, &props);
  if (rc != CUDA_SUCCESS) return rc;
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device->ordinal;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  rc = real::cuMemPoolSetAccess(*pool, &access, 1);
  cuuint64_t everything = UINT64_MAX;
  if (rc == CUDA_SUCCESS) {
    rc = real::cuMemPoolSetAttribute(*pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &everything);
  }
  if (rc != CUDA_SUCCESS) real::cuMemPoolDestroy(*pool);
  return rc;
}

// Of threads that come first at once, one keeps its pool.
PoolAccount* Keep(Fence* fence, FencedDevice* device, CUmemoryPool pool) {
  PoolAccount* made =
      AddPool(fence, pool, {.ordinal = device->ordinal, .tier = Tier::kUnified, .stays = true});
  PoolAccount* kept = nullptr;
  if (made != nullptr &&
      device->overflow.compare_exchange_strong(kept, made, std::memory_order_acq_rel)) {
    NoteUnified();
    return made;
  }
  if (made != nullptr) ForgetPool(fence, pool);
  real::cuMemPoolDestroy(pool);
  if (made != nullptr) PoolDestroyed(fence, made);
  return kept;
}

}  // namespace

PoolAccount* OverflowPoolOf(Fence* fence, FencedDevice* device) {
  PoolAccount* account = device->overflow.load(std::memory_order_acquire);
  if (account != nullptr || device->lacks_overflow.load(std::memory_order_relaxed)) return account;
  const CaptureRelaxed relaxed;
  CUmemoryPool pool = nullptr;
  const CUresult rc = Make(device, &pool);
  if (rc == CUDA_SUCCESS) return Keep(fence, device, pool);
  if (rc != CUDA_ERROR_OUT_OF_MEMORY) {
    device->lacks_overflow.store(true, std::memory_order_relaxed);
  }
  return nullptr;
}

void TrimOverflowPools(Fence* fence) {
  for (uint32_t i = 0; i < fence->device_count; ++i) {
    PoolAccount* account = fence->devices[i].overflow.load(std::memory_order_acquire);
    if (account == nullptr) continue;
    const PoolRelease release(fence);
    const CaptureRelaxed relaxed;
    real::cuMemPoolTrimTo(HandleOf(account), 0);
    SettlePool(&fence->devices[i], account);
  }
}

}  // namespace gpufence
