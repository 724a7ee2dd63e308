#include "policy/share.h"

#include <algorithm>

#include "base/tuning.h"

namespace gpufence {
namespace {

constexpr uint64_t Add(uint64_t one, uint64_t other) {
  return one > UINT64_MAX - other ? UINT64_MAX : one + other;
}

}  // namespace

uint64_t CostOf(uint64_t busy_ns, uint32_t share) {
  if (share == 0) share = 1;
  if (share >= kWholeShare) return busy_ns;
  const uint64_t whole_parts = busy_ns / share;
  // The rest is below the share: no overflow.
  const uint64_t rest = (busy_ns % share * kWholeShare + share - 1) / share;
  if (whole_parts > (UINT64_MAX - rest) / kWholeShare) return UINT64_MAX;
  return whole_parts * kWholeShare + rest;
}

uint64_t DueAfter(uint64_t due_ns, uint64_t now_ns, uint64_t busy_ns, uint32_t share,
                  uint64_t credit_ns) {
  const uint64_t latest_ns = Add(now_ns, kMostDebtNs);
  const uint64_t earliest_ns = now_ns > credit_ns ? now_ns - credit_ns : 0;
  if (due_ns > latest_ns) due_ns = now_ns;
  if (due_ns < earliest_ns) due_ns = earliest_ns;
  due_ns = Add(due_ns, CostOf(busy_ns, share));
  return due_ns > latest_ns ? latest_ns : due_ns;
}

uint64_t CreditOf(uint32_t share, uint64_t burst_ns, const Tuning& tuning) {
  if (burst_ns != 0) return CostOf(burst_ns, share);
  const uint64_t credit_ns = CostOf(tuning.credit_work_ns, share);
  return credit_ns < tuning.most_credit_ns ? credit_ns : tuning.most_credit_ns;
}

int64_t AheadNs(uint64_t due_ns, uint64_t now_ns, uint64_t credit_ns) {
  if (due_ns >= now_ns) return static_cast<int64_t>(HeldForNs(due_ns, now_ns));
  const uint64_t unused_ns = now_ns - due_ns;
  return -static_cast<int64_t>(unused_ns < credit_ns ? unused_ns : credit_ns);
}

uint64_t DueAtShare(uint64_t due_ns, uint64_t now_ns, uint32_t share, uint32_t other_share) {
  const uint64_t debt_ns = HeldForNs(due_ns, now_ns);
  if (debt_ns == 0 || other_share == 0) return due_ns;
  // At most an hour times a hundred thousand: no overflow.
  const uint64_t other_ns = debt_ns * share / other_share;
  return now_ns + (other_ns > kMostDebtNs ? kMostDebtNs : other_ns);
}

// ---- soft shares ----

uint32_t ClaimOf(uint32_t rate, uint32_t hard, const Tuning& tuning) {
  const uint64_t claim = rate + uint64_t{rate} / 8 + tuning.claim_growth;
  return static_cast<uint32_t>(std::min<uint64_t>(claim, hard));
}

// Whoever has less room than its part leaves the rest to the others.
uint32_t SoftShareOf(SoftTenant own, uint32_t free, const SoftTenant* others, size_t count) {
  bool is_full[kMostSoftTenants] = {};
  count = std::min(count, kMostSoftTenants);
  for (;;) {
    uint64_t weights = own.weight;
    for (size_t i = 0; i < count; ++i) weights += is_full[i] ? 0 : others[i].weight;
    bool fills = false;
    uint32_t left = free;
    for (size_t i = 0; i < count; ++i) {
      const uint32_t room = others[i].soft - std::min(others[i].hard, others[i].soft);
      if (is_full[i] || uint64_t{free} * others[i].weight < uint64_t{room} * weights) continue;
      is_full[i] = fills = true;
      left -= std::min(left, room);
    }
    if (!fills) {
      const auto part = static_cast<uint32_t>(uint64_t{free} * own.weight / weights);
      return std::min(own.soft, own.hard + part);
    }
    free = left;
  }
}

// ---- neighbours that share no folder ----

bool NeighbourSight::Look(uint64_t now_ns, uint64_t charged_ns, uint32_t percent,
                          const Tuning& tuning) {
  const uint64_t since_ns = now_ns - looked_ns_;
  const uint64_t own_ns = charged_ns - charged_ns_;
  looked_ns_ = now_ns;
  charged_ns_ = charged_ns;
  // After a pause, and at first, nothing is known of what lies behind.
  if (since_ns >= 2 * tuning.neighbour_look_ns) count_ = 0;
  if (count_++ == 0) return true;
  seen_[count_ % kLooks] = {since_ns, own_ns, since_ns / 100 * (percent < 100 ? percent : 100)};
  const uint32_t looks = count_ - 1 < kLooks ? count_ - 1 : kLooks;
  Seen sum = {};
  for (uint32_t i = 0; i < looks; ++i) {
    const Seen& seen = seen_[(count_ - i) % kLooks];
    sum.ns += seen.ns;
    sum.own_ns += seen.own_ns;
    sum.busy_ns += seen.busy_ns;
  }
  return sum.busy_ns > sum.own_ns + sum.ns / 1000 * tuning.neighbour_margin;
}

}  // namespace gpufence
