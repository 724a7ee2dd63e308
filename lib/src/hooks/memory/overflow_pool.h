// Where stream-ordered memory goes when the share of a device is full, or the driver has no more: a
// pool of ours for each device, of managed memory that stays on the host. Freed like any pool's
// memory, by every door. Must not know how a request is charged.
#pragma once

#include "hooks/fence.h"

namespace gpufence {

// The device's overflow pool, made at its first use; null where the driver has none to offer
// (before 580).
PoolAccount* OverflowPoolOf(Fence* fence, FencedDevice* device);

inline CUmemoryPool HandleOf(const PoolAccount* account) {
  return reinterpret_cast<CUmemoryPool>(account->handle.load(std::memory_order_acquire));
}

// Lets go of what the pools keep and nobody uses: they keep all that was freed until then, since
// host memory is dear to come by.
void TrimOverflowPools(Fence* fence);

}  // namespace gpufence
