#include "policy/windows.h"

#include <algorithm>

#include "base/tuning.h"

namespace gpufence {
namespace {

bool IsBefore(const WindowTenant& one, const WindowTenant& other) { return one.job < other.job; }

// Of a period, for who has `share` of `shares`; `before` are those whose windows come first.
struct Part {
  uint64_t begin_ns;
  uint64_t end_ns;
};
Part PartOf(uint64_t before, uint32_t share, uint64_t shares, uint64_t period_ns) {
  return {period_ns * before / shares, period_ns * (before + share) / shares};
}

bool Has(Part part, uint64_t at_ns) { return part.begin_ns <= at_ns && at_ns < part.end_ns; }

// Whether it has left the GPU alone since its window began or longer ago, for long enough.
bool LeavesAlone(const WindowTenant& tenant, Part part, uint64_t at_ns, uint64_t now_ns,
                 const Tuning& tuning) {
  if (tenant.idle_since_ns == 0) return false;
  const uint64_t began_ns = now_ns - (at_ns - part.begin_ns);
  return now_ns >= std::max(tenant.idle_since_ns, began_ns) + tuning.pause_ns;
}

}  // namespace

Window WindowOf(const WindowTenant& own, const WindowTenant* others, size_t count, uint64_t now_ns,
                const Tuning& tuning) {
  if (count == 0) return {0, UINT64_MAX};
  const uint64_t period_ns = (count + 1) * 2 * tuning.turn_quantum_ns;
  const uint64_t at_ns = now_ns % period_ns;
  uint64_t shares = own.share;
  for (size_t i = 0; i < count; ++i) shares += others[i].share;
  const auto part_of = [&](const WindowTenant& tenant) {
    uint64_t before = IsBefore(own, tenant) ? own.share : 0;
    for (size_t i = 0; i < count; ++i) before += IsBefore(others[i], tenant) ? others[i].share : 0;
    return PartOf(before, tenant.share, shares, period_ns);
  };

  const Part part = part_of(own);
  if (Has(part, at_ns)) return {0, part.end_ns - at_ns};
  for (size_t i = 0; i < count; ++i) {
    const Part theirs = part_of(others[i]);
    if (!Has(theirs, at_ns)) continue;
    if (LeavesAlone(others[i], theirs, at_ns, now_ns, tuning)) return {0, theirs.end_ns - at_ns};
  }
  return {(part.begin_ns + period_ns - at_ns) % period_ns, UINT64_MAX};
}

}  // namespace gpufence
