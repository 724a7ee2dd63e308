#include "hooks/pool_account.h"

#include <sched.h>

#include <algorithm>

#include "core/forked.h"
#include "hooks/capture_mode.h"
#include "hooks/fence.h"
#include "policy/charge.h"
#include "real.h"

namespace gpufence {

constinit std::atomic<bool> frees_unsettled{false};

namespace {

// The pool that this thread used last. Accounts are never unmapped, and a forked child finds its
// handle wiped.
constinit thread_local PoolAccount* last_account = nullptr;

constexpr int kChargeBits = 40;
constexpr uint64_t kChargeMask = (uint64_t{1} << kChargeBits) - 1;
constexpr uint64_t kNextVersion = uint64_t{1} << kChargeBits;
constexpr int kSettleAttempts = 16;
constexpr int kCoverAttempts = 32;

uint64_t ChargedBytes(uint64_t state) { return (state & kChargeMask) * kChunkBytes; }

// A word with another charge, and as the driver's answer it was made from is now used up, a newer
// version. Bytes are multiples of the chunk.
uint64_t WithCharge(uint64_t state, uint64_t bytes) {
  return ((state & ~kChargeMask) + kNextVersion) | bytes / kChunkBytes;
}

uint64_t Blocks(uint64_t bytes) { return RoundUp(bytes, kPoolBlockBytes); }

bool ReadReserved(PoolAccount* account, uint64_t* bytes) {
  const uint64_t handle = account->handle.load(std::memory_order_acquire);
  if (handle == 0) return false;
  cuuint64_t answer = 0;
  if (real::cuMemPoolGetAttribute(reinterpret_cast<CUmemoryPool>(handle),
                                  CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                                  &answer) != CUDA_SUCCESS) {
    return false;
  }
  *bytes = RoundUp(answer, kChunkBytes);
  return true;
}

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
PoolAccount* Register(Fence* fence, CUmemoryPool pool, int32_t ordinal) {
  PoolAccount* account = NewAccount(&fence->pools);
  if (account == nullptr) return nullptr;
  account->ordinal = ordinal;
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

template <typename Use>
void ForEachAccount(PoolTable* table, Use use) {
  const uint32_t made = table->made.load(std::memory_order_acquire);
  for (uint32_t n = 0; n < made; ++n) use(Nth(table, n));
}

// A destroyed pool answers no questions; its memory goes with its last allocation.
void SettleDestroyed(Fence* fence, FencedDevice* payer, PoolAccount* account) {
  if (account->used.load(std::memory_order_acquire) != 0) return;
  if (!account->destroyed.exchange(false, std::memory_order_acq_rel)) return;
  const uint64_t charged = ChargedBytes(account->state.exchange(0, std::memory_order_acq_rel));
  if (payer != nullptr) payer->account.Release(charged);
  account->freed.store(false, std::memory_order_relaxed);
  SpinGuard guard(&fence->pools.lock);
  account->next_free = fence->pools.free;
  fence->pools.free = account;
}

// Lowers the charge to what the driver reported at `state`. False: something else happened since.
bool Lower(FencedDevice* payer, PoolAccount* account, uint64_t state, uint64_t reserved) {
  const uint64_t charged = ChargedBytes(state);
  // Who asks the driver now may have grown the pool before it was read, or not yet.
  const uint64_t target = reserved + account->growing.load(std::memory_order_seq_cst);
  if (target >= charged) return true;
  account->holes.Clear();
  if (!account->state.compare_exchange_strong(state, WithCharge(state, target),
                                              std::memory_order_seq_cst)) {
    return false;
  }
  payer->account.Release(charged - target);
  return true;
}

// Raises the charge to `reserved`: by a request that may be refused, or (forced) by booking what the
// driver has given out already.
bool Raise(FencedDevice* payer, PoolAccount* account, uint64_t reserved, bool forced) {
  uint64_t state = account->state.load(std::memory_order_seq_cst);
  while (ChargedBytes(state) < reserved) {
    const uint64_t missing = reserved - ChargedBytes(state);
    if (forced) {
      payer->account.Book(missing);
    } else if (!payer->account.Reserve(missing)) {
      return false;
    }
    if (account->state.compare_exchange_strong(state, WithCharge(state, reserved),
                                               std::memory_order_seq_cst)) {
      return true;
    }
    payer->account.Release(missing);
  }
  return true;
}

// Lowers the charge to what the driver reports. False: it reports more than is charged.
bool LowerToReserved(FencedDevice* payer, PoolAccount* account, uint64_t* reserved) {
  for (int attempt = 0; attempt < kSettleAttempts; ++attempt) {
    const uint64_t state = account->state.load(std::memory_order_seq_cst);
    if (!ReadReserved(account, reserved)) return true;
    if (*reserved > ChargedBytes(state)) return false;
    if (Lower(payer, account, state, *reserved)) return true;
  }
  return true;
}

void Trim(FencedDevice* payer, PoolAccount* account) {
  const uint64_t handle = account->handle.load(std::memory_order_acquire);
  if (handle == 0) return;
  const CaptureRelaxed relaxed;
  real::cuMemPoolTrimTo(reinterpret_cast<CUmemoryPool>(handle), 0);
  uint64_t reserved = 0;
  LowerToReserved(payer, account, &reserved);
}

// Raises the charge by whole blocks, because that is how the driver grows a pool: where a block does
// not fit, its part does not either. Whatever a request may cost is reserved, since the driver cannot
// be asked beforehand; what it did not cost goes back right after.
bool Cover(FencedDevice* payer, PoolAccount* account, PoolRequest* request) {
  const uint64_t growth = Blocks(request->bytes);
  bool trimmed = false;
  for (int attempt = 0; attempt < kCoverAttempts; ++attempt) {
    uint64_t state = account->state.load(std::memory_order_seq_cst);
    const uint64_t charged = ChargedBytes(state);
    const bool keeps = charged > account->used.load(std::memory_order_relaxed);
    if (keeps && !trimmed && growth > payer->account.FreeBytes()) {
      trimmed = true;
      Trim(payer, account);
      continue;
    }
    if (payer->account.Reserve(growth)) {
      account->growing.fetch_add(growth, std::memory_order_seq_cst);
      if (account->state.compare_exchange_strong(state, WithCharge(state, charged + growth),
                                                 std::memory_order_seq_cst)) {
        request->charged = charged;
        request->growth_bytes = growth;
        return true;
      }
      account->growing.fetch_sub(growth, std::memory_order_seq_cst);
      payer->account.Release(growth);  // another thread was first
      continue;
    }
    request->hole = account->holes.Claim(request->bytes, request->stream);
    if (request->hole != PoolHoles::kUnsure) return true;
    // Another thread's request may be about to leave a rest that serves this one.
    if (account->growing.load(std::memory_order_seq_cst) == 0 &&
        account->state.load(std::memory_order_seq_cst) == state) {
      return false;
    }
    sched_yield();
  }
  return false;
}

// The pool holds more than is charged: growth that no reservation foresaw. Takes it like a request.
bool TakeUnforeseen(FencedDevice* payer, PoolAccount* account, uint64_t reserved) {
  if (Raise(payer, account, reserved, /*forced=*/false)) return true;
  // Making room has trimmed the pool: it may have shrunk to what is covered.
  return ReadReserved(account, &reserved) &&
         Raise(payer, account, reserved, /*forced=*/false);
}

void NoteFreed(PoolAccount* account) {
  if (!account->freed.load(std::memory_order_relaxed)) {
    account->freed.store(true, std::memory_order_relaxed);
  }
  if (!frees_unsettled.load(std::memory_order_relaxed)) {
    frees_unsettled.store(true, std::memory_order_release);
  }
}

void SettleIfFreed(Fence* fence, PoolAccount* account) {
  if (!account->freed.exchange(false, std::memory_order_acq_rel)) return;
  FencedDevice* payer = PayerOf(fence, account);
  if (account->destroyed.load(std::memory_order_acquire)) {
    SettleDestroyed(fence, payer, account);
    return;
  }
  if (payer == nullptr) return;
  SettlePool(payer, account);
  // Memory that the pool still keeps may go at the next synchronisation.
  const uint64_t charged = ChargedBytes(account->state.load(std::memory_order_relaxed));
  if (charged > Blocks(account->used.load(std::memory_order_relaxed))) NoteFreed(account);
}

}  // namespace

bool AddPool(Fence* fence, CUmemoryPool pool, int32_t ordinal) {
  SpinGuard guard(&fence->pools.lock);
  return Register(fence, pool, ordinal) != nullptr;
}

PoolAccount* AccountOf(Fence* fence, CUmemoryPool pool, int32_t default_ordinal) {
  const auto key = reinterpret_cast<uint64_t>(pool);
  PoolAccount* last = last_account;
  if (last != nullptr && last->handle.load(std::memory_order_acquire) == key) return last;
  Holding holding;
  if (!fence->holdings.Get(HoldingKind::kPool, key, &holding)) {
    SpinGuard guard(&fence->pools.lock);
    if (!fence->holdings.Get(HoldingKind::kPool, key, &holding)) {
      return Register(fence, pool, default_ordinal);
    }
  }
  last_account = reinterpret_cast<PoolAccount*>(holding.owner);
  return last_account;
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

void PoolDestroyed(Fence* fence, PoolAccount* account) {
  account->handle.store(0, std::memory_order_release);
  account->destroyed.store(true, std::memory_order_release);
  SettleDestroyed(fence, PayerOf(fence, account), account);
}

FencedDevice* PayerOf(Fence* fence, const PoolAccount* account) {
  return account->ordinal == kHostPool
             ? nullptr
             : FencedOrdinal(fence, static_cast<uint32_t>(account->ordinal));
}

bool ClaimFromPool(FencedDevice* payer, PoolAccount* account, PoolRequest* request,
                   LedgerMove* move) {
  if (request->bytes > payer->account.LimitBytes()) return false;
  request->growth_bytes = 0;
  request->charged = ChargedBytes(account->state.load(std::memory_order_acquire));
  request->hole = account->holes.Claim(request->bytes, request->stream);
  if (request->hole != PoolHoles::kUnsure) return true;
  move->Begin(&payer->moves);
  if (!Cover(payer, account, request)) return false;
  move->Granted();
  return true;
}

bool LandedInPool(FencedDevice* payer, PoolAccount* account, const PoolRequest& request,
                  uint64_t address) {
  if (address != 0) account->used.fetch_add(request.bytes, std::memory_order_seq_cst);
  // Served by a hole, unless the pool lost memory meanwhile and perhaps that hole with it.
  if (request.hole != PoolHoles::kUnsure && address != 0 &&
      ChargedBytes(account->state.load(std::memory_order_acquire)) >= request.charged) {
    account->holes.Landed(request.hole, address, request.bytes, 0);
    return true;
  }
  const uint64_t charged =
      ChargedBytes(account->state.fetch_add(kNextVersion, std::memory_order_seq_cst));
  uint64_t reserved = 0;
  const bool is_read = ReadReserved(account, &reserved);
  const bool fits =
      !is_read || reserved <= charged || TakeUnforeseen(payer, account, reserved);
  // Still counted until here, so that a thread that settles the pool does not book for us.
  account->growing.fetch_sub(request.growth_bytes, std::memory_order_seq_cst);
  if (is_read && reserved < charged) LowerToReserved(payer, account, &reserved);
  const bool grew = request.growth_bytes != 0 && is_read &&
                    reserved >= request.charged + request.growth_bytes;
  account->holes.Landed(request.hole, address, request.bytes, grew ? request.growth_bytes : 0);
  return fits;
}

void ReturnToPool(PoolAccount* account, uint64_t bytes) {
  account->used.fetch_sub(bytes, std::memory_order_seq_cst);
  NoteFreed(account);
}

void SettlePool(FencedDevice* payer, PoolAccount* account) {
  uint64_t reserved = 0;
  if (LowerToReserved(payer, account, &reserved)) return;
  // Who is about to land asks for its own growth, and may be refused.
  if (account->growing.load(std::memory_order_seq_cst) == 0) {
    Raise(payer, account, reserved, /*forced=*/true);
  }
}

void SettlePool(Fence* fence, CUmemoryPool pool) {
  Holding holding;
  if (!fence->holdings.Get(HoldingKind::kPool, reinterpret_cast<uint64_t>(pool), &holding)) return;
  auto* account = reinterpret_cast<PoolAccount*>(holding.owner);
  FencedDevice* payer = PayerOf(fence, account);
  if (payer == nullptr) return;
  const CaptureRelaxed relaxed;
  SettlePool(payer, account);
}

void SettleFreed(Fence* fence) {
  if (!frees_unsettled.exchange(false, std::memory_order_seq_cst)) return;
  const CaptureRelaxed relaxed;
  SettleLateFrees(fence);
  ForEachAccount(&fence->pools, [&](PoolAccount* account) { SettleIfFreed(fence, account); });
}

void TrimPools(Fence* fence, FencedDevice* payer) {
  ForEachAccount(&fence->pools, [&](PoolAccount* account) {
    if (account->ordinal != payer->ordinal) return;
    if (account->destroyed.load(std::memory_order_acquire)) {
      SettleDestroyed(fence, payer, account);
    } else {
      Trim(payer, account);
    }
  });
}

}  // namespace gpufence
