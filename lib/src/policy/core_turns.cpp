// The turns of core_seat.h: one word says whose turn it is; anybody may move it on.
#include <stdlib.h>

#include <algorithm>

#include "core/futex.h"
#include "policy/core_seat.h"
#include "policy/moment.h"
#include "policy/neighbours.h"
#include "policy/share.h"

namespace gpufence {
namespace {

// A pause of this length ends a container's backlog. Longer than a few ticks, since a watcher that
// the machine held up is not a container that had nothing to do.
constexpr uint64_t kBacklogPauseNs = 5'000'000;

constexpr uint64_t kNsInUs = 1000;

// Heartbeats hold the microsecond and whether something is outstanding.
uint64_t PackBeat(uint64_t now_ns, bool outstanding) {
  return now_ns / kNsInUs << 1 | (outstanding ? 1 : 0);
}
bool IsOutstanding(uint64_t beat) { return (beat & 1) != 0; }
uint64_t BeatNs(uint64_t beat) { return (beat >> 1) * kNsInUs; }

// Whom a hand-over wakes; a few others too, where there are more than 32 containers.
uint32_t WakeBits(uint32_t tenant) { return 1u << (tenant % 32); }

uint64_t QuantumOf(const CoreTenant& tenant) {
  return std::clamp(tenant.quantum_ns.load(std::memory_order_relaxed), uint64_t{kTurnQuantumNs},
                    uint64_t{kLongQuantumNs});
}

// What one process adds to the view of its container.
void AddMember(const CoreMember& member, uint64_t backlog_ns, uint64_t now_ns, TenantView* view) {
  // Pairs with Beat: who is seen here as idle sees there that the turn is closing.
  const uint64_t beat = member.beat.load(std::memory_order_seq_cst);
  const bool runs = IsOutstanding(beat) && IsRecent(BeatNs(beat), now_ns, kMemberSilentNs);
  if (runs) {
    const uint64_t ends_ns = member.ends_ns.load(std::memory_order_relaxed);
    view->idle_since_ns = 0;
    view->ends_ns = std::max(view->ends_ns, ends_ns != 0 ? ends_ns : kUnknownEnd);
  } else if (view->idle_since_ns != 0) {
    uint64_t idle_ns =
        IsOutstanding(beat) ? BeatNs(beat) : member.idle_ns.load(std::memory_order_relaxed);
    if (idle_ns > now_ns) idle_ns = IsRecent(idle_ns, now_ns, 1) ? now_ns : 1;
    if (idle_ns > view->idle_since_ns) view->idle_since_ns = idle_ns;
  }
  if (IsRecent(member.wanted_ns.load(std::memory_order_relaxed), now_ns, kMemberSilentNs)) {
    view->wants_ns = backlog_ns != 0 && backlog_ns < now_ns ? backlog_ns : now_ns;
  }
}

// What a turn costs its holder until now.
uint64_t CostOfTurn(Turn turn, const TenantView* views, uint64_t now_ns) {
  uint64_t others_wait_ns = UINT64_MAX;
  for (uint32_t i = 0; i < kMaxCoreTenants; ++i) {
    if (i != turn.tenant) others_wait_ns = std::min(others_wait_ns, WaitsSince(views[i], now_ns));
  }
  const uint64_t cost_ns =
      ServedInTurn(TurnBegan(turn, now_ns), others_wait_ns, now_ns, views[turn.tenant].share);
  return std::min(cost_ns, static_cast<uint64_t>(kMostLeadNs));
}

void RaiseVirtualTime(Word* virtual_ns, uint64_t to_ns) {
  uint64_t seen = virtual_ns->load(std::memory_order_relaxed);
  while (static_cast<int64_t>(to_ns - seen) > 0 &&
         !virtual_ns->compare_exchange_weak(seen, to_ns, std::memory_order_relaxed)) {
  }
}

}  // namespace

void CoreSeat::View(Turn turn, uint64_t now_ns, TenantView* views) const {
  const CoreTenant* tenants = file_.region->tenants[place_.row];
  const uint64_t virtual_ns = row().virtual_ns.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < kMaxCoreTenants; ++i) {
    const CoreTenant& tenant = tenants[i];
    const CoreShares shares = UnpackShares(tenant.shares.load(std::memory_order_relaxed));
    views[i] = {.wants_ns = 0,
                .idle_since_ns = 1,
                .ends_ns = 0,
                .due_ns = tenant.due_ns.load(std::memory_order_relaxed),
                .lead_ns = LeadOf(tenant.served_ns.load(std::memory_order_relaxed), virtual_ns),
                .quantum_ns = QuantumOf(tenant),
                .share = shares.hard};
  }
  const uint32_t high = HighMember(file_.region);
  for (uint32_t i = 0; i < high; ++i) {
    const CoreMember& member = file_.region->members[place_.row][i];
    const uint32_t tenant = member.tenant.load(std::memory_order_relaxed) - 1;
    if (tenant >= kMaxCoreTenants) continue;
    AddMember(member, tenants[tenant].backlog_ns.load(std::memory_order_relaxed), now_ns,
              &views[tenant]);
  }
  if (turn.tenant < kMaxCoreTenants) {
    views[turn.tenant].lead_ns += static_cast<int64_t>(CostOfTurn(turn, views, now_ns));
  }
}

// After a pause the container begins a new backlog, and keeps little of what it missed. A lead that
// no turn explains ends here, too: who never pauses would keep the others away for ever.
void CoreSeat::Arrive(uint64_t now_ns) {
  CoreTenant& own = tenant();
  const uint64_t active_ns = own.active_ns.load(std::memory_order_relaxed);
  const uint64_t served_ns = own.served_ns.load(std::memory_order_relaxed);
  const uint64_t virtual_ns = row().virtual_ns.load(std::memory_order_relaxed);
  const bool is_back = !IsRecent(active_ns, now_ns, kBacklogPauseNs);
  if (is_back) own.backlog_ns.store(now_ns, std::memory_order_relaxed);
  if (is_back || llabs(LeadOf(served_ns, virtual_ns)) == kMostLeadNs) {
    const CoreShares shares = UnpackShares(own.shares.load(std::memory_order_relaxed));
    own.served_ns.store(CatchUp(served_ns, virtual_ns, shares.hard), std::memory_order_relaxed);
  }
  own.active_ns.store(now_ns, std::memory_order_relaxed);
}

bool CoreSeat::WantTurn(uint64_t now_ns) {
  if (!shares_device_) return true;
  SignAt(now_ns);
  Arrive(now_ns);
  member().wanted_ns.store(now_ns, std::memory_order_relaxed);
  if (!HasTurn()) MoveTurn(now_ns);
  return HasTurn();
}

bool CoreSeat::HasTurnAmongOthers() const {
  const Turn turn = UnpackTurn(row().turn.load(std::memory_order_seq_cst));
  return turn.tenant == place_.tenant && !turn.closing;
}

// The lower half, which little-endian machines put first.
const std::atomic<uint32_t>* CoreSeat::TurnFutex() const {
  return reinterpret_cast<const std::atomic<uint32_t>*>(&row().turn);
}

void CoreSeat::AwaitTurn(uint64_t most_ns) const {
  if (!shares_device_) return;
  const uint64_t word = row().turn.load(std::memory_order_seq_cst);
  const Turn turn = UnpackTurn(word);
  if (turn.tenant == place_.tenant && !turn.closing) return;
  FutexWaitShared(TurnFutex(), static_cast<uint32_t>(word), most_ns, WakeBits(place_.tenant));
}

void CoreSeat::Beat(uint64_t now_ns, bool outstanding, uint64_t ends_ns) {
  if (!shares_device_) return;
  CoreMember& own = member();
  const bool was_outstanding = IsOutstanding(own.beat.load(std::memory_order_relaxed));
  if (outstanding) {
    Arrive(now_ns);
    // Whoever launches has what it asked for.
    if (!was_outstanding) own.wanted_ns.store(0, std::memory_order_relaxed);
  } else if (was_outstanding) {
    own.idle_ns.store(now_ns, std::memory_order_relaxed);
  }
  own.ends_ns.store(ends_ns, std::memory_order_relaxed);
  // Pairs with View: either the mover sees that we launch, or we see that the turn is closing.
  own.beat.store(PackBeat(now_ns, outstanding), std::memory_order_seq_cst);
}

void CoreSeat::NoteLaunches(uint64_t launch_ns) {
  if (!shares_device_) return;
  const uint64_t quantum_ns = QuantumFor(launch_ns);
  Word& told = tenant().quantum_ns;
  if (told.load(std::memory_order_relaxed) == quantum_ns) return;
  told.store(quantum_ns, std::memory_order_relaxed);
}

void CoreSeat::HandOver(Turn from, uint32_t to, const TenantView* views, uint64_t now_ns) {
  CoreTenant* tenants = file_.region->tenants[place_.row];
  if (from.tenant < kMaxCoreTenants) {
    tenants[from.tenant].served_ns.fetch_add(CostOfTurn(from, views, now_ns),
                                             std::memory_order_relaxed);
  }
  if (to != kNoTenant) {
    RaiseVirtualTime(&row().virtual_ns, tenants[to].served_ns.load(std::memory_order_relaxed));
    FutexWakeShared(TurnFutex(), WakeBits(to));
  }
}

bool CoreSeat::MoveTurn(uint64_t now_ns) {
  if (!shares_device_) return false;
  TenantView views[kMaxCoreTenants];
  uint64_t word = row().turn.load(std::memory_order_seq_cst);
  Turn turn = UnpackTurn(word);
  View(turn, now_ns, views);
  bool changed = false;
  if (turn.tenant < kMaxCoreTenants && !turn.closing) {
    TenantView holder = views[turn.tenant];
    views[turn.tenant].wants_ns = 0;
    const uint32_t next = NextTenant(views, kMaxCoreTenants, now_ns);
    const TenantView* other = next != kNoTenant ? &views[next] : nullptr;
    if (!IsTurnOver(holder, other, TurnBegan(turn, now_ns), now_ns)) return false;
    turn.closing = true;
    if (!row().turn.compare_exchange_strong(word, PackTurn(turn), std::memory_order_seq_cst)) {
      return false;
    }
    word = PackTurn(turn);
    changed = true;
    View(turn, now_ns, views);  // again: what was launched until now is outstanding
  }
  if (turn.tenant < kMaxCoreTenants && !IsDrained(views[turn.tenant], now_ns)) return changed;
  const uint32_t next = NextTenant(views, kMaxCoreTenants, now_ns);
  if (next == kNoTenant && turn.tenant == kNoTenant) return changed;
  const uint64_t handed = PackTurn(NextTurn(turn, next, now_ns));
  if (!row().turn.compare_exchange_strong(word, handed, std::memory_order_seq_cst)) return changed;
  HandOver(turn, next, views, now_ns);
  return true;
}

bool CoreSeat::OthersWant(uint64_t now_ns, uint64_t window_ns) const {
  if (!shares_device_) {
    return IsRecent(row().foreign_ns.load(std::memory_order_relaxed), now_ns, kNeighbourLastsNs);
  }
  const CoreTenant* tenants = file_.region->tenants[place_.row];
  for (uint32_t other = 0; other < kMaxCoreTenants; ++other) {
    if (other != place_.tenant &&
        IsRecent(tenants[other].active_ns.load(std::memory_order_relaxed), now_ns, window_ns)) {
      return true;
    }
  }
  return false;
}

uint64_t CoreSeat::TurnLeftNs(uint64_t now_ns) const {
  if (!HasTurn() || !shares_device_ || !OthersWant(now_ns, kMemberSilentNs)) return UINT64_MAX;
  const Turn turn = UnpackTurn(row().turn.load(std::memory_order_relaxed));
  const uint64_t end_ns = TurnBegan(turn, now_ns) + QuantumOf(tenant());
  // Beyond its quantum it ends when somebody else was served less, which may be soon.
  return end_ns > now_ns ? end_ns - now_ns : kShortTurnNs;
}

bool CoreSeat::IsDraining() const {
  if (!shares_device_) return false;
  const Turn turn = UnpackTurn(row().turn.load(std::memory_order_relaxed));
  return turn.tenant == place_.tenant && turn.closing;
}

void CoreSeat::Leave(uint64_t now_ns) {
  if (!shares_device_) return;
  member().wanted_ns.store(0, std::memory_order_relaxed);
  member().idle_ns.store(1, std::memory_order_relaxed);
  member().beat.store(PackBeat(now_ns, false), std::memory_order_seq_cst);
  MoveTurn(now_ns);
}

bool CoreSeat::LooksForNeighbours() const {
  if (shares_device_) return false;
  const CoreShares shares = UnpackShares(tenant().shares.load(std::memory_order_relaxed));
  return shares.soft > shares.hard && shares.hard < kMostUnseenShare;
}

void CoreSeat::NoteForeign(uint64_t now_ns) {
  row().foreign_ns.store(now_ns, std::memory_order_relaxed);
}

}  // namespace gpufence
