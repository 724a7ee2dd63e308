#include "policy/core_seat.h"

#include <algorithm>

#include "base/pauses.h"
#include "base/tuning.h"
#include "policy/gang.h"
#include "policy/gpu_time.h"
#include "policy/share.h"

namespace gpufence {
namespace {

constexpr uint64_t kUpdateSharesNs = 1'000'000'000;
constexpr uint64_t kSignNs = 1'000'000'000;

uint32_t Sane(uint32_t share) {
  if (share == 0) return 1;
  return share > kWholeShare ? kWholeShare : share;
}

CoreShares SaneShares(CoreShares shares) {
  const uint32_t hard = Sane(shares.hard);
  return {hard, shares.soft > hard ? Sane(shares.soft) : hard};
}

bool AreSane(CoreShares shares) {
  return shares.hard != 0 && shares.hard <= shares.soft && shares.soft <= kWholeShare;
}

}  // namespace

bool CoreSeat::Join(const char* node_folder, const RegionPlaces& own, const uint8_t uuid[16],
                    uint32_t share, uint32_t soft_share, uint64_t now_ns, char* why,
                    size_t why_bytes, CoreShares imposed) {
  const CoreShares shares = SaneShares({share, soft_share});
  imposed_ = imposed.hard == 0 ? 0 : PackShares(SaneShares(imposed));
  TimeFile file;
  TimePlace place;
  if (!OpenTimeFile(own, &file, why, why_bytes) ||
      !JoinTimeRow(file, own.container, uuid, shares, now_ns, &place, why, why_bytes)) {
    return false;
  }
  Sit(file, place);
  if (node_folder[0] != '\0') Meet(node_folder, why, why_bytes);
  UpdateShares(now_ns);
  if (shares_device()) PostNotice(now_ns);
  return true;
}

void CoreSeat::Sit(const TimeFile& file, TimePlace place) {
  file_ = file;
  place_ = place;
  board_ = nullptr;
  signature_ = SignatureOf(file, place);
}

void CoreSeat::SignAt(uint64_t now_ns) {
  if (IsRecent(__atomic_load_n(&signed_ns_, __ATOMIC_RELAXED), now_ns, kSignNs)) return;
  __atomic_store_n(&signed_ns_, now_ns, __ATOMIC_RELAXED);
  SignAgain(file_, place_, signature_);
}

// ---- GPU time ----

uint64_t CoreSeat::Charge(const RanNs& ran, uint64_t now_ns) {
  SignAt(now_ns);
  UpdateSharesAt(now_ns);
  const uint64_t busy_ns = AddBusy(&tenant(), ran.begin_ns, ran.end_ns, now_ns);
  if (shares_device()) NoteRan(ran, busy_ns, now_ns);
  if (busy_ns == 0) return 0;
  CountCharged(busy_ns);
  const uint32_t share = ShareNow(now_ns);
  const uint64_t credit_ns = CreditNs(share) + MissedNs(now_ns);
  Word& due = tenant().due_ns;
  uint64_t seen = due.load(std::memory_order_relaxed);
  while (!due.compare_exchange_weak(seen, DueAfter(seen, now_ns, busy_ns, share, credit_ns),
                                    std::memory_order_relaxed)) {
  }
  return busy_ns;
}

uint64_t CoreSeat::HeldFor(uint64_t now_ns) const {
  return HeldForNs(tenant().due_ns.load(std::memory_order_relaxed), now_ns);
}

int64_t CoreSeat::AheadNs(uint64_t now_ns) const {
  const uint64_t due_ns = tenant().due_ns.load(std::memory_order_relaxed);
  return gpufence::AheadNs(due_ns, now_ns, CreditNs(ShareNow(now_ns)));
}

uint64_t CoreSeat::CreditNs(uint32_t share) const {
  return CreditOf(share, __atomic_load_n(&burst_ns_, __ATOMIC_RELAXED));
}

uint32_t CoreSeat::ShareNow(uint64_t now_ns) const {
  const CoreShares shares = UnpackShares(tenant().shares.load(std::memory_order_relaxed));
  const uint32_t hard = Sane(shares.hard);
  const uint32_t soft = Sane(shares.soft);
  if (soft <= hard) return hard;
  if (shares_device()) {
    const uint64_t found_ns = tenant().soft_ns.load(std::memory_order_relaxed);
    if (!IsRecent(found_ns, now_ns, kTuning.silent_ns)) return hard;
    const auto found = static_cast<uint32_t>(tenant().soft_share.load(std::memory_order_relaxed));
    return std::clamp(found, hard, soft);
  }
  const bool is_seen = IsRecent(row().foreign_ns.load(std::memory_order_relaxed), now_ns,
                                3 * kTuning.neighbour_look_ns / 2);
  return is_seen ? hard : std::min(std::max(kTuning.most_unseen_share, hard), soft);
}

// Credit is kept while a container waits behind others: a turn that is late must not cost anything.
// Once nobody else wants the device, or after an idle time, it is nothing again.
uint64_t CoreSeat::MissedNs(uint64_t now_ns) const {
  const uint64_t backlog_ns = tenant().backlog_ns.load(std::memory_order_relaxed);
  if (!TakesTurns() || backlog_ns == 0 || backlog_ns >= now_ns) return 0;
  if (!OthersTakeTurns(now_ns)) return 0;
  const uint64_t waiting_ns = now_ns - backlog_ns;
  return waiting_ns < kTuning.most_wait_ns ? waiting_ns : kTuning.most_wait_ns;
}

// Whoever is first in a second looks whether the process with the lowest share still lives. Nobody
// charges at shares that cannot be.
void CoreSeat::UpdateSharesAt(uint64_t now_ns) {
  if (!AreSane(UnpackShares(tenant().shares.load(std::memory_order_relaxed)))) {
    UpdateShares(now_ns);
    return;
  }
  Word& checked = tenant().shares_checked_ns;
  uint64_t last_ns = checked.load(std::memory_order_relaxed);
  if (IsRecent(last_ns, now_ns, kUpdateSharesNs)) return;
  if (!checked.compare_exchange_strong(last_ns, now_ns, std::memory_order_relaxed)) return;
  UpdateShares(now_ns);
}

void CoreSeat::Impose(CoreShares shares, uint64_t now_ns) {
  const uint64_t imposed = shares.hard == 0 ? 0 : PackShares(SaneShares(shares));
  __atomic_store_n(&imposed_, imposed, __ATOMIC_RELAXED);
  UpdateShares(now_ns);
}

// Whoever changes the word also changes what is owed: a debt is time at the old share. The debt
// comes first, and is taken back where somebody else changed the word meanwhile: so what is charged
// between the two costs what it costs at one of the shares, and is not multiplied by their ratio.
void CoreSeat::UpdateShares(uint64_t now_ns) {
  SignAgain(file_, place_, signature_);  // or the lowest of nobody would be found
  const uint64_t imposed = __atomic_load_n(&imposed_, __ATOMIC_RELAXED);
  const uint64_t wanted = imposed != 0 ? imposed : LowestShares(file_, place_);
  if (wanted == 0) return;
  Word& shares = tenant().shares;
  uint64_t seen = shares.load(std::memory_order_acquire);
  while (seen != wanted) {
    const uint64_t before = seen;
    Rescale(before, wanted, now_ns);
    if (shares.compare_exchange_strong(seen, wanted, std::memory_order_acq_rel)) return;
    Rescale(wanted, before, now_ns);
  }
}

void CoreSeat::Rescale(uint64_t from, uint64_t to, uint64_t now_ns) {
  const CoreShares before = UnpackShares(from);
  const CoreShares after = UnpackShares(to);
  if (!AreSane(before) || !AreSane(after) || before.hard == after.hard) return;
  Word& due = tenant().due_ns;
  uint64_t seen = due.load(std::memory_order_relaxed);
  while (!due.compare_exchange_weak(seen, DueAtShare(seen, now_ns, before.hard, after.hard),
                                    std::memory_order_relaxed)) {
  }
}

// ---- terms: what a soft share comes to, and who goes first ----

namespace {

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

// Whoever has had less than its floor goes first, until it has had that. Meanwhile nobody of higher
// priority seems to have work, since they wait.
SeatTerms CoreSeat::TermsNow(uint64_t now_ns) const {
  SeatTerms terms = OwnTerms();
  const uint64_t yielded_ns = __atomic_load_n(&floor_.yielded_ns, __ATOMIC_RELAXED);
  const bool waits = IsRecent(yielded_ns, now_ns, kTuning.silent_ns);
  const bool has_had_it = __atomic_load_n(&floor_.due_ns, __ATOMIC_RELAXED) > now_ns;
  if (waits && FloorNow(terms) != 0 && !has_had_it) terms.rank = kHighestRank;
  return terms;
}

uint32_t CoreSeat::FloorNow(SeatTerms terms) const {
  return std::min(terms.floor, UnpackShares(tenant().shares.load(std::memory_order_relaxed)).hard);
}

// As what is owed for a share, for the floor: what it has had lies so far ahead. What was had long
// ago is forgotten.
void CoreSeat::UpdateFloor(uint64_t now_ns) {
  const uint32_t floor = FloorNow(OwnTerms());
  const uint64_t charged_ns = ChargedNs();
  const uint64_t before_ns = __atomic_exchange_n(&floor_.charged_ns, charged_ns, __ATOMIC_RELAXED);
  const uint64_t more_ns = charged_ns - std::min(charged_ns, before_ns);
  if (floor == 0 || more_ns == 0) return;
  uint64_t due_ns = __atomic_load_n(&floor_.due_ns, __ATOMIC_RELAXED);
  uint64_t after_ns = 0;
  do {
    after_ns = std::min(DueAfter(due_ns, now_ns, more_ns, floor, kTuning.lately_ns),
                        now_ns + 2 * kTuning.lately_ns);
  } while (!__atomic_compare_exchange_n(&floor_.due_ns, &due_ns, after_ns, /*weak=*/true,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

void CoreSeat::UpdateSoftShare(uint64_t now_ns) {
  const CoreShares shares = UnpackShares(tenant().shares.load(std::memory_order_relaxed));
  if (shares.soft <= shares.hard || shares.soft > kWholeShare) return;
  const uint32_t weight = OwnTerms().weight;
  const CoreTenant* tenants = file_.region->tenants[place_.row];
  SoftTenant others[kMostSoftTenants];
  size_t count = 0;
  uint32_t free = kWholeShare - shares.hard;
  for (uint32_t i = 0; i < kMaxCoreTenants; ++i) {
    const CoreTenant& other = tenants[i];
    if (i == kOwnTenant ||
        !IsRecent(other.active_ns.load(std::memory_order_relaxed), now_ns, kTuning.lately_ns)) {
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

namespace {

// Whether it tells of runs that it used a part of: its GPU waits for its host.
bool IsHostBound(const CoreTenant& tenant, uint64_t now_ns) {
  for (const Word& word : tenant.runs) {
    Run run;
    if (UnpackRun(word.load(std::memory_order_relaxed), now_ns, &run) && run.part != 0) return true;
  }
  return false;
}

}  // namespace

template <typename Visit>
void CoreSeat::ForEachSuperior(Visit visit) const {
  const uint32_t rank = OwnTerms().rank;
  for (uint32_t i = 0; i < kMaxCoreTenants; ++i) {
    const CoreTenant& other = file_.region->tenants[place_.row][i];
    if (i == kOwnTenant || other.beat_ns.load(std::memory_order_relaxed) == 0 ||
        UnpackTerms(other.terms.load(std::memory_order_relaxed)).rank <= rank) {
      continue;
    }
    visit(i, other);
  }
}

void CoreSeat::UpdateRank(uint64_t now_ns) {
  NoteRate(&tenant(), 0, now_ns);
  UpdateFloor(now_ns);
  uint64_t superior_ns = 0;
  bool yields = false;
  ForEachSuperior([&](uint32_t, const CoreTenant& other) {
    const uint64_t active_ns = other.active_ns.load(std::memory_order_relaxed);
    if (IsRecent(active_ns, now_ns, kTuning.remembered_ns)) {
      superior_ns = std::max(superior_ns, active_ns);
    }
    const uint64_t beat_ns = other.beat_ns.load(std::memory_order_relaxed);
    const uint64_t idle_ns = other.idle_ns.load(std::memory_order_relaxed);
    yields |= IsRecent(beat_ns, now_ns, kTuning.silent_ns) &&
              (idle_ns == 0 || IsRecent(idle_ns, now_ns, kSwitchNs));
  });
  tenant().superior_ns.store(superior_ns, std::memory_order_relaxed);
  tenant().yields_ns.store(yields ? now_ns : 0, std::memory_order_relaxed);
  if (yields) __atomic_store_n(&floor_.yielded_ns, now_ns, __ATOMIC_RELAXED);
}

bool CoreSeat::HasSuperior(uint64_t now_ns) const {
  return shares_device() && IsRecent(tenant().superior_ns.load(std::memory_order_relaxed), now_ns,
                                     kTuning.remembered_ns);
}

bool CoreSeat::Yields(uint64_t now_ns) const {
  return shares_device() &&
         IsRecent(tenant().yields_ns.load(std::memory_order_relaxed), now_ns, kTuning.silent_ns) &&
         TermsNow(now_ns).rank < kHighestRank;
}

bool CoreSeat::HasHostBoundSuperior(uint64_t now_ns) const {
  bool has_one = false;
  ForEachSuperior(
      [&](uint32_t, const CoreTenant& other) { has_one |= IsHostBound(other, now_ns); });
  return has_one;
}

void CoreSeat::AwaitSuperior(uint64_t most_ns) const {
  uint32_t latest = kOwnTenant;
  uint64_t latest_ns = 0;
  ForEachSuperior([&](uint32_t place, const CoreTenant& other) {
    const uint64_t active_ns = other.active_ns.load(std::memory_order_relaxed);
    if (active_ns <= latest_ns) return;
    latest = place;
    latest_ns = active_ns;
  });
  board_->AwaitNews(latest, most_ns);
}

bool CoreSeat::HasInferior(uint64_t now_ns) const {
  if (!shares_device()) return false;
  const uint32_t rank = OwnTerms().rank;
  const CoreTenant* tenants = file_.region->tenants[place_.row];
  for (uint32_t i = 0; i < kMaxCoreTenants; ++i) {
    const CoreTenant& other = tenants[i];
    if (i != kOwnTenant && UnpackTerms(other.terms.load(std::memory_order_relaxed)).rank < rank &&
        IsRecent(other.beat_ns.load(std::memory_order_relaxed), now_ns, kTuning.lately_ns)) {
      return true;
    }
  }
  return false;
}

bool CoreSeat::CameBack(uint64_t now_ns) const {
  return IsRecent(__atomic_load_n(&came_ns_, __ATOMIC_RELAXED), now_ns, kTuning.mean_over_ns);
}

// ---- the others of the container, on their GPUs ----

// Members of the own row are on the same GPU: they owe the same, and no collective has two of them.
GangView CoreSeat::SeeGang(uint32_t count, uint64_t now_ns) const {
  const TimeBytes* region = file_.region;
  const uint64_t key = signature_.tenant_key;
  const uint32_t high = HighMember(region);
  GangView view = {};
  view.count = count;
  for (uint32_t row = 0; row < kMaxTimeRows; ++row) {
    // Rows are claimed in order; those that nobody claimed may have no space yet.
    if (region->rows[row].key.load(std::memory_order_acquire) == 0) break;
    if (row == place_.row) continue;
    for (uint32_t i = 0; i < high; ++i) {
      const CoreMember& member = region->members[row][i];
      const uint32_t tenant = member.tenant.load(std::memory_order_relaxed) - 1;
      if (tenant >= kMaxCoreTenants) continue;
      const CoreTenant& other = region->tenants[row][tenant];
      if (other.key.load(std::memory_order_relaxed) != key) continue;
      const GangWords words = {member.collectives.load(std::memory_order_relaxed),
                               member.gang_held.load(std::memory_order_relaxed)};
      AddToGang(&view, words, other.due_ns.load(std::memory_order_relaxed), now_ns);
    }
  }
  return view;
}

void CoreSeat::TellCollectives(uint32_t count, uint64_t now_ns) {
  member().collectives.store(PackLaunched(count, now_ns), std::memory_order_relaxed);
  row().met_ns.store(now_ns, std::memory_order_relaxed);
}

bool CoreSeat::HasCollectives(uint64_t now_ns) const {
  return IsRecent(row().met_ns.load(std::memory_order_relaxed), now_ns, kTuning.gang_lasts_ns);
}

void CoreSeat::TellGangHeld(bool is_behind, bool is_quiet, uint64_t now_ns) {
  member().gang_held.store(PackHeld(is_behind, is_quiet, now_ns), std::memory_order_relaxed);
}

void CoreSeat::TellGangGoesOn() { member().gang_held.store(0, std::memory_order_relaxed); }

}  // namespace gpufence
