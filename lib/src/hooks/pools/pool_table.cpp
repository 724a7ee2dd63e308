// Which account belongs to a pool's handle. Accounts are made once and used again; they are found
// by handle, through the holdings. Must not know what is charged.
#include <stddef.h>

#include "base/forked.h"
#include "hooks/fence.h"
#include "hooks/pools/pool_account.h"

namespace gpufence {
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

}  // namespace gpufence
