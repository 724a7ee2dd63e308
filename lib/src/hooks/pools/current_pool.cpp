// Which pool serves a device's requests; must not know what pools cost.
#include "hooks/pools/current_pool.h"

#include "hooks/fence.h"
#include "real.h"

namespace gpufence {
namespace {

CUmemoryPool AskDriver(uint32_t ordinal) {
  CUmemoryPool pool = nullptr;
  const CUresult rc = real::cuDeviceGetMemPool(&pool, static_cast<CUdevice>(ordinal));
  return rc == CUDA_SUCCESS ? pool : nullptr;
}

}  // namespace

CUmemoryPool AskCurrentPool(Fence* fence, uint32_t ordinal) {
  FencedDevice* device = FencedOrdinal(fence, ordinal);
  if (device == nullptr) return AskDriver(ordinal);

  PoolChoices* choices = &fence->pool_choices;
  choices->lock.Lock();
  const uint64_t changes = choices->changes;
  choices->lock.Unlock();
  CUmemoryPool pool = AskDriver(ordinal);
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

}  // namespace gpufence

extern "C" {

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  const gpufence::Hook hook;
  const gpufence::PoolChoice choice(hook.fence());
  return real::cuDeviceSetMemPool(dev, pool);
}

CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  const gpufence::Hook hook;
  const gpufence::PoolChoice choice(hook.fence());
  return real::cuMemSetMemPool(location, type, pool);
}

}  // extern "C"
