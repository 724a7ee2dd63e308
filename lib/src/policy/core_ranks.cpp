// A seat's terms: what its soft share comes to, and who goes first.
#include <algorithm>

#include "policy/core_rate.h"
#include "policy/core_seat.h"
#include "policy/moment.h"
#include "policy/share.h"
#include "policy/soft_share.h"

namespace gpufence {
namespace {

// Who had no work for so long claims nothing.
constexpr uint64_t kActiveNs = 50'000'000;
// Between two pieces of work of somebody who goes first, nobody else begins.
constexpr uint64_t kPauseNs = 150'000;
// Whoever may come at any moment finds short queues.
constexpr uint64_t kSuperiorLastsNs = 60'000'000'000;
constexpr uint64_t kYieldLastsNs = 3'000'000;
constexpr uint32_t kWeightOne = 100;

SoftTenant SoftTenantOf(CoreShares shares, uint32_t weight) {
  return {shares.hard, shares.soft, std::max(weight != 0 ? weight * kWeightOne : shares.hard, 1u)};
}

}  // namespace

void CoreSeat::Follow(SeatTerms terms) {
  __atomic_store_n(&burst_ns_, terms.burst_ns, __ATOMIC_RELAXED);
  const uint64_t packed = PackTerms(terms);
  if (tenant().terms.load(std::memory_order_relaxed) == packed) return;
  tenant().terms.store(packed, std::memory_order_relaxed);
}

// Whoever has had less than its floor goes first, until it has had that.
SeatTerms CoreSeat::TermsNow(uint64_t now_ns) const {
  SeatTerms terms = UnpackTerms(tenant().terms.load(std::memory_order_relaxed));
  const bool waits =
      IsRecent(tenant().yields_ns.load(std::memory_order_relaxed), now_ns, kYieldLastsNs);
  const CoreShares shares = UnpackShares(tenant().shares.load(std::memory_order_relaxed));
  if (waits && RateSoFar(tenant()) < std::min(terms.floor, shares.hard)) terms.rank = kHighestRank;
  return terms;
}

void CoreSeat::SettleSoftShare(uint64_t now_ns) {
  const CoreShares shares = UnpackShares(tenant().shares.load(std::memory_order_relaxed));
  if (shares.soft <= shares.hard || shares.soft > kWholeShare) return;
  const uint32_t weight = UnpackTerms(tenant().terms.load(std::memory_order_relaxed)).weight;
  const CoreTenant* tenants = file_.region->tenants[place_.row];
  SoftTenant others[kMostSoftTenants];
  size_t count = 0;
  uint32_t free = kWholeShare - shares.hard;
  for (uint32_t i = 0; i < kMaxCoreTenants; ++i) {
    const CoreTenant& other = tenants[i];
    if (i == kOwnTenant ||
        !IsRecent(other.active_ns.load(std::memory_order_relaxed), now_ns, kActiveNs)) {
      continue;
    }
    const CoreShares theirs = UnpackShares(other.shares.load(std::memory_order_relaxed));
    const uint32_t claim = ClaimOf(RateOf(other), theirs.hard);
    free -= std::min(free, claim);
    if (claim < theirs.hard || theirs.soft <= theirs.hard || count == kMostSoftTenants) continue;
    const SeatTerms terms = UnpackTerms(other.terms.load(std::memory_order_relaxed));
    others[count++] = SoftTenantOf(theirs, terms.weight);
  }
  const uint32_t share = SoftShareOf(SoftTenantOf(shares, weight), free, others, count);
  tenant().soft_share.store(share, std::memory_order_relaxed);
  tenant().soft_ns.store(now_ns, std::memory_order_relaxed);
}

void CoreSeat::SettleRank(uint64_t now_ns) {
  NoteRate(&tenant(), 0, now_ns);
  const uint32_t rank = UnpackTerms(tenant().terms.load(std::memory_order_relaxed)).rank;
  const CoreTenant* tenants = file_.region->tenants[place_.row];
  uint64_t superior_ns = 0;
  bool yields = false;
  for (uint32_t i = 0; i < kMaxCoreTenants; ++i) {
    const CoreTenant& other = tenants[i];
    const uint64_t beat_ns = other.beat_ns.load(std::memory_order_relaxed);
    if (i == kOwnTenant || beat_ns == 0 ||
        UnpackTerms(other.terms.load(std::memory_order_relaxed)).rank <= rank) {
      continue;
    }
    const uint64_t active_ns = other.active_ns.load(std::memory_order_relaxed);
    if (IsRecent(active_ns, now_ns, kSuperiorLastsNs)) {
      superior_ns = std::max(superior_ns, active_ns);
    }
    const uint64_t idle_ns = other.idle_ns.load(std::memory_order_relaxed);
    yields |= IsRecent(beat_ns, now_ns, kMemberSilentNs) &&
              (idle_ns == 0 || IsRecent(idle_ns, now_ns, kPauseNs));
  }
  tenant().superior_ns.store(superior_ns, std::memory_order_relaxed);
  tenant().yields_ns.store(yields ? now_ns : 0, std::memory_order_relaxed);
}

bool CoreSeat::HasSuperior(uint64_t now_ns) const {
  return shares_device() &&
         IsRecent(tenant().superior_ns.load(std::memory_order_relaxed), now_ns, kSuperiorLastsNs);
}

bool CoreSeat::Yields(uint64_t now_ns) const {
  return shares_device() &&
         IsRecent(tenant().yields_ns.load(std::memory_order_relaxed), now_ns, kYieldLastsNs) &&
         TermsNow(now_ns).rank < kHighestRank;
}

bool CoreSeat::HasInferior(uint64_t now_ns) const {
  if (!shares_device()) return false;
  const uint32_t rank = UnpackTerms(tenant().terms.load(std::memory_order_relaxed)).rank;
  const CoreTenant* tenants = file_.region->tenants[place_.row];
  for (uint32_t i = 0; i < kMaxCoreTenants; ++i) {
    const CoreTenant& other = tenants[i];
    if (i != kOwnTenant && UnpackTerms(other.terms.load(std::memory_order_relaxed)).rank < rank &&
        IsRecent(other.beat_ns.load(std::memory_order_relaxed), now_ns, kActiveNs)) {
      return true;
    }
  }
  return false;
}

}  // namespace gpufence
