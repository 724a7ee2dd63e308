// A seat's view of the others of its container, on their GPUs.
#include "policy/core_seat.h"
#include "policy/gang.h"
#include "policy/moment.h"

namespace gpufence {

// Members of the own row are on the same GPU: they owe the same, and no collective has two of them.
GangView CoreSeat::SeeGang(uint32_t count, uint64_t now_ns) const {
  const CoreRegion* region = file_.region;
  const uint64_t key = signature_.tenant_key;
  const uint32_t high = HighMember(region);
  GangView view = {};
  view.count = count;
  for (uint32_t row = 0; row < kMaxCoreRows; ++row) {
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
  return IsRecent(row().met_ns.load(std::memory_order_relaxed), now_ns, kGangLastsNs);
}

void CoreSeat::TellGangHeld(bool is_behind, bool is_quiet, uint64_t now_ns) {
  member().gang_held.store(PackHeld(is_behind, is_quiet, now_ns), std::memory_order_relaxed);
}

void CoreSeat::TellGangGoesOn() { member().gang_held.store(0, std::memory_order_relaxed); }

}  // namespace gpufence
