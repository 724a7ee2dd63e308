#include "policy/share.h"

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

uint64_t CreditOf(uint32_t share, uint64_t burst_ns) {
  if (burst_ns != 0) return CostOf(burst_ns, share);
  const uint64_t credit_ns = CostOf(kCreditWorkNs, share);
  return credit_ns < kMostCreditNs ? credit_ns : kMostCreditNs;
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

}  // namespace gpufence
