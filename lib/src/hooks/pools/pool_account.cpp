#include "hooks/pools/pool_account.h"

#include <sched.h>

#include "base/futex.h"
#include "base/log.h"
#include "device/context_scope.h"
#include "hooks/fence.h"
#include "hooks/memory/exported.h"
#include "hooks/pools/pools.h"
#include "policy/charge.h"
#include "real.h"

namespace gpufence {

constinit std::atomic<bool> frees_pending{false};

namespace {

constexpr int kRechargeAttempts = 16;

// How often a request asks again: at least a few times, because other processes hold for a moment
// what their pools may grow by; more often while requests on this pool are under way.
constexpr int kLeastAttempts = 4;
constexpr int kMostAttempts = 64;

uint64_t Blocks(uint64_t bytes) { return RoundUp(bytes, kPoolBlockBytes); }

bool ReadReserved(PoolAccount* account, uint64_t* bytes) {
  const uint64_t handle = account->handle.load(std::memory_order_acquire);
  if (handle == 0) return false;
  cuuint64_t answer = 0;
  if (real::cuMemPoolGetAttribute(reinterpret_cast<CUmemoryPool>(handle),
                                  CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &answer) != CUDA_SUCCESS) {
    return false;
  }
  *bytes = RoundUp(answer, kChunkBytes);
  return true;
}

template <typename Use>
void ForEachAccount(PoolTable* table, Use use) {
  const uint32_t made = table->made.load(std::memory_order_acquire);
  for (uint32_t n = 0; n < made; ++n) use(NthAccount(table, n));
}

// Lock held. What the charge must not fall below when the driver holds `reserved` bytes.
uint64_t Floor(const PoolAccount& account, uint64_t reserved) {
  return reserved + account.growing_bytes + account.sure_bytes;
}

// Lock held. Lowers the charge as far as it may fall and returns by how much.
uint64_t Lower(PoolAccount* account, uint64_t reserved) {
  ++account->version;
  account->holes.Observe(reserved, /*quiet=*/account->under_way == 0);
  const uint64_t floor = Floor(*account, reserved);
  // Requests with a hole keep memory here that nobody may ever need.
  account->surplus =
      account->charged_bytes > reserved + account->growing_bytes && account->sure_bytes != 0;
  if (floor >= account->charged_bytes) return 0;
  const uint64_t surplus = account->charged_bytes - floor;
  account->charged_bytes = floor;
  return surplus;
}

// Lock held. The request is over, one way or the other.
void End(PoolAccount* account, const PoolRequest& request) {
  const bool sure = request.hole != PoolHoles::kUnsure;
  (sure ? account->sure_bytes : account->growing_bytes) -= request.growth_bytes;
  --account->under_way;
  ++account->turns;
  ++account->version;
}

// Brings the charge in line with what the driver reports, and ends `request` (if any) in the same
// step: until then, it is counted as under way. False: the driver reports more than is charged.
bool Recharge(FencedDevice* payer, PoolAccount* account, const PoolRequest* request,
              uint64_t* reserved) {
  const CaptureRelaxed relaxed;
  for (int attempt = 0;; ++attempt) {
    account->lock.Lock();
    const uint64_t version = account->version;
    account->lock.Unlock();
    const bool is_read = ReadReserved(account, reserved);
    account->lock.Lock();
    const bool is_fresh = version == account->version;
    if (is_read && !is_fresh && attempt < kRechargeAttempts) {
      account->lock.Unlock();
      continue;
    }
    if (request != nullptr) End(account, *request);
    bool covered = true;
    uint64_t surplus = 0;
    uint64_t lost = 0;
    if (is_read && is_fresh) {
      covered = *reserved <= account->charged_bytes;
      surplus = Lower(account, *reserved);
      lost = account->exports.Lose(surplus);
    } else {
      account->surplus = true;
    }
    account->lock.Unlock();
    if (lost != 0) payer->unlisted_bytes.fetch_add(lost);
    if (surplus != lost) payer->account.Release(surplus - lost, account->tier);
    return covered;
  }
}

void RaiseBy(PoolAccount* account, uint64_t bytes) {
  SpinGuard guard(&account->lock);
  account->charged_bytes += bytes;
  account->holes.Distrust();
  ++account->version;
}

// The driver holds `reserved` bytes, more than is charged: memory that came by no call of ours.
// Takes it like a request, or (forced) books it.
bool TakeUnforeseen(FencedDevice* payer, PoolAccount* account, uint64_t reserved, bool forced) {
  account->lock.Lock();
  const uint64_t charged = account->charged_bytes;
  account->lock.Unlock();
  if (reserved <= charged) return true;
  const uint64_t missing = reserved - charged;
  GPUFENCE_LOG(
      kWarn, "a memory pool holds %llu bytes more than the program asked for; they are charged now",
      static_cast<unsigned long long>(missing));
  if (forced) {
    payer->account.Book(missing, account->tier);
  } else if (!payer->account.Reserve(missing, account->tier)) {
    return false;
  }
  RaiseBy(account, missing);
  return true;
}

// The request may have made the pool grow, or taken less of it than was foreseen.
[[gnu::noinline]] bool RechargeLanded(FencedDevice* payer, PoolAccount* account,
                                      PoolRequest request) {
  uint64_t reserved = 0;
  return Recharge(payer, account, &request, &reserved) ||
         TakeUnforeseen(payer, account, reserved, /*forced=*/false);
}

void Trim(FencedDevice* payer, PoolAccount* account) {
  const uint64_t handle = account->handle.load(std::memory_order_acquire);
  if (handle == 0) return;
  const CaptureRelaxed relaxed;
  real::cuMemPoolTrimTo(reinterpret_cast<CUmemoryPool>(handle), 0);
  uint64_t reserved = 0;
  Recharge(payer, account, nullptr, &reserved);
}

// A destroyed pool answers no questions; its memory goes with its last allocation.
void DischargeDestroyed(Fence* fence, FencedDevice* payer, PoolAccount* account) {
  if (account->used.load(std::memory_order_acquire) != 0) return;
  if (!account->destroyed.exchange(false, std::memory_order_acq_rel)) return;
  account->lock.Lock();
  const uint64_t charged = account->charged_bytes;
  account->charged_bytes = 0;
  account->surplus = false;
  account->holes.Observe(0, /*quiet=*/true);
  account->lock.Unlock();
  if (payer != nullptr) {
    payer->account.Release(EndPoolExports(fence, payer, account, charged), account->tier);
  }
  account->freed.store(false, std::memory_order_relaxed);
  RecycleAccount(fence, account);
}

// A hole for the request, which is under way then; false: none is known.
bool ClaimHole(PoolAccount* account, PoolRequest* request) {
  SpinGuard guard(&account->lock);
  request->hole = account->holes.Claim(request->bytes, request->stream, account->growing_bytes);
  if (request->hole == PoolHoles::kUnsure) return false;
  account->sure_bytes += request->growth_bytes;
  ++account->under_way;
  ++account->turns;
  return true;
}

// The most that the request can cost was reserved: it becomes part of the pool's charge.
void BeginGrowth(PoolAccount* account, const PoolRequest& request) {
  SpinGuard guard(&account->lock);
  account->charged_bytes += request.growth_bytes;
  account->growing_bytes += request.growth_bytes;
  ++account->under_way;
  ++account->turns;
  ++account->version;
}

bool ReserveGrowth(FencedDevice* payer, const PoolAccount* account, Effort effort, uint64_t bytes) {
  if (effort == Effort::kThorough) return payer->account.Reserve(bytes, account->tier);
  if (payer->account.TryReserve(bytes, account->tier)) return true;
  payer->account.ReclaimAt(CoarseNowNs());  // the dead cost nothing to ask
  return payer->account.TryReserve(bytes, account->tier);
}

// Whether nothing was under way on the pool since `turns`: nobody is about to leave a rest.
bool IsQuietSince(PoolAccount* account, uint64_t turns) {
  SpinGuard guard(&account->lock);
  return account->under_way == 0 && account->turns == turns;
}

uint64_t TurnsOf(PoolAccount* account) {
  SpinGuard guard(&account->lock);
  return account->turns;
}

// What no hole serves: the pool may grow, as far as the limits allow.
[[gnu::noinline]] bool ClaimGrowth(FencedDevice* payer, PoolAccount* account, Effort effort,
                                   PoolRequest* request, LedgerMove* move) {
  if (request->bytes > payer->account.LimitBytes()) return false;
  move->Begin(&payer->moves);
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    if (attempt > 0 && ClaimHole(account, request)) return true;
    const uint64_t turns = TurnsOf(account);
    if (ReserveGrowth(payer, account, effort, request->growth_bytes)) {
      BeginGrowth(account, *request);
      move->Granted();
      return true;
    }
    if (attempt >= kLeastAttempts && IsQuietSince(account, turns)) return false;
    sched_yield();
  }
  return false;
}

// Lock held; read without it.
void AddUsed(PoolAccount* account, uint64_t bytes) {
  account->used.store(account->used.load(std::memory_order_relaxed) + bytes,
                      std::memory_order_release);
}

void NoteFreed(PoolAccount* account) {
  if (!account->freed.load(std::memory_order_relaxed)) [[unlikely]] {
    account->freed.store(true, std::memory_order_relaxed);
  }
  if (!frees_pending.load(std::memory_order_relaxed)) [[unlikely]] {
    frees_pending.store(true, std::memory_order_release);
  }
}

void RechargeIfFreed(Fence* fence, PoolAccount* account) {
  if (!account->freed.exchange(false, std::memory_order_acq_rel)) return;
  FencedDevice* payer = account->payer;
  if (account->destroyed.load(std::memory_order_acquire)) {
    DischargeDestroyed(fence, payer, account);
    return;
  }
  if (payer == nullptr) return;
  RechargePool(payer, account);
  account->lock.Lock();
  const uint64_t charged = account->charged_bytes;
  account->lock.Unlock();
  // Memory that the pool still keeps may go at the next synchronisation.
  if (charged > Blocks(account->used.load(std::memory_order_relaxed))) NoteFreed(account);
}

}  // namespace

void PoolDestroyed(Fence* fence, PoolAccount* account) {
  account->handle.store(0, std::memory_order_release);
  account->destroyed.store(true, std::memory_order_release);
  DischargeDestroyed(fence, account->payer, account);
}

bool ClaimFromPool(FencedDevice* payer, PoolAccount* account, Effort effort, PoolRequest* request,
                   LedgerMove* move) {
  request->growth_bytes = Blocks(request->bytes);
  if (ClaimHole(account, request)) [[likely]]
    return true;
  return ClaimGrowth(payer, account, effort, request, move);
}

bool LandedInPool(FencedDevice* payer, PoolAccount* account, const PoolRequest& request,
                  uint64_t address) {
  {
    SpinGuard guard(&account->lock);
    if (address != 0) AddUsed(account, request.bytes);
    if (account->holes.Landed(request.hole, address, request.bytes) && !account->surplus)
        [[likely]] {
      End(account, request);
      return true;
    }
  }
  return RechargeLanded(payer, account, request);
}

void FreedInPool(PoolAccount* account, uint64_t before, uint64_t address, uint64_t bytes,
                 uint64_t stream) {
  {
    SpinGuard guard(&account->lock);
    AddUsed(account, 0 - bytes);
    account->holes.Freed(before, address, bytes, stream);
  }
  NoteFreed(account);
}

void ReturnToPool(PoolAccount* account, uint64_t bytes) {
  {
    SpinGuard guard(&account->lock);
    AddUsed(account, 0 - bytes);
  }
  NoteFreed(account);
}

void RechargePool(FencedDevice* payer, PoolAccount* account) {
  uint64_t reserved = 0;
  if (!Recharge(payer, account, nullptr, &reserved)) {
    TakeUnforeseen(payer, account, reserved, /*forced=*/true);
  }
}

void RechargePool(Fence* fence, CUmemoryPool pool) {
  Holding holding;
  if (!fence->holdings.Get(HoldingKind::kPool, reinterpret_cast<uint64_t>(pool), &holding)) return;
  auto* account = reinterpret_cast<PoolAccount*>(holding.owner);
  FencedDevice* payer = account->payer;
  if (payer != nullptr) RechargePool(payer, account);
}

void GiveBackFreed(Fence* fence) {
  if (!frees_pending.exchange(false, std::memory_order_seq_cst)) return;
  const CaptureRelaxed relaxed;
  const PoolRelease release(fence);
  DischargeLateFrees(fence, /*may_wait=*/false);
  ForEachAccount(&fence->pools, [&](PoolAccount* account) { RechargeIfFreed(fence, account); });
}

void TrimPools(Fence* fence, FencedDevice* payer) {
  const PoolRelease release(fence);
  ForEachAccount(&fence->pools, [&](PoolAccount* account) {
    if (account->payer != payer) return;
    if (account->destroyed.load(std::memory_order_acquire)) {
      DischargeDestroyed(fence, payer, account);
    } else {
      Trim(payer, account);
    }
  });
}

}  // namespace gpufence
