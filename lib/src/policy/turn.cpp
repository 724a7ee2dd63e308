#include "policy/turn.h"

#include <algorithm>

#include "base/pauses.h"
#include "base/tuning.h"
#include "policy/share.h"
#include "shared_layouts.h"

namespace gpufence {
namespace {

constexpr uint64_t kNsInUs = 1000;

// A turn that began further ahead is damage; less is a clock read a little later than ours.
constexpr uint64_t kAheadUs = 1'000'000;

bool IsAhead(Turn turn, uint64_t now_ns) { return turn.began_us > now_ns / kNsInUs + kAheadUs; }

}  // namespace

uint64_t PackTurn(Turn turn) {
  const uint64_t tenant = turn.tenant == kNoTenant ? 0 : (turn.tenant + 1) & kTurnTenantMask;
  return turn.began_us << kTurnBeganShift | (turn.closing ? kTurnClosing : 0) | tenant;
}

Turn UnpackTurn(uint64_t word) {
  const auto tenant = static_cast<uint32_t>(word & kTurnTenantMask);
  return {tenant == 0 ? kNoTenant : tenant - 1, (word & kTurnClosing) != 0,
          word >> kTurnBeganShift};
}

Turn NextTurn(Turn last, uint32_t tenant, uint64_t now_ns) {
  const uint64_t now_us = now_ns / kNsInUs;
  const bool is_later = now_us > last.began_us || IsAhead(last, now_ns);
  return {tenant, false, is_later ? now_us : last.began_us + 1};
}

uint64_t TurnBegan(Turn turn, uint64_t now_ns) {
  return IsAhead(turn, now_ns) ? 0 : turn.began_us * kNsInUs;
}

namespace {

uint64_t QuantumBefore(const TenantView& next, uint64_t quantum_ns, uint64_t now_ns,
                       const Tuning& tuning) {
  const bool comes_for_a_while = IsRecent(next.wants_ns, now_ns, 3 * tuning.lately_ns);
  return next.saved_ns > static_cast<int64_t>(tuning.short_quantum_ns) && comes_for_a_while
             ? std::min(quantum_ns, tuning.short_quantum_ns)
             : quantum_ns;
}

// A turn makes that much of a difference between two who both always want one.
bool IsFarBehind(const TenantView& next, const TenantView& holder, uint64_t now_ns,
                 const Tuning& tuning) {
  const uint32_t share = std::min(holder.share, next.share);
  const uint64_t quantum_ns =
      QuantumBefore(next, std::max(holder.quantum_ns, next.quantum_ns), now_ns, tuning);
  return next.lead_ns + static_cast<int64_t>(CostOf(quantum_ns, share)) <= holder.lead_ns;
}

}  // namespace

uint64_t QuantumFor(uint64_t launch_ns, const Tuning& tuning) {
  return launch_ns != 0 && launch_ns < tuning.short_launch_ns ? tuning.long_quantum_ns
                                                              : tuning.turn_quantum_ns;
}

bool IsEligible(const TenantView& tenant, uint64_t now_ns) {
  return tenant.wants_ns != 0 && HeldForNs(tenant.due_ns, now_ns) == 0;
}

bool IsTurnOver(const TenantView& holder, const TenantView* next, uint64_t began_ns,
                uint64_t now_ns, const Tuning& tuning) {
  if (next == nullptr) return false;
  if (HeldForNs(holder.due_ns, now_ns) > 0 || next->rank > holder.rank) return true;
  if (next->rank < holder.rank) next = nullptr;
  if (next != nullptr &&
      now_ns >= began_ns + QuantumBefore(*next, holder.quantum_ns, now_ns, tuning) &&
      next->lead_ns <= holder.lead_ns) {
    return true;
  }
  if (next != nullptr && now_ns >= began_ns + tuning.short_turn_ns &&
      IsFarBehind(*next, holder, now_ns, tuning)) {
    return true;
  }
  // A new holder has as long as one that was busy.
  const uint64_t idle_ns = holder.idle_since_ns > began_ns ? holder.idle_since_ns : began_ns;
  return holder.idle_since_ns != 0 && now_ns >= idle_ns + tuning.turn_idle_ns;
}

bool IsAbandoned(const TenantView& holder, const TenantView& next, uint64_t began_ns,
                 uint64_t now_ns, const Tuning& tuning) {
  const uint64_t idle_ns = holder.idle_since_ns > began_ns ? holder.idle_since_ns : began_ns;
  return holder.idle_since_ns != 0 && now_ns >= idle_ns + 2 * tuning.turn_idle_ns &&
         IsTurnOver(holder, &next, began_ns, now_ns, tuning);
}

bool IsStillOutstanding(uint64_t beat_ns, uint64_t ends_ns, uint64_t now_ns, const Tuning& tuning) {
  if (IsRecent(beat_ns, now_ns, tuning.silent_ns)) return true;
  return ends_ns > now_ns && ends_ns - beat_ns <= tuning.most_wait_ns;
}

uint64_t WaitedAfter(uint64_t waited_ns, uint64_t passed_ns, TurnWait wait, uint32_t share,
                     uint64_t shares, const Tuning& tuning) {
  constexpr uint64_t kMostPassedNs = 20'000'000;  // beyond it this process did not run itself
  // However much the others say that they may have.
  constexpr uint64_t kMostShares = 4 * uint64_t{kWholeShare};
  passed_ns = std::min(passed_ns, kMostPassedNs);
  if (waited_ns > tuning.most_turn_wait_ns) waited_ns = 0;  // a word that went wrong
  if (wait == TurnWait::kContent) return 0;
  if (wait == TurnWait::kWaits) return waited_ns + passed_ns;
  shares = std::clamp(shares, uint64_t{kWholeShare}, kMostShares);
  const uint64_t back_ns = passed_ns * 2 * shares / std::max(share, 1u);
  return waited_ns > back_ns ? waited_ns - back_ns : 0;
}

bool IsDrained(const TenantView& holder, uint64_t now_ns) {
  return holder.idle_since_ns != 0 || holder.ends_ns <= now_ns;
}

uint32_t NextTenant(const TenantView* tenants, size_t count, uint64_t now_ns) {
  uint32_t next = kNoTenant;
  for (uint32_t i = 0; i < count; ++i) {
    if (!IsEligible(tenants[i], now_ns)) continue;
    if (next == kNoTenant || tenants[i].rank > tenants[next].rank ||
        (tenants[i].rank == tenants[next].rank && tenants[i].lead_ns < tenants[next].lead_ns)) {
      next = i;
    }
  }
  return next;
}

uint64_t WaitsSince(const TenantView& tenant, uint64_t now_ns) {
  if (!IsEligible(tenant, now_ns)) return UINT64_MAX;
  // A due moment far ahead is damage, and no reason to wait.
  return tenant.due_ns > tenant.wants_ns && tenant.due_ns <= now_ns ? tenant.due_ns
                                                                    : tenant.wants_ns;
}

uint64_t ServedInTurn(uint64_t began_ns, uint64_t others_wait_ns, uint64_t now_ns, uint32_t share) {
  const uint64_t from_ns = others_wait_ns > began_ns ? others_wait_ns : began_ns;
  return now_ns > from_ns ? CostOf(now_ns - from_ns + 2 * kSwitchNs, share) : 0;
}

uint32_t ShareWithPauses(uint32_t share, uint64_t used_ns, uint64_t turn_ns, uint32_t takers) {
  constexpr uint64_t kLongestNs = uint64_t{1} << 40;  // more is a word that went wrong
  turn_ns = std::clamp(turn_ns, uint64_t{1}, kLongestNs);
  used_ns = std::clamp(used_ns, 2 * turn_ns / 3 + 1, turn_ns);
  const uint64_t needed = share * turn_ns / used_ns;
  const uint64_t most = kWholeShare / std::max(takers, 1u);
  return std::max(share, static_cast<uint32_t>(std::min(needed, most)));
}

int64_t LeadOf(uint64_t served_ns, uint64_t virtual_ns) {
  const auto lead_ns = static_cast<int64_t>(served_ns - virtual_ns);
  if (lead_ns > kMostLeadNs) return kMostLeadNs;
  return lead_ns < -kMostLeadNs ? -kMostLeadNs : lead_ns;
}

uint64_t CatchUp(uint64_t served_ns, uint64_t virtual_ns, uint32_t share, const Tuning& tuning) {
  const uint64_t missed_ns = CostOf(tuning.long_quantum_ns, share);
  const uint64_t earliest_ns = virtual_ns - missed_ns;
  if (static_cast<int64_t>(served_ns - earliest_ns) < 0) return earliest_ns;
  // A lead that no turn explains: a word that went wrong.
  const auto lead_ns = static_cast<int64_t>(served_ns - virtual_ns);
  return lead_ns >= kMostLeadNs ? virtual_ns : served_ns;
}

// ---- who takes turns ----

bool IsDeep(const Depth& depth, uint64_t now_ns, const Tuning& tuning) {
  const bool is_long = depth.run_ns >= (depth.was_deep ? 3 * kSliceNs / 4 : 6 * kSliceNs / 5) &&
                       depth.density >= tuning.dense_enough;
  return is_long && depth.is_active && !IsRecent(depth.rested_ns, now_ns, tuning.lately_ns);
}

uint64_t LeastRestNs(uint64_t worked_ns, const Tuning& tuning) {
  return std::clamp(worked_ns / 20, tuning.turn_idle_ns, tuning.pause_ns);
}

uint64_t MeanRunNs(uint64_t mean_ns, uint64_t run_ns, uint64_t busy_ns, const Tuning& tuning) {
  mean_ns = std::min(mean_ns, tuning.mean_over_ns);  // a word that went wrong
  const uint64_t part_ns = std::min(busy_ns, tuning.mean_over_ns);
  const uint64_t towards_ns = std::min(run_ns, tuning.mean_over_ns);
  return (mean_ns * (tuning.mean_over_ns - part_ns) + towards_ns * part_ns) / tuning.mean_over_ns;
}

uint64_t MeanRunBehindPieceNs(uint64_t mean_ns, const Tuning& tuning) {
  return std::min(mean_ns, tuning.mean_over_ns) * 3 / 4;
}

namespace {

constexpr int kDensityBits = 32;
constexpr uint64_t kLowDensity = (uint64_t{1} << kDensityBits) - 1;

}  // namespace

uint64_t PackDensity(Density density) {
  return (std::min(density.charged, kWholeDensity) + 1) << kDensityBits |
         std::min(density.kernels, kWholeDensity);
}

Density UnpackDensity(uint64_t word) {
  const uint64_t kernels = std::min(word & kLowDensity, kWholeDensity);
  const uint64_t charged = word >> kDensityBits;  // and one
  return {kernels, charged == 0 ? kernels : std::min(charged - 1, kWholeDensity)};
}

uint64_t MeanDensity(uint64_t mean, uint64_t busy_ns, uint64_t ran_ns, const Tuning& tuning) {
  mean = std::min(mean, kWholeDensity);  // a word that went wrong
  const uint64_t part_ns = std::min(ran_ns, tuning.mean_over_ns);
  if (part_ns == 0) return mean;
  const uint64_t now = std::min(busy_ns * kWholeDensity / ran_ns, kWholeDensity);
  // Rounded up: it would sink with every step.
  return (mean * (tuning.mean_over_ns - part_ns) + now * part_ns + tuning.mean_over_ns - 1) /
         tuning.mean_over_ns;
}

}  // namespace gpufence
