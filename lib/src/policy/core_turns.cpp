// The turns of core_seat.h: a word of the container's own says whose turn it is, as it knows.
#include <stdlib.h>

#include <algorithm>

#include "base/futex.h"
#include "base/held_locks.h"
#include "base/pauses.h"
#include "base/tuning.h"
#include "policy/core_seat.h"
#include "policy/share.h"

namespace gpufence {
namespace {

constexpr uint64_t kNsInUs = 1000;

// Heartbeats hold the microsecond and whether something is outstanding.
uint64_t PackBeat(uint64_t now_ns, bool outstanding) {
  return now_ns / kNsInUs << 1 | (outstanding ? 1 : 0);
}
bool IsOutstanding(uint64_t beat) { return (beat & 1) != 0; }
uint64_t BeatNs(uint64_t beat) { return (beat >> 1) * kNsInUs; }

uint64_t QuantumOf(const CoreTenant& tenant) {
  return std::clamp(tenant.quantum_ns.load(std::memory_order_relaxed),
                    uint64_t{kTuning.turn_quantum_ns}, uint64_t{kTuning.long_quantum_ns});
}

// A moment that somebody else wrote: not in the future.
uint64_t UpTo(uint64_t moment_ns, uint64_t now_ns) { return std::min(moment_ns, now_ns); }

// Whom a hand-over wakes; a few others too, now and then.
uint32_t WakeBits(uint64_t author) { return 1u << (author % 32); }

// Until when a process surely had work: its last look, where that saw some.
uint64_t BusyUntilNs(const CoreMember& member, uint64_t beat) {
  return IsOutstanding(beat) ? BeatNs(beat) : member.idle_ns.load(std::memory_order_relaxed);
}

// What one process adds to the view of its container.
void AddMember(const CoreMember& member, uint64_t backlog_ns, uint64_t now_ns, TenantView* view) {
  const uint64_t beat = member.beat.load(std::memory_order_seq_cst);
  const uint64_t ends_ns = member.ends_ns.load(std::memory_order_relaxed);
  if (IsOutstanding(beat) && IsStillOutstanding(BeatNs(beat), ends_ns, now_ns)) {
    view->idle_since_ns = 0;
    view->ends_ns = std::max(view->ends_ns, ends_ns != 0 ? ends_ns : kUnknownEnd);
  } else if (view->idle_since_ns != 0) {
    uint64_t idle_ns = BusyUntilNs(member, beat);
    if (idle_ns > now_ns) idle_ns = IsRecent(idle_ns, now_ns, 1) ? now_ns : 1;
    if (idle_ns > view->idle_since_ns) view->idle_since_ns = idle_ns;
  }
  if (IsRecent(member.wanted_ns.load(std::memory_order_relaxed), now_ns, kTuning.silent_ns)) {
    view->wants_ns = backlog_ns != 0 && backlog_ns < now_ns ? backlog_ns : now_ns;
  }
}

// What a neighbour's notice tells. One that is silent gets no turn, which it could not use; its
// lead and its backlog stay what they are.
void AddNeighbour(const CoreTenant& tenant, uint64_t now_ns, TenantView* view) {
  const uint64_t beat_ns = tenant.beat_ns.load(std::memory_order_relaxed);
  if (beat_ns == 0) return;
  const uint64_t idle_ns = tenant.idle_ns.load(std::memory_order_relaxed);
  const uint64_t ends_ns = tenant.ends_ns.load(std::memory_order_relaxed);
  if (idle_ns != 0) {
    view->idle_since_ns = UpTo(idle_ns, now_ns);
  } else if (IsStillOutstanding(beat_ns, ends_ns, now_ns)) {
    view->idle_since_ns = 0;
    view->ends_ns = ends_ns != 0 ? ends_ns : kUnknownEnd;
  } else {
    view->idle_since_ns = beat_ns;
  }
  if (IsRecent(beat_ns, now_ns, kTuning.silent_ns)) {
    view->wants_ns = UpTo(tenant.wants_ns.load(std::memory_order_relaxed), now_ns);
  }
}

// How turns are divided where there are fewer than everybody may have: by weight, where one is set.
uint32_t TurnShareOf(const CoreTenant& tenant, CoreShares shares) {
  constexpr uint32_t kWeightOne = 100;
  const uint32_t weight = UnpackTerms(tenant.terms.load(std::memory_order_relaxed)).weight;
  return weight != 0 ? std::min(weight * kWeightOne, kWholeShare) : shares.hard;
}

// What a turn costs until some moment, of which its holder used so much.
uint64_t CostOfTurn(Turn turn, const TenantView* views, uint64_t used_ns, uint64_t now_ns) {
  uint64_t others_wait_ns = UINT64_MAX;
  uint32_t takers = 1;
  for (uint32_t i = 0; i < kMaxCoreTenants; ++i) {
    if (i == turn.tenant || views[i].wants_ns == 0) continue;
    others_wait_ns = std::min(others_wait_ns, WaitsSince(views[i], now_ns));
    ++takers;
  }
  const uint64_t began_ns = TurnBegan(turn, now_ns);
  const uint64_t turn_ns = now_ns - std::min(began_ns, now_ns);
  const uint32_t share = ShareWithPauses(views[turn.tenant].share, used_ns, turn_ns, takers);
  const uint64_t cost_ns = ServedInTurn(began_ns, others_wait_ns, now_ns, share);
  return std::min(cost_ns, static_cast<uint64_t>(kMostLeadNs));
}

// It only goes on; but a step that no turn explains is a word that went wrong, or the end of a
// pause in which nobody here looked.
void RaiseVirtualTime(Word* virtual_ns, uint64_t to_ns) {
  const uint64_t seen = virtual_ns->load(std::memory_order_relaxed);
  const auto step_ns = static_cast<int64_t>(to_ns - seen);
  if (step_ns > 0 || step_ns < -kMostLeadNs) virtual_ns->store(to_ns, std::memory_order_relaxed);
}

// What is saved may be used at once: whoever comes back with it goes before who has used its own.
int64_t SavedNs(uint64_t due_ns, uint32_t share, uint64_t now_ns) {
  return -std::min(AheadNs(due_ns, now_ns, CreditOf(share)), int64_t{0});
}

}  // namespace

TenantView CoreSeat::OwnView(uint64_t now_ns) const {
  const CoreTenant& own = tenant();
  const CoreShares shares = UnpackShares(own.shares.load(std::memory_order_relaxed));
  const uint64_t virtual_ns = row().virtual_ns.load(std::memory_order_relaxed);
  TenantView view = {.wants_ns = 0,
                     .idle_since_ns = 1,
                     .ends_ns = 0,
                     .due_ns = own.due_ns.load(std::memory_order_relaxed),
                     .lead_ns = LeadOf(own.served_ns.load(std::memory_order_relaxed), virtual_ns),
                     .quantum_ns = QuantumOf(own),
                     .share = TurnShareOf(own, shares),
                     .rank = TermsNow(now_ns).rank,
                     .saved_ns = 0};
  const uint64_t backlog_ns = own.backlog_ns.load(std::memory_order_relaxed);
  const uint32_t high = HighMember(file_.region);
  for (uint32_t i = 0; i < high; ++i) {
    const CoreMember& member = file_.region->members[place_.row][i];
    if (member.tenant.load(std::memory_order_relaxed) != kOwnTenant + 1) continue;
    AddMember(member, backlog_ns, now_ns, &view);
  }
  return view;
}

void CoreSeat::View(Turn turn, uint64_t now_ns, TenantView* views) const {
  const CoreTenant* tenants = file_.region->tenants[place_.row];
  const uint64_t virtual_ns = row().virtual_ns.load(std::memory_order_relaxed);
  views[kOwnTenant] = OwnView(now_ns);
  for (uint32_t i = 0; i < kMaxCoreTenants; ++i) {
    if (i == kOwnTenant) continue;
    const CoreTenant& tenant = tenants[i];
    const CoreShares shares = UnpackShares(tenant.shares.load(std::memory_order_relaxed));
    views[i] = {.wants_ns = 0,
                .idle_since_ns = 1,
                .ends_ns = 0,
                .due_ns = tenant.due_ns.load(std::memory_order_relaxed),
                .lead_ns = LeadOf(tenant.served_ns.load(std::memory_order_relaxed), virtual_ns),
                .quantum_ns = QuantumOf(tenant),
                .share = TurnShareOf(tenant, shares),
                .rank = UnpackTerms(tenant.terms.load(std::memory_order_relaxed)).rank,
                .saved_ns = 0};
    AddNeighbour(tenant, now_ns, &views[i]);
  }
  for (uint32_t i = 0; i < kMaxCoreTenants; ++i) {
    views[i].saved_ns = SavedNs(views[i].due_ns, views[i].share, now_ns);
    views[i].lead_ns -= views[i].saved_ns;
  }
  if (turn.tenant < kMaxCoreTenants) {
    views[turn.tenant].lead_ns +=
        static_cast<int64_t>(CostOfTurn(turn, views, UsedInTurn(turn), now_ns));
  }
}

// After a pause the container begins a new backlog, and keeps little of what it missed. A lead that
// no turn explains ends here, too: who never pauses would keep the others away for ever.
void CoreSeat::Arrive(uint64_t now_ns) {
  CoreTenant& own = tenant();
  const CoreMember& self = member();
  const uint64_t active_ns = own.active_ns.load(std::memory_order_relaxed);
  const uint64_t served_ns = own.served_ns.load(std::memory_order_relaxed);
  const uint64_t virtual_ns = row().virtual_ns.load(std::memory_order_relaxed);
  const bool was_at_work =
      IsOutstanding(self.beat.load(std::memory_order_relaxed)) ||
      self.wanted_ns.load(std::memory_order_relaxed) > self.idle_ns.load(std::memory_order_relaxed);
  const bool is_back =
      !IsRecent(active_ns, now_ns, was_at_work ? kTuning.most_wait_ns : kTuning.pause_ns);
  if (is_back) own.backlog_ns.store(now_ns, std::memory_order_relaxed);
  if (is_back || llabs(LeadOf(served_ns, virtual_ns)) == kMostLeadNs) {
    const CoreShares shares = UnpackShares(own.shares.load(std::memory_order_relaxed));
    own.served_ns.store(CatchUp(served_ns, virtual_ns, shares.hard), std::memory_order_relaxed);
  }
  own.active_ns.store(now_ns, std::memory_order_relaxed);
}

bool CoreSeat::WantTurn(uint64_t now_ns) {
  if (!shares_device()) return true;
  SignAt(now_ns);
  Arrive(now_ns);
  if (!TakesTurns()) return true;
  member().wanted_ns.store(now_ns, std::memory_order_relaxed);
  if (!HasTurn()) MoveTurn(now_ns);
  return HasTurn();
}

bool CoreSeat::HasTurnAmongOthers() const {
  const Turn turn = UnpackTurn(row().turn.load(std::memory_order_relaxed));
  return turn.tenant == kOwnTenant && !turn.closing;
}

void CoreSeat::AwaitTurn(uint64_t most_ns) const {
  if (!TakesTurns()) return;
  const Turn turn = UnpackTurn(row().turn.load(std::memory_order_acquire));
  if (turn.tenant == kOwnTenant && !turn.closing) return;
  if (turn.tenant >= kMaxCoreTenants) {
    Nap(std::min(most_ns, kTuning.soon_ns));
  } else {
    board_->AwaitChange(turn.tenant, turn.began_us, most_ns, WakeBits(board_->author()));
  }
}

void CoreSeat::Beat(uint64_t now_ns, bool outstanding, uint64_t ends_ns) {
  if (!shares_device()) return;
  CoreMember& own = member();
  const uint64_t before = own.beat.load(std::memory_order_relaxed);
  const bool was_outstanding = IsOutstanding(before);
  if (outstanding) {
    Arrive(now_ns);
    if (!was_outstanding) {
      own.wanted_ns.store(0, std::memory_order_relaxed);  // whoever launches has what it asked for
      const uint64_t idle_ns = own.idle_ns.load(std::memory_order_relaxed);
      if (!IsRecent(idle_ns, now_ns, kSwitchNs)) {
        __atomic_store_n(&came_ns_, now_ns, __ATOMIC_RELAXED);
      }
    }
  } else if (was_outstanding) {
    // A look that began before somebody launched does not know of it.
    if (BeatNs(before) > now_ns) return;
    // Whoever waited for its work knew of the end before this look, which may be late.
    const uint64_t waited_ns = __atomic_load_n(&waited_ns_, __ATOMIC_RELAXED);
    const bool knows_end = waited_ns > BeatNs(before) && waited_ns < now_ns;
    own.idle_ns.store(knows_end ? waited_ns : now_ns, std::memory_order_relaxed);
  }
  own.ends_ns.store(ends_ns, std::memory_order_relaxed);
  // Pairs with OwnView: either a sibling that hands the turn over sees that we launch, or we see
  // that it is closing. A look leaves what a launch told meanwhile.
  const uint64_t after = PackBeat(now_ns, outstanding);
  if (outstanding) {
    own.beat.store(after, std::memory_order_seq_cst);
  } else {
    uint64_t seen = before;
    own.beat.compare_exchange_strong(seen, after, std::memory_order_seq_cst);
  }
}

void CoreSeat::NoteArrival(uint64_t now_ns, bool waited) {
  if (!shares_device()) return;
  const uint64_t waited_ns = __atomic_exchange_n(&waited_ns_, 0, __ATOMIC_RELAXED);
  const uint64_t idle_ns = IdleSinceNs(waited ? waited_ns : 0, now_ns);
  if (idle_ns == 0) return;
  const uint64_t charged_ns = ChargedNs();
  const uint64_t before_ns =
      __atomic_exchange_n(&arrived_.charged_ns, charged_ns, __ATOMIC_RELAXED);
  // What ran last may be charged later: the mean.
  const uint64_t mean_ns = __atomic_load_n(&arrived_.worked_ns, __ATOMIC_RELAXED);
  const uint64_t worked_ns = (3 * mean_ns + (charged_ns - before_ns)) / 4;
  __atomic_store_n(&arrived_.worked_ns, worked_ns, __ATOMIC_RELAXED);
  if (IsRecent(idle_ns, now_ns, LeastRestNs(worked_ns))) return;
  row().rested_ns.store(now_ns, std::memory_order_relaxed);
}

void CoreSeat::BeginHold() { member().held.fetch_add(1, std::memory_order_relaxed); }

void CoreSeat::EndHold() { member().held.fetch_sub(1, std::memory_order_relaxed); }

// Since when the container has had no work, and held none; 0: it has some. `waited_ns`: since then
// this process has had none; 0: as the last look told, which comes late. A process that died while
// it held launches is forgotten.
uint64_t CoreSeat::IdleSinceNs(uint64_t waited_ns, uint64_t now_ns) const {
  TenantView view = {};
  view.idle_since_ns = std::max(waited_ns, uint64_t{1});
  const uint32_t high = HighMember(file_.region);
  for (uint32_t i = 0; i < high; ++i) {
    const CoreMember& each = file_.region->members[place_.row][i];
    if (each.tenant.load(std::memory_order_relaxed) != kOwnTenant + 1) continue;
    const uint64_t beat_ns = BeatNs(each.beat.load(std::memory_order_relaxed));
    const bool is_held = each.held.load(std::memory_order_relaxed) != 0;
    if (is_held && IsRecent(beat_ns, now_ns, kTuning.lately_ns)) return 0;
    if (i != file_.member || waited_ns == 0) AddMember(each, /*backlog_ns=*/0, now_ns, &view);
  }
  return view.idle_since_ns;
}

// Whether another process of the container had work lately.
bool CoreSeat::HasBusySiblings(uint64_t now_ns) const {
  const uint32_t high = HighMember(file_.region);
  for (uint32_t i = 0; i < high; ++i) {
    const CoreMember& each = file_.region->members[place_.row][i];
    const bool is_sibling =
        i != file_.member && each.tenant.load(std::memory_order_relaxed) == kOwnTenant + 1;
    const uint64_t busy_ns = BusyUntilNs(each, each.beat.load(std::memory_order_relaxed));
    if (is_sibling && IsRecent(busy_ns, now_ns, kTuning.lately_ns)) return true;
  }
  return false;
}

void CoreSeat::NoteLaunches(uint64_t launch_ns) {
  if (!shares_device()) return;
  const uint64_t quantum_ns = QuantumFor(launch_ns);
  Word& told = tenant().quantum_ns;
  if (told.load(std::memory_order_relaxed) == quantum_ns) return;
  told.store(quantum_ns, std::memory_order_relaxed);
}

// Once for each turn of the container, as soon as this process knows of it.
void CoreSeat::NoteTurn(Turn turn) {
  if (turn.tenant != kOwnTenant || turn.began_us == turn_.began_us) return;
  turn_ = {turn.began_us, ChargedNs()};
}

// What was charged in a turn of the container's own; UINT64_MAX: not known.
uint64_t CoreSeat::UsedInTurn(Turn turn) const {
  const bool is_known = turn.tenant == kOwnTenant && turn.began_us == turn_.began_us;
  if (!is_known || OwnTerms().weight != 0) return UINT64_MAX;
  const uint64_t charged_ns = ChargedNs();
  return charged_ns - std::min(charged_ns, turn_.charged_ns);
}

// Who had the turn until now pays for it; who waited for it looks for the next holder.
bool CoreSeat::Change(uint64_t* word, Turn to, const TenantView* views, uint64_t now_ns) {
  const Turn from = UnpackTurn(*word);
  const uint64_t packed = PackTurn(to);
  if (!row().turn.compare_exchange_strong(*word, packed, std::memory_order_seq_cst)) return false;
  *word = packed;
  CoreTenant* tenants = file_.region->tenants[place_.row];
  if (from.tenant == kOwnTenant) {
    const uint64_t end_ns = UpTo(to.began_us * kNsInUs, now_ns);
    tenant().served_ns.fetch_add(CostOfTurn(from, views, UsedInTurn(from), end_ns),
                                 std::memory_order_relaxed);
  } else if (from.tenant < kMaxCoreTenants) {
    board_->Wake(from.tenant, WakeBits(board_->author()));
  }
  if (to.tenant < kMaxCoreTenants) {
    RaiseVirtualTime(&row().virtual_ns,
                     tenants[to.tenant].served_ns.load(std::memory_order_relaxed));
  }
  return true;
}

// The holder closes and hands over; who waits takes what is nobody's, or of somebody who is not
// there, for itself.
void CoreSeat::Decide(uint64_t now_ns) {
  TenantView views[kMaxCoreTenants];
  uint64_t word = row().turn.load(std::memory_order_seq_cst);
  Turn turn = UnpackTurn(word);
  NoteTurn(turn);
  View(turn, now_ns, views);
  if (turn.tenant == kOwnTenant && !turn.closing) {
    TenantView holder = views[kOwnTenant];
    if (!TakesTurns()) holder.idle_since_ns = 1;  // what it has left stands in nobody's way
    views[kOwnTenant].wants_ns = 0;
    const uint32_t next = NextTenant(views, kMaxCoreTenants, now_ns);
    const TenantView* other = next != kNoTenant ? &views[next] : nullptr;
    if (!IsTurnOver(holder, other, TurnBegan(turn, now_ns), now_ns)) return;
    turn.closing = true;
    const uint64_t closing = PackTurn(turn);
    if (!row().turn.compare_exchange_strong(word, closing, std::memory_order_seq_cst)) return;
    word = closing;
    View(turn, now_ns, views);  // again: what was launched until now is outstanding
  }
  const uint32_t next = NextTenant(views, kMaxCoreTenants, now_ns);
  if (turn.tenant == kOwnTenant) {
    if (TakesTurns() && !IsDrained(views[kOwnTenant], now_ns)) return;
    if (!Change(&word, NextTurn(turn, next, now_ns), views, now_ns)) return;
    PostNotice(now_ns);
    const uint64_t author = next < kMaxCoreTenants ? AuthorOf(next) : 0;
    board_->Wake(kOwnTenant, WakeBits(author) | WakeBits(board_->author()));
    return;
  }
  if (next != kOwnTenant) return;
  if (turn.tenant < kMaxCoreTenants &&
      !IsAbandoned(views[turn.tenant], views[next], TurnBegan(turn, now_ns), now_ns)) {
    return;
  }
  Change(&word, NextTurn(turn, next, now_ns), views, now_ns);
}

bool CoreSeat::MoveTurn(uint64_t now_ns) {
  if (!shares_device() || !board_->TryEnter()) return false;
  const CountedLock counted;
  const uint64_t before = row().turn.load(std::memory_order_relaxed);
  ReadNotices(now_ns);
  ShareWithNeighbours(now_ns);
  UpdateDepth(now_ns);
  UpdateRank(now_ns);
  UpdateSoftShare(now_ns);
  CountWait(now_ns);
  if (!IsAlone(now_ns)) Decide(now_ns);
  PostAndLeave(now_ns);
  return row().turn.load(std::memory_order_relaxed) != before;
}

bool CoreSeat::OthersWant(uint64_t now_ns, uint64_t window_ns) const {
  if (!shares_device()) return false;
  const CoreTenant* tenants = file_.region->tenants[place_.row];
  for (uint32_t other = 0; other < kMaxCoreTenants; ++other) {
    if (other != kOwnTenant &&
        IsRecent(tenants[other].active_ns.load(std::memory_order_relaxed), now_ns, window_ns)) {
      return true;
    }
  }
  return false;
}

// Whether somebody waits for the turn, or has it.
bool CoreSeat::OthersTakeTurns(uint64_t now_ns) const {
  if (!shares_device()) return false;
  const CoreTenant* tenants = file_.region->tenants[place_.row];
  for (uint32_t other = 0; other < kMaxCoreTenants; ++other) {
    if (other != kOwnTenant && tenants[other].wants_ns.load(std::memory_order_relaxed) != 0 &&
        IsRecent(tenants[other].beat_ns.load(std::memory_order_relaxed), now_ns,
                 kTuning.silent_ns)) {
      return true;
    }
  }
  return false;
}

// ---- windows ----

// Authors are of one GPU each, and nobody else's: the first one names the container on all.
uint64_t CoreSeat::JobOf() const {
  for (uint32_t row = 0; row < kMaxTimeRows; ++row) {
    const TimeRow& device = file_.region->rows[row];
    if (device.key.load(std::memory_order_acquire) == 0) break;
    const uint64_t author = device.author.load(std::memory_order_relaxed);
    if (author != 0) return author;
  }
  return 0;
}

Window CoreSeat::WindowNow(uint64_t now_ns) const {
  if (!shares_device() || !has_slices() || !HasCollectives(now_ns)) return {0, UINT64_MAX};
  const CoreTenant* tenants = file_.region->tenants[place_.row];
  const auto in_window = [](const CoreTenant& tenant, uint64_t job, uint64_t idle_since_ns) {
    const CoreShares shares = UnpackShares(tenant.shares.load(std::memory_order_relaxed));
    return WindowTenant{job, std::max(TurnShareOf(tenant, shares), 1u), idle_since_ns};
  };
  WindowTenant others[kMaxCoreTenants];
  size_t count = 0;
  for (uint32_t i = 0; i < kMaxCoreTenants; ++i) {
    const uint64_t job = i != kOwnTenant ? board_->JobAt(i) : 0;
    if (job == 0 ||
        !IsRecent(tenants[i].beat_ns.load(std::memory_order_relaxed), now_ns, kTuning.lately_ns)) {
      continue;
    }
    TenantView view = {};
    view.idle_since_ns = 1;
    AddNeighbour(tenants[i], now_ns, &view);
    others[count++] = in_window(tenants[i], job, view.idle_since_ns);
  }
  return WindowOf(in_window(tenant(), JobOf(), 0), others, count, now_ns);
}

uint64_t CoreSeat::TurnLeftNs(uint64_t now_ns) const {
  if (!TakesTurns() || !HasTurn() || !OthersTakeTurns(now_ns) || IsAlone(now_ns)) {
    return UINT64_MAX;
  }
  const Turn turn = UnpackTurn(row().turn.load(std::memory_order_relaxed));
  const uint64_t end_ns = TurnBegan(turn, now_ns) + QuantumOf(tenant());
  // Beyond its quantum it ends when somebody else was served less, which may be soon.
  return end_ns > now_ns ? end_ns - now_ns : kTuning.short_turn_ns;
}

bool CoreSeat::IsDraining() const {
  if (!shares_device()) return false;
  const Turn turn = UnpackTurn(row().turn.load(std::memory_order_relaxed));
  return TakesTurns() && turn.tenant == kOwnTenant && turn.closing;
}

void CoreSeat::Leave(uint64_t now_ns) {
  if (!shares_device()) return;
  member().wanted_ns.store(0, std::memory_order_relaxed);
  member().idle_ns.store(1, std::memory_order_relaxed);
  member().beat.store(PackBeat(now_ns, false), std::memory_order_seq_cst);
  MoveTurn(now_ns);
}

bool CoreSeat::LooksForNeighbours() const {
  if (shares_device()) return false;
  const CoreShares shares = UnpackShares(tenant().shares.load(std::memory_order_relaxed));
  return shares.soft > shares.hard && shares.hard < kTuning.most_unseen_share;
}

void CoreSeat::NoteForeign(uint64_t now_ns) {
  row().foreign_ns.store(now_ns, std::memory_order_relaxed);
}

}  // namespace gpufence
