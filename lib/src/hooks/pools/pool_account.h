// What this process's memory pools are charged: a pool costs what the driver has reserved for it,
// in blocks, and keeps them after a free until a synchronisation or a trim lets them go.
//
// The charge is never below what the driver holds. It rises before a driver call that may make the
// pool grow, by the most that it can grow by (a request of n bytes takes at most n rounded up to
// blocks), and falls to what the driver reports and what the requests under way may still take. A
// request that a known hole surely serves raises nothing, but counts among those under way.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "base/locks.h"
#include "driver_abi.h"
#include "hooks/pools/pool_holes.h"
#include "policy/account.h"
#include "state/owner.h"

namespace gpufence {

class LedgerMove;
struct Fence;
struct FencedDevice;

// Blocks of one pool that were exported (hooks/memory/exported.h); under its account's lock but for
// the place.
struct PoolExports {
  uint64_t place;  // of the file's lock (LockDescriptor)
  uint64_t bytes;  // blocks in the file
  uint64_t
      idle_bytes;  // of those, the ones without a living exported piece: the pool may lose them
  uint64_t lost_bytes;  // of those, what it lost, at most

  // The pool has that much less. Returns how much of it may be blocks that stay in the file.
  uint64_t Lose(uint64_t less_bytes) {
    const uint64_t most = idle_bytes - lost_bytes;
    const uint64_t lost = less_bytes < most ? less_bytes : most;
    lost_bytes += lost;
    return lost;
  }
};

// What each request reads and writes comes first.
struct alignas(64) PoolAccount {
  std::atomic<uint64_t> handle;  // 0: destroyed, or no pool at all
  FencedDevice* payer;           // null for host memory and where no limit holds
  std::atomic<uint64_t> used;    // live allocations
  std::atomic<bool> freed;       // may hold more than it needs: look after a synchronisation
  std::atomic<bool> destroyed;   // ends with its last allocation
  Tier tier;                     // kUnified: the device's overflow pool
  bool stays;                    // what it has no room for must not come from another pool

  SpinLock lock;  // the rest changes together
  uint64_t charged_bytes;
  uint64_t growing_bytes;  // of that: what requests under way may still take
  uint64_t sure_bytes;     // the same for requests with a hole, in case that it is gone
  uint64_t under_way;
  uint64_t turns;    // requests that began or ended
  uint64_t version;  // of the above; an answer of the driver to an older one is too old
  bool surplus;      // the charge could not be lowered in time: the next request does it
  PoolHoles holes;
  PoolExports exports;  // what is charged beside charged_bytes

  PoolAccount* next_free;
};

// All pools of the process; in memory that is wiped on fork. Accounts never move and are never
// unmapped, so a pointer to one stays readable.
struct PoolTable {
  static constexpr size_t kSlabs = 20;
  static constexpr size_t kFirstSlab = 64;  // each next slab is twice as large

  SpinLock lock;
  std::atomic<uint32_t> made;
  std::atomic<PoolAccount*> slabs[kSlabs];
  PoolAccount* free;
};

// The pool is gone; its account ends with its last allocation.
void PoolDestroyed(Fence* fence, PoolAccount* account);

// Who may be changing the pool that serves a device (PoolChoice in pools.h). Wiped on fork.
struct PoolChoices {
  SpinLock lock;
  uint32_t changing;  // driver calls under way that may change a device's pool
  uint64_t changes;   // that ever began or ended
};

// One request on its way.
struct PoolRequest {
  uint64_t bytes;
  uint64_t stream;        // the handle; only told apart from others
  uint64_t growth_bytes;  // what it can make the pool grow by, at most
  int hole;               // kUnsure: the growth is part of the charge
};

// Before the driver call: makes sure that the pool's charge covers the request, growth included.
// False: no room, and nothing has changed. Begins `move` when the charge rises. Only a thorough
// one makes room by driver calls of ours.
bool ClaimFromPool(FencedDevice* payer, PoolAccount* account, Effort effort, PoolRequest* request,
                   LedgerMove* move);

// After the driver call; address 0: it failed. False: the pool holds more than it may; the caller
// gives its allocation back.
bool LandedInPool(FencedDevice* payer, PoolAccount* account, const PoolRequest& request,
                  uint64_t address);

// An allocation ended by a driver call before which PoolHoles::BeforeFree was asked: its bytes stay
// charged until the pool is recharged, and its place is a hole.
void FreedInPool(PoolAccount* account, uint64_t before, uint64_t address, uint64_t bytes,
                 uint64_t stream);

// The same for an allocation that never came to be, or ended by another call.
void ReturnToPool(PoolAccount* account, uint64_t bytes);

// Charges a pool what the driver reports now, whether or not there is room for it.
void RechargePool(FencedDevice* payer, PoolAccount* account);
void RechargePool(Fence* fence, CUmemoryPool pool);

// After a synchronisation, what was freed before: the same for every pool that it came from, and
// late frees of plain memory.
void GiveBackFreed(Fence* fence);

// Asks every pool of a device to let go of what it does not use, and lowers the charges to what is
// left.
void TrimPools(Fence* fence, FencedDevice* payer);

// Set by every free whose memory the driver still holds: the one load that a synchronisation costs
// when nothing was freed.
extern std::atomic<bool> frees_pending;

}  // namespace gpufence
