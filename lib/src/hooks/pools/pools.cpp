#include "hooks/pools/pools.h"

#include <stddef.h>

#include "base/forked.h"
#include "device/context_scope.h"
#include "device/ids.h"
#include "hooks/fence.h"
#include "hooks/memory/managed.h"
#include "hooks/pools/pool_account.h"
#include "real.h"

namespace gpufence {

// ---- accounts: made once and used again, found by handle through the holdings ----

namespace {

PoolAccount* Slab(PoolTable* table, size_t index) {
  PoolAccount* slab = table->slabs[index].load(std::memory_order_acquire);
  if (slab != nullptr) return slab;
  slab = static_cast<PoolAccount*>(
      MapWipedOnFork((PoolTable::kFirstSlab << index) * sizeof(PoolAccount)));
  table->slabs[index].store(slab, std::memory_order_release);
  return slab;
}

// The n-th account ever made; slab k begins at kFirstSlab * (2^k - 1).
PoolAccount* Nth(PoolTable* table, uint32_t n) {
  const uint64_t shifted = n / PoolTable::kFirstSlab + 1;
  const size_t index = 63 - static_cast<size_t>(__builtin_clzll(shifted));
  if (index >= PoolTable::kSlabs) return nullptr;
  PoolAccount* slab = Slab(table, index);
  if (slab == nullptr) return nullptr;
  return &slab[n - PoolTable::kFirstSlab * ((uint64_t{1} << index) - 1)];
}

// Lock held.
PoolAccount* NewAccount(PoolTable* table) {
  PoolAccount* account = table->free;
  if (account != nullptr) {
    table->free = account->next_free;
    return account;
  }
  const uint32_t made = table->made.load(std::memory_order_relaxed);
  account = Nth(table, made);
  if (account != nullptr) table->made.store(made + 1, std::memory_order_release);
  return account;
}

// Lock held.
PoolAccount* Register(Fence* fence, CUmemoryPool pool, const PoolKind& kind) {
  PoolAccount* account = NewAccount(&fence->pools);
  if (account == nullptr) return nullptr;
  account->payer = kind.ordinal == kHostPool
                       ? nullptr
                       : FencedOrdinal(fence, static_cast<uint32_t>(kind.ordinal));
  account->tier = kind.tier;
  account->stays = kind.stays;
  account->destroyed.store(false, std::memory_order_relaxed);
  account->handle.store(reinterpret_cast<uint64_t>(pool), std::memory_order_release);
  Holding holding = {};
  holding.key = reinterpret_cast<uint64_t>(pool);
  holding.owner = reinterpret_cast<uint64_t>(account);
  holding.kind = HoldingKind::kPool;
  if (fence->holdings.Put(holding)) return account;
  account->handle.store(0, std::memory_order_relaxed);
  account->next_free = fence->pools.free;
  fence->pools.free = account;
  return nullptr;
}

}  // namespace

PoolAccount* NthAccount(PoolTable* table, uint32_t n) { return Nth(table, n); }

void RecycleAccount(Fence* fence, PoolAccount* account) {
  SpinGuard guard(&fence->pools.lock);
  account->next_free = fence->pools.free;
  fence->pools.free = account;
}

PoolAccount* AddPool(Fence* fence, CUmemoryPool pool, const PoolKind& kind) {
  SpinGuard guard(&fence->pools.lock);
  return Register(fence, pool, kind);
}

PoolAccount* FindAccountOf(Fence* fence, CUmemoryPool pool, int32_t default_ordinal) {
  const auto key = reinterpret_cast<uint64_t>(pool);
  Holding holding;
  if (!fence->holdings.Get(HoldingKind::kPool, key, &holding)) {
    SpinGuard guard(&fence->pools.lock);
    if (!fence->holdings.Get(HoldingKind::kPool, key, &holding)) {
      return Register(fence, pool, {.ordinal = default_ordinal});
    }
  }
  this_thread.last_pool = reinterpret_cast<PoolAccount*>(holding.owner);
  return this_thread.last_pool;
}

PoolAccount* ForgetPool(Fence* fence, CUmemoryPool pool) {
  Holding holding;
  if (!fence->holdings.Take(HoldingKind::kPool, reinterpret_cast<uint64_t>(pool), &holding)) {
    return nullptr;
  }
  return reinterpret_cast<PoolAccount*>(holding.owner);
}

void RestorePool(Fence* fence, CUmemoryPool pool, PoolAccount* account) {
  Holding holding = {};
  holding.key = reinterpret_cast<uint64_t>(pool);
  holding.owner = reinterpret_cast<uint64_t>(account);
  holding.kind = HoldingKind::kPool;
  fence->holdings.Put(holding);
}

// ---- the pool that serves where none is named ----

namespace {

CUmemoryPool AskDriverForPool(uint32_t ordinal) {
  CUmemoryPool pool = nullptr;
  const CUresult rc = real::cuDeviceGetMemPool(&pool, static_cast<CUdevice>(ordinal));
  return rc == CUDA_SUCCESS ? pool : nullptr;
}

}  // namespace

CUmemoryPool AskCurrentPool(Fence* fence, uint32_t ordinal) {
  FencedDevice* device = FencedOrdinal(fence, ordinal);
  if (device == nullptr) return AskDriverForPool(ordinal);

  PoolChoices* choices = &fence->pool_choices;
  choices->lock.Lock();
  const uint64_t changes = choices->changes;
  choices->lock.Unlock();
  CUmemoryPool pool = AskDriverForPool(ordinal);
  SpinGuard guard(&choices->lock);
  if (choices->changing == 0 && choices->changes == changes) {
    device->current_pool.store(reinterpret_cast<uint64_t>(pool), std::memory_order_release);
  }
  return pool;
}

PoolChoice::PoolChoice(Fence* fence) : fence_(fence) {
  if (fence == nullptr) return;
  SpinGuard guard(&fence->pool_choices.lock);
  ++fence->pool_choices.changing;
  ++fence->pool_choices.changes;
  for (uint32_t i = 0; i < fence->device_count; ++i) {
    fence->devices[i].current_pool.store(0, std::memory_order_release);
  }
}

PoolChoice::~PoolChoice() {
  if (fence_ == nullptr) return;
  SpinGuard guard(&fence_->pool_choices.lock);
  --fence_->pool_choices.changing;
  ++fence_->pool_choices.changes;
}

// ---- overflow pools ----

namespace {

CUresult MakeOverflowPool(const FencedDevice* device, CUmemoryPool* pool) {
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
PoolAccount* KeepOverflowPool(Fence* fence, FencedDevice* device, CUmemoryPool pool) {
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
  const CUresult rc = MakeOverflowPool(device, &pool);
  if (rc == CUDA_SUCCESS) return KeepOverflowPool(fence, device, pool);
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
    RechargePool(&fence->devices[i], account);
  }
}

// ---- the calls that make, name, trim and destroy pools ----

namespace {

// Who pays for a pool at this location. Managed pools may be nowhere in particular: then the device
// of the stream that allocates pays, as for a pool that we did not see being made.
bool KnowsPayer(const CUmemPoolProps& props, PoolKind* kind) {
  const Location where = LocationOf(props.location);
  // Other processes open it by its handle, or its own size bounds it.
  kind->stays = props.handleTypes != CU_MEM_HANDLE_TYPE_NONE || props.maxSize != 0;
  kind->ordinal = where.place == Place::kDevice ? static_cast<int32_t>(where.ordinal) : kHostPool;
  return where.place != Place::kNowhere;
}

bool HasUnknownPlace(const Fence* fence, const CUmemPoolProps* props) {
  return fence != nullptr && props != nullptr &&
         LocationOf(props->location).place == Place::kUnknown;
}

// The pools of the host and of parts of a device are there from the start; who asks for one is
// about to use it, perhaps from another device. Of an unknown place the device that uses it pays.
CUresult KnowPool(const Hook& hook, const CUmemLocation* location, const CUmemoryPool* pool,
                  CUresult rc) {
  if (rc != CUDA_SUCCESS || hook.fence() == nullptr) return rc;
  const Location where = LocationOf(*location);
  if (where.place == Place::kHost) {
    AccountOf(hook.fence(), *pool, kHostPool);
  } else if (where.place == Place::kDevice) {
    AccountOf(hook.fence(), *pool, static_cast<int32_t>(where.ordinal));
  }
  return rc;
}

}  // namespace
}  // namespace gpufence

using namespace gpufence;

extern "C" {

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  Fence* fence = hook.fence();
  if (HasUnknownPlace(fence, poolProps)) {
    return RefuseUnknownPlace("cuMemPoolCreate", poolProps->location);
  }
  const CUresult rc = real::cuMemPoolCreate(pool, poolProps);
  PoolKind kind = {};
  if (rc != CUDA_SUCCESS || fence == nullptr || !KnowsPayer(*poolProps, &kind)) return rc;
  if (AddPool(fence, *pool, kind) != nullptr) return rc;
  real::cuMemPoolDestroy(*pool);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool_out, CUmemLocation* location,
                                CUmemAllocationType type) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  const CUresult rc = real::cuMemGetDefaultMemPool(pool_out, location, type);
  return KnowPool(hook, location, pool_out, rc);
}

CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  const CUresult rc = real::cuMemGetMemPool(pool, location, type);
  return KnowPool(hook, location, pool, rc);
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  const Hook hook;
  Fence* fence = hook.fence();
  if (fence == nullptr) return real::cuMemPoolDestroy(pool);
  // Out of the table first: the handle may be another pool's the moment the call returns.
  PoolAccount* account = ForgetPool(fence, pool);
  const PoolRelease release(fence);
  const PoolChoice choice(fence);
  const CUresult rc = real::cuMemPoolDestroy(pool);
  if (account == nullptr) return rc;
  if (rc == CUDA_SUCCESS) {
    PoolDestroyed(fence, account);
  } else {
    RestorePool(fence, pool, account);
  }
  return rc;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
  const Hook hook;
  const PoolRelease release(hook.fence());
  const CUresult rc = real::cuMemPoolTrimTo(pool, minBytesToKeep);
  if (rc == CUDA_SUCCESS && hook.fence() != nullptr) {
    RechargePool(hook.fence(), pool);
    TrimOverflowPools(hook.fence());
  }
  return rc;
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  const Hook hook;
  const PoolChoice choice(hook.fence());
  return real::cuDeviceSetMemPool(dev, pool);
}

CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  const Hook hook;
  const PoolChoice choice(hook.fence());
  return real::cuMemSetMemPool(location, type, pool);
}

}  // extern "C"
