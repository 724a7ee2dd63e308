#include "policy/core_seat.h"

#include "policy/core_busy.h"
#include "policy/share.h"

namespace gpufence {
namespace {

constexpr uint64_t kSettleSharesNs = 1'000'000'000;

// How long a container that wanted the device keeps the others at their hard shares.
constexpr uint64_t kOthersWindowNs = 100'000'000;

// True when `moment_ns` lies in the last `window_ns`, or so close ahead that another thread's clock
// was read later than ours.
bool IsRecent(uint64_t moment_ns, uint64_t now_ns, uint64_t window_ns) {
  if (moment_ns == 0) return false;
  return moment_ns > now_ns ? moment_ns - now_ns < kMemberSilentNs : now_ns - moment_ns < window_ns;
}

uint32_t Sane(uint32_t share) {
  if (share == 0) return 1;
  return share > kWholeShare ? kWholeShare : share;
}

}  // namespace

bool CoreSeat::Join(const char* node_folder, const RegionPlaces& own, const uint8_t uuid[16],
                    uint32_t share, uint32_t soft_share, uint64_t now_ns, char* why,
                    size_t why_bytes) {
  shares_device_ = node_folder[0] != '\0';
  share = Sane(share);
  const CoreShares shares = {share, soft_share > share ? Sane(soft_share) : share};
  return OpenCoreFile(node_folder, own, &file_, why, why_bytes) &&
         JoinCoreRow(file_, own.container, uuid, shares, now_ns, &place_, why, why_bytes);
}

// ---- GPU time ----

uint64_t CoreSeat::Charge(uint64_t begin_ns, uint64_t end_ns, uint64_t now_ns) {
  SettleSharesAt(now_ns);
  const uint64_t busy_ns = AddBusy(&tenant(), begin_ns, end_ns, now_ns);
  if (busy_ns == 0) return 0;
  const uint32_t share = ShareNow(now_ns);
  const uint64_t credit_ns = CreditNs(now_ns);
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

uint32_t CoreSeat::ShareNow(uint64_t now_ns) const {
  const CoreShares shares = UnpackShares(tenant().shares.load(std::memory_order_relaxed));
  const uint32_t hard = Sane(shares.hard);
  const uint32_t soft = Sane(shares.soft);
  return soft <= hard || OthersWant(now_ns, kOthersWindowNs) ? hard : soft;
}

uint64_t CoreSeat::CreditNs(uint64_t) const { return kShareBurstNs; }

// Whoever is first in a second looks whether the process with the lowest share still lives.
void CoreSeat::SettleSharesAt(uint64_t now_ns) {
  Word& checked = tenant().shares_checked_ns;
  uint64_t last_ns = checked.load(std::memory_order_relaxed);
  if (IsRecent(last_ns, now_ns, kSettleSharesNs)) return;
  if (!checked.compare_exchange_strong(last_ns, now_ns, std::memory_order_relaxed)) return;
  SettleShares(file_, place_);
}

// ---- turns ----

bool CoreSeat::WantTurn(uint64_t) { return true; }

bool CoreSeat::HasTurn() const { return true; }

void CoreSeat::Beat(uint64_t, bool) {}

bool CoreSeat::MoveTurn(uint64_t) { return false; }

bool CoreSeat::OthersWant(uint64_t now_ns, uint64_t window_ns) const {
  if (IsRecent(row().foreign_ns.load(std::memory_order_relaxed), now_ns, window_ns)) return true;
  if (!shares_device_) return false;
  const CoreTenant* tenants = file_.region->tenants[place_.row];
  for (uint32_t other = 0; other < kMaxCoreTenants; ++other) {
    if (other != place_.tenant &&
        IsRecent(tenants[other].active_ns.load(std::memory_order_relaxed), now_ns, window_ns)) {
      return true;
    }
  }
  return false;
}

void CoreSeat::NoteForeign(uint64_t now_ns) {
  row().foreign_ns.store(now_ns, std::memory_order_relaxed);
}

const uint32_t* CoreSeat::TurnFutex() const {
  return reinterpret_cast<const uint32_t*>(&row().turn);
}

}  // namespace gpufence
