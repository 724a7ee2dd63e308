// Pools as things that are made, trimmed and destroyed; what they cost is pool_account's.
#include "device/ids.h"
#include "hooks/fence.h"
#include "hooks/memory/overflow_pool.h"
#include "hooks/pools/current_pool.h"
#include "hooks/pools/pool_account.h"
#include "hooks/pools/pool_release.h"
#include "hooks/unknown_place.h"
#include "real.h"

using gpufence::Fence;
using gpufence::Hook;
using gpufence::Place;
using gpufence::PoolAccount;

namespace {

// Who pays for a pool at this location. Managed pools may be nowhere in particular: then the device
// of the stream that allocates pays, as for a pool that we did not see being made.
bool KnowsPayer(const CUmemPoolProps& props, gpufence::PoolKind* kind) {
  const gpufence::Location where = gpufence::LocationOf(props.location);
  // Other processes open it by its handle, or its own size bounds it.
  kind->stays = props.handleTypes != CU_MEM_HANDLE_TYPE_NONE || props.maxSize != 0;
  kind->ordinal =
      where.place == Place::kDevice ? static_cast<int32_t>(where.ordinal) : gpufence::kHostPool;
  return where.place != Place::kNowhere;
}

bool HasUnknownPlace(const Fence* fence, const CUmemPoolProps* props) {
  return fence != nullptr && props != nullptr &&
         gpufence::LocationOf(props->location).place == Place::kUnknown;
}

// The pools of the host and of parts of a device are there from the start; who asks for one is
// about to use it, perhaps from another device. Of an unknown place the device that uses it pays.
CUresult KnowPool(const Hook& hook, const CUmemLocation* location, const CUmemoryPool* pool,
                  CUresult rc) {
  if (rc != CUDA_SUCCESS || hook.fence() == nullptr) return rc;
  const gpufence::Location where = gpufence::LocationOf(*location);
  if (where.place == Place::kHost) {
    gpufence::AccountOf(hook.fence(), *pool, gpufence::kHostPool);
  } else if (where.place == Place::kDevice) {
    gpufence::AccountOf(hook.fence(), *pool, static_cast<int32_t>(where.ordinal));
  }
  return rc;
}

}  // namespace

extern "C" {

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  const Hook hook;
  if (hook.refused()) return gpufence::kRefusalCode;
  Fence* fence = hook.fence();
  if (HasUnknownPlace(fence, poolProps)) {
    return gpufence::RefuseUnknownPlace("cuMemPoolCreate", poolProps->location);
  }
  const CUresult rc = real::cuMemPoolCreate(pool, poolProps);
  gpufence::PoolKind kind = {};
  if (rc != CUDA_SUCCESS || fence == nullptr || !KnowsPayer(*poolProps, &kind)) return rc;
  if (gpufence::AddPool(fence, *pool, kind) != nullptr) return rc;
  real::cuMemPoolDestroy(*pool);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool_out, CUmemLocation* location,
                                CUmemAllocationType type) {
  const Hook hook;
  if (hook.refused()) return gpufence::kRefusalCode;
  const CUresult rc = real::cuMemGetDefaultMemPool(pool_out, location, type);
  return KnowPool(hook, location, pool_out, rc);
}

CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  const Hook hook;
  if (hook.refused()) return gpufence::kRefusalCode;
  const CUresult rc = real::cuMemGetMemPool(pool, location, type);
  return KnowPool(hook, location, pool, rc);
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  const Hook hook;
  Fence* fence = hook.fence();
  if (fence == nullptr) return real::cuMemPoolDestroy(pool);
  // Out of the table first: the handle may be another pool's the moment the call returns.
  PoolAccount* account = gpufence::ForgetPool(fence, pool);
  const gpufence::PoolRelease release(fence);
  const gpufence::PoolChoice choice(fence);
  const CUresult rc = real::cuMemPoolDestroy(pool);
  if (account == nullptr) return rc;
  if (rc == CUDA_SUCCESS) {
    gpufence::PoolDestroyed(fence, account);
  } else {
    gpufence::RestorePool(fence, pool, account);
  }
  return rc;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
  const Hook hook;
  const gpufence::PoolRelease release(hook.fence());
  const CUresult rc = real::cuMemPoolTrimTo(pool, minBytesToKeep);
  if (rc == CUDA_SUCCESS && hook.fence() != nullptr) {
    gpufence::SettlePool(hook.fence(), pool);
    gpufence::TrimOverflowPools(hook.fence());
  }
  return rc;
}

}  // extern "C"
