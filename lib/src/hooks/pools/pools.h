// Which pools there are: the account of each, found by its handle; the pool that serves a device's
// requests where none is named; and each device's overflow pool. Must not know what pools are
// charged (pool_account.h).
#pragma once

#include <stdint.h>

#include "driver_abi.h"
#include "hooks/fence.h"
#include "hooks/pools/pool_account.h"
#include "policy/account.h"

namespace gpufence {

// ---- accounts ----

inline constexpr int32_t kHostPool = -1;

// What is known of a pool when it is made.
struct PoolKind {
  int32_t ordinal;
  Tier tier = Tier::kDevice;
  bool stays = false;
};

// Remembers a new pool. Null when no memory could be had.
PoolAccount* AddPool(Fence* fence, CUmemoryPool pool, const PoolKind& kind);

// The account of a pool; one is made for a pool that nobody created here (a device's default).
// Null when no memory could be had. The pool that this thread used last is known at once: accounts
// are never unmapped, and a forked child finds its handle wiped.
[[gnu::noinline]] PoolAccount* FindAccountOf(Fence* fence, CUmemoryPool pool,
                                             int32_t default_ordinal);
inline PoolAccount* AccountOf(Fence* fence, CUmemoryPool pool, int32_t default_ordinal) {
  PoolAccount* last = this_thread.last_pool;
  if (last != nullptr &&
      last->handle.load(std::memory_order_acquire) == reinterpret_cast<uint64_t>(pool)) [[likely]] {
    return last;
  }
  return FindAccountOf(fence, pool, default_ordinal);
}

// The pool is about to be destroyed; put back with RestorePool when the driver refuses. Null when
// nothing was ever charged to it.
PoolAccount* ForgetPool(Fence* fence, CUmemoryPool pool);
void RestorePool(Fence* fence, CUmemoryPool pool, PoolAccount* account);

// The n-th account ever made, of `made`; and one that is over, to be used again.
PoolAccount* NthAccount(PoolTable* table, uint32_t n);
void RecycleAccount(Fence* fence, PoolAccount* account);

// ---- the pool that serves where none is named ----

// A device's pool; null when the driver does not say. Of one that is fenced it is mostly known, in
// its `current_pool`.
[[gnu::noinline]] CUmemoryPool AskCurrentPool(Fence* fence, uint32_t ordinal);

// Around driver calls that may change the pool of a device: what is known is forgotten before, and
// what is learned meanwhile is not kept.
class PoolChoice {
 public:
  explicit PoolChoice(Fence* fence);
  ~PoolChoice();
  PoolChoice(const PoolChoice&) = delete;
  PoolChoice& operator=(const PoolChoice&) = delete;

 private:
  Fence* fence_;
};

// ---- overflow pools ----
//
// Where stream-ordered memory goes when the share of a device is full, or the driver has no more: a
// pool of ours for each device, of managed memory that stays on the host. Freed like any pool's
// memory, by every door.

// The device's overflow pool, made at its first use; null where the driver has none to offer
// (before 580).
PoolAccount* OverflowPoolOf(Fence* fence, FencedDevice* device);

inline CUmemoryPool HandleOf(const PoolAccount* account) {
  return reinterpret_cast<CUmemoryPool>(account->handle.load(std::memory_order_acquire));
}

// Lets go of what the pools keep and nobody uses: they keep all that was freed until then, since
// host memory is dear to come by.
void TrimOverflowPools(Fence* fence);

// ---- letting go ----

// Around driver calls in which pools may lose memory, or what was freed in the order of a stream
// goes. The driver lets it go before the ledger hears of it, and whoever compares the two meanwhile
// would take the difference for overhead that is gone: so the whole call counts as a move, until
// all of that is given back.
class PoolRelease {
 public:
  // A null fence, or a process without either, costs two loads.
  explicit PoolRelease(Fence* fence)
      : fence_(fence != nullptr && (fence->pools.made.load(std::memory_order_relaxed) != 0 ||
                                    fence->late_frees.count.load(std::memory_order_relaxed) != 0)
                   ? fence
                   : nullptr) {
    if (fence_ == nullptr) return;
    for (uint32_t i = 0; i < fence_->device_count; ++i) {
      ++this_thread.moves;
      fence_->devices[i].moves.Begin();
    }
  }
  ~PoolRelease() {
    if (fence_ == nullptr) return;
    for (uint32_t i = 0; i < fence_->device_count && this_thread.moves != 0; ++i) {
      --this_thread.moves;
      fence_->devices[i].moves.End();
    }
  }
  PoolRelease(const PoolRelease&) = delete;
  PoolRelease& operator=(const PoolRelease&) = delete;

 private:
  Fence* fence_;
};

}  // namespace gpufence
