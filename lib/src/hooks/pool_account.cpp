#include "hooks/pool_account.h"

#include <algorithm>

#include "core/forked.h"
#include "hooks/capture_mode.h"
#include "hooks/fence.h"
#include "policy/charge.h"
#include "real.h"

namespace gpufence {

constinit std::atomic<bool> frees_unsettled{false};

namespace {

constexpr int kChargeBits = 40;
constexpr uint64_t kChargeMask = (uint64_t{1} << kChargeBits) - 1;
constexpr uint64_t kNextVersion = uint64_t{1} << kChargeBits;
constexpr int kSettleAttempts = 16;

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
  const bool flying = account->flying.load(std::memory_order_seq_cst) != 0;
  const uint64_t claimed = flying ? Blocks(account->used.load(std::memory_order_seq_cst)) : 0;
  const uint64_t target = std::max(reserved, claimed);
  if (target >= charged) return true;
  if (!account->state.compare_exchange_strong(state, WithCharge(state, target),
                                              std::memory_order_seq_cst)) {
    return false;
  }
  // A thread may have counted on the old charge before it saw the new one. What is still in our
  // hand, nobody else could have taken meanwhile.
  uint64_t kept = target;
  if (account->flying.load(std::memory_order_seq_cst) != 0) {
    const uint64_t now = Blocks(account->used.load(std::memory_order_seq_cst));
    kept = std::clamp(now, target, charged);
    account->state.fetch_add((kept - target) / kChunkBytes, std::memory_order_seq_cst);
  }
  payer->account.Release(charged - kept);
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

// What the charge must be before `bytes` more are asked of the driver, `used` in all. Whole blocks,
// because that is how the driver grows a pool: where a block does not fit, its part does not either.
uint64_t CoverFor(PoolAccount* account, uint64_t charged, uint64_t used, uint64_t bytes) {
  const uint64_t misfit = account->misfit.load(std::memory_order_relaxed);
  const uint64_t least = used > charged ? Blocks(used) : charged;
  if (misfit == 0 || bytes < misfit) return least;
  return std::max(least, charged + Blocks(bytes));
}

// Raises the charge to the cover.
bool Cover(FencedDevice* payer, PoolAccount* account, uint64_t used, uint64_t bytes,
           LedgerMove* move) {
  bool trimmed = false;
  bool moving = false;
  for (;;) {
    uint64_t state = account->state.load(std::memory_order_seq_cst);
    const uint64_t charged = ChargedBytes(state);
    const uint64_t cover = CoverFor(account, charged, used, bytes);
    if (cover == charged) return true;
    // The driver may find no use for what the pool keeps and grow by the whole request. Where that
    // would pass the limit, the pool lets go of it first.
    const bool keeps = charged > RoundUp(used - bytes, kChunkBytes);
    if (keeps && !trimmed && Blocks(bytes) > payer->account.FreeBytes()) {
      trimmed = true;
      Trim(payer, account);
      continue;
    }
    if (!moving) move->Begin(&payer->moves);
    moving = true;
    if (!payer->account.Reserve(cover - charged)) return false;
    if (account->state.compare_exchange_strong(state, WithCharge(state, cover),
                                               std::memory_order_seq_cst)) {
      move->Granted();
      return true;
    }
    payer->account.Release(cover - charged);  // another thread was first
  }
}

// A request of this size did not fit into what the pool had.
void NoteMisfit(PoolAccount* account, uint64_t bytes) {
  uint64_t misfit = account->misfit.load(std::memory_order_relaxed);
  while ((misfit == 0 || bytes < misfit) &&
         !account->misfit.compare_exchange_weak(misfit, bytes, std::memory_order_relaxed)) {
  }
}

// Something changed that may let larger requests fit.
void ForgetMisfit(PoolAccount* account) {
  if (account->misfit.load(std::memory_order_relaxed) != 0) {
    account->misfit.store(0, std::memory_order_relaxed);
  }
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
  Holding holding;
  if (!fence->holdings.Get(HoldingKind::kPool, key, &holding)) {
    SpinGuard guard(&fence->pools.lock);
    if (!fence->holdings.Get(HoldingKind::kPool, key, &holding)) {
      return Register(fence, pool, default_ordinal);
    }
  }
  return reinterpret_cast<PoolAccount*>(holding.owner);
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

bool ClaimFromPool(FencedDevice* payer, PoolAccount* account, uint64_t bytes, LedgerMove* move) {
  if (bytes > payer->account.LimitBytes()) return false;
  account->flying.fetch_add(1, std::memory_order_seq_cst);
  const uint64_t used = account->used.fetch_add(bytes, std::memory_order_seq_cst) + bytes;
  if (Cover(payer, account, used, bytes, move)) return true;
  account->used.fetch_sub(bytes, std::memory_order_seq_cst);
  account->flying.fetch_sub(1, std::memory_order_seq_cst);
  return false;
}

bool LandedInPool(FencedDevice* payer, PoolAccount* account, uint64_t bytes) {
  const uint64_t charged =
      ChargedBytes(account->state.fetch_add(kNextVersion, std::memory_order_seq_cst));
  uint64_t reserved = 0;
  const bool is_read = ReadReserved(account, &reserved);
  bool fits = true;
  if (is_read && reserved > charged) {
    NoteMisfit(account, bytes);
    fits = TakeUnforeseen(payer, account, reserved);
  }
  // Still counted until here, so that a thread that settles the pool does not book for us.
  account->flying.fetch_sub(1, std::memory_order_seq_cst);
  if (is_read && reserved < charged) LowerToReserved(payer, account, &reserved);
  // A block that was taken for this request has a rest.
  if (Blocks(bytes) - bytes >= account->misfit.load(std::memory_order_relaxed)) {
    ForgetMisfit(account);
  }
  return fits;
}

void ReturnToPool(PoolAccount* account, uint64_t bytes) {
  account->used.fetch_sub(bytes, std::memory_order_seq_cst);
  ForgetMisfit(account);
  NoteFreed(account);
}

void SettlePool(FencedDevice* payer, PoolAccount* account) {
  ForgetMisfit(account);
  uint64_t reserved = 0;
  if (LowerToReserved(payer, account, &reserved)) return;
  // Who is about to land asks for its own growth, and may be refused.
  if (account->flying.load(std::memory_order_seq_cst) == 0) {
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
