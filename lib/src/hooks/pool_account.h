// What this process's memory pools are charged: a pool costs what the driver has reserved for it, in
// blocks, and keeps them after a free until a synchronisation or a trim lets them go.
//
// One word per pool says how much is charged. It rises before a driver call that may make the pool
// grow, and falls only to what the driver itself reports. Whether a request fits into what a pool
// keeps is the driver's affair: it is charged as growth unless a hole is known that serves it.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "core/spin.h"
#include "driver_abi.h"
#include "hooks/pool_holes.h"

namespace gpufence {

class LedgerMove;
struct Fence;
struct FencedDevice;

inline constexpr int32_t kHostPool = -1;

struct PoolAccount {
  std::atomic<uint64_t> handle;   // 0: destroyed, or no pool at all
  std::atomic<uint64_t> used;     // live allocations
  std::atomic<uint64_t> state;    // charged granules (low 40 bits) and a version (high 24)
  std::atomic<uint64_t> growing;  // part of the charge that the driver has yet to take, at most
  std::atomic<bool> freed;        // may hold more than it needs: look after a synchronisation
  std::atomic<bool> destroyed;    // ends with its last allocation
  int32_t ordinal;                // the device that pays, or kHostPool
  PoolAccount* next_free;
  PoolHoles holes;
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

// Remembers where a new pool is. False when no memory could be had.
bool AddPool(Fence* fence, CUmemoryPool pool, int32_t ordinal);

// The account of a pool; one is made for a pool that nobody created here (a device's default).
// Null when no memory could be had.
PoolAccount* AccountOf(Fence* fence, CUmemoryPool pool, int32_t default_ordinal);

// The pool is about to be destroyed; put back with RestorePool when the driver refuses. Null when
// nothing was ever charged to it.
PoolAccount* ForgetPool(Fence* fence, CUmemoryPool pool);
void RestorePool(Fence* fence, CUmemoryPool pool, PoolAccount* account);
void PoolDestroyed(Fence* fence, PoolAccount* account);

// The device that pays for a pool; null for host memory and where no limit holds.
FencedDevice* PayerOf(Fence* fence, const PoolAccount* account);

// One request on its way: what was claimed for it, and what the pool was charged before.
struct PoolRequest {
  uint64_t bytes;
  uint64_t stream;  // the handle; only told apart from others
  int hole;
  uint64_t charged;       // before
  uint64_t growth_bytes;  // reserved in addition
};

// Before the driver call: makes sure that the pool's charge covers the request, growth included.
// False: no room, and nothing has changed. Begins `move` when the charge rises.
bool ClaimFromPool(FencedDevice* payer, PoolAccount* account, PoolRequest* request,
                   LedgerMove* move);

// After the driver call; address 0: it failed. False: the pool grew although a hole was known, and
// there is no room for it; the caller gives its allocation back.
bool LandedInPool(FencedDevice* payer, PoolAccount* account, const PoolRequest& request,
                  uint64_t address);

// An allocation ended, or never came to be. Its bytes stay charged until the pool is settled.
void ReturnToPool(PoolAccount* account, uint64_t bytes);

// Charges a pool what the driver reports now, whether or not there is room for it.
void SettlePool(FencedDevice* payer, PoolAccount* account);
void SettlePool(Fence* fence, CUmemoryPool pool);

// The same for every pool from which something was freed, after a synchronisation.
// Late frees of plain memory are looked after as well.
void SettleFreed(Fence* fence);

// Asks every pool of a device to let go of what it does not use, and lowers the charges to what is
// left.
void TrimPools(Fence* fence, FencedDevice* payer);

// Set by every free whose memory the driver still holds: the one load that a synchronisation costs when nothing was freed.
extern std::atomic<bool> frees_unsettled;

}  // namespace gpufence
