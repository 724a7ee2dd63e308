#include "policy/account.h"

#include <string.h>

#include <algorithm>

#include "base/futex.h"

namespace gpufence {
namespace {

constexpr uint64_t kNothingSet = 0;
constexpr uint64_t kReclaimPauseNs = 100'000'000;

}  // namespace

void Account::Open(const RegionFile& file, uint32_t row, uint32_t slot, uint16_t device,
                   uint64_t own_limit_bytes, MakeRoom make_room, uint64_t own_ratio) {
  file_ = file;
  ledger_ = Ledger(file.region, row, slot);
  resident_ = Ledger(file.region, row, slot, Extent::kResident);
  sharing_ = Sharing(file.region, row, slot);
  slot_ = slot;
  device_ = device;
  make_room_ = make_room;
  PublishLimit(file.region, row, slot, own_limit_bytes);
  PublishRatio(file.region, row, slot, own_ratio);
  // Siblings that oversell count everybody's device memory.
  is_oversold_ = HighestRatio(file.region, row) != 0;
  limit_bytes_.store(own_limit_bytes, std::memory_order_relaxed);
  share_bytes_.store(gpufence::ShareBytes(own_limit_bytes, own_ratio), std::memory_order_relaxed);
  limit_epoch_.store(0, std::memory_order_relaxed);
  // The slot may have been a dead process's.
  ledger_.Rebuild();
  resident_.Rebuild();
}

void Account::ReadNewLimits() {
  const std::atomic<uint32_t>& epoch = file_.region->header.limit_epoch;
  const Uncancelled during;
  // Looked for whenever somebody publishes, since whoever died said nothing.
  ReclaimDeadStricter(file_, slot_, row());
  // One thread at a time: a slow one must not put an old limit under a new epoch.
  SpinGuard guard(&limit_lock_);
  const uint32_t now = epoch.load(std::memory_order_acquire);
  const uint64_t limit_bytes = LimitNow();
  const uint64_t ratio = HighestRatio(file_.region, row());
  limit_bytes_.store(limit_bytes, std::memory_order_relaxed);
  share_bytes_.store(gpufence::ShareBytes(limit_bytes, ratio), std::memory_order_relaxed);
  limit_epoch_.store(now, std::memory_order_release);
}

void Account::Obey(LimitsFile* set_limits, const uint8_t uuid[16], uint64_t total_bytes,
                   uint64_t ceiling_bytes) {
  set_limits_ = set_limits;
  memcpy(uuid_, uuid, sizeof uuid_);
  total_bytes_ = total_bytes;
  ceiling_bytes_ = ceiling_bytes;
}

uint64_t Account::LimitNow() {
  if (set_limits_ != nullptr) {
    set_limits_->ReadNewer(file_.region);
    const uint64_t set_bytes =
        set_limits_->For(uuid_, total_bytes_).memory_bytes.value_or(kNothingSet);
    const bool whole = set_bytes > total_bytes_ && set_bytes != kNoLimit && !is_oversold_;
    const uint64_t wanted_bytes = whole ? total_bytes_ : set_bytes;
    if (set_bytes != kNothingSet) return std::min(wanted_bytes, ceiling_bytes_);
  }
  return LowestLimit(file_.region, row());
}

uint64_t Account::ShareBytes() {
  ReadLimits();
  return share_bytes_.load(std::memory_order_relaxed);
}

bool Account::IsNear(const Ledger& ledger, uint64_t bound_bytes, uint64_t bytes) const {
  const uint64_t used_bytes = ledger.UsedBytes() + sharing_.OrphanBytes();
  return used_bytes >= bound_bytes || bytes >= bound_bytes - used_bytes ||
         bound_bytes - used_bytes - bytes < kStaleMarginBytes;
}

bool Account::IsNearLimit(uint64_t bytes) {
  return IsNear(ledger_, LimitBytes(), bytes) ||
         (is_oversold_ && IsNear(resident_, ShareBytes(), bytes));
}

bool Account::IsWithinLimit() {
  return UsedBytes() <= LimitBytes() &&
         (!is_oversold_ || resident_.UsedBytes() + sharing_.OrphanBytes() <= ShareBytes());
}

// An owner that lets go counts its bytes as orphans before its charge goes back: whoever was
// granted because of the latter sees the former.
bool Account::AskOne(const Ledger& ledger, Extent extent, uint64_t bytes) {
  for (;;) {
    const uint64_t orphans = sharing_.OrphanBytes();
    const uint64_t bound_bytes = BoundOf(extent);
    if (orphans > bound_bytes) [[unlikely]]
      return false;
    if (ledger.Reserve(bytes, bound_bytes - orphans) != Verdict::kGranted) [[unlikely]]
      return false;
    if (sharing_.OrphanBytes() <= orphans) [[likely]]
      return true;
    ledger.Release(bytes);
  }
}

// The share first: what does not fit there must not take room from others' unified memory, not
// even for a moment.
bool Account::AskBoth(uint64_t bytes, Tier tier) {
  const bool is_resident = tier == Tier::kDevice;
  if (is_resident && !AskOne(resident_, Extent::kResident, bytes)) return false;
  if (AskOne(ledger_, Extent::kAll, bytes)) return true;
  if (is_resident) resident_.Release(bytes);
  return false;
}

void Account::ReadStaleNear(uint64_t bytes) {
  if (read_stale_ == nullptr || !IsNearLimit(bytes)) return;
  const Uncancelled during;
  read_stale_(device_);
}

// The dead first: their bytes are free for the asking. Then what costs a driver call.
bool Account::MakeRoomAndReserve(uint64_t bytes, Tier tier) {
  const Uncancelled during;
  if (Reclaim(Effort::kThorough) > 0 && Ask(bytes, tier)) return true;
  if (make_room_ != nullptr && make_room_(device_) && Ask(bytes, tier)) return true;
  refused_bytes_.store(bytes, std::memory_order_relaxed);
  return false;
}

// Counted after the look: of two that are first at once, both are, rather than none.
bool Account::CountRefusal() {
  const Region* region = file_.region;
  const uint32_t end = region->header.high_slot.load(std::memory_order_acquire);
  uint64_t before = 0;
  for (uint32_t slot = 0; slot < end && slot < kMaxProcesses; ++slot) {
    before |= region->activity[row()][slot].refusals.load(std::memory_order_relaxed);
  }
  activity()->refusals.fetch_add(1, std::memory_order_relaxed);
  return before == 0;
}

void Account::Book(uint64_t bytes, Tier tier) {
  if (is_oversold_ && tier == Tier::kDevice) resident_.Book(bytes);
  ledger_.Book(bytes);
}

void Account::Release(uint64_t bytes, Tier tier) {
  if (is_oversold_ && tier == Tier::kDevice) resident_.Release(bytes);
  ledger_.Release(bytes);
}

bool Account::ReclaimAt(uint64_t now_ns) {
  uint64_t last_ns = reclaimed_ns_.load(std::memory_order_relaxed);
  if (last_ns != 0 && now_ns < last_ns + kReclaimPauseNs) return false;
  if (!reclaimed_ns_.compare_exchange_strong(last_ns, now_ns, std::memory_order_relaxed)) {
    return false;
  }
  Reclaim(Effort::kQuick);
  return true;
}

void Account::RefreshAt(uint64_t now_ns) {
  if (!ReclaimAt(now_ns) || read_stale_ == nullptr) return;
  if (!stale() && !only_raised_.load(std::memory_order_relaxed)) return;
  const Uncancelled during;
  read_stale_(device_);
}

uint32_t Account::Reclaim(Effort effort) {
  const Uncancelled during;
  uint32_t reclaimed = ReclaimDead(file_, slot_, effort);
  // Behind the dead, whose exports are to be asked about, too.
  if (sharing_.Sweep(file_)) ++reclaimed;
  ledger_.Rebuild();
  if (is_oversold_) resident_.Rebuild();
  return reclaimed;
}

// Under the lock. Bytes that were reserved for overhead already are part of the ledger.
void Account::ChangeOverhead(uint64_t reserved, uint64_t owned, uint64_t loose) {
  const uint64_t before = owned_overhead_ + loose_overhead_ + reserved;
  const uint64_t after = owned + loose;
  ++overhead_version_;
  owned_overhead_ = owned;
  loose_overhead_ = loose;
  if (after > before) Book(after - before);
  if (after < before) Release(before - after);
  ledger_.ShowOverhead(after);
}

void Account::OwnOverhead(uint64_t reserved, uint64_t actual) {
  SpinGuard guard(&overhead_lock_);
  ChangeOverhead(reserved, owned_overhead_ + actual, loose_overhead_);
}

void Account::LooseOverhead(uint64_t reserved, int64_t actual) {
  SpinGuard guard(&overhead_lock_);
  const uint64_t given_back = actual < 0 ? 0 - static_cast<uint64_t>(actual) : 0;
  const uint64_t grown = actual > 0 ? static_cast<uint64_t>(actual) : 0;
  const uint64_t kept = loose_overhead_ > given_back ? loose_overhead_ - given_back : 0;
  ChangeOverhead(reserved, owned_overhead_, kept + grown);
}

void Account::ReleaseOverhead(uint64_t bytes) {
  SpinGuard guard(&overhead_lock_);
  const uint64_t kept = owned_overhead_ > bytes ? owned_overhead_ - bytes : 0;
  ended_overhead_ += owned_overhead_ - kept;
  ChangeOverhead(0, kept, loose_overhead_);
}

// Memory whose owner let go and that this process alone imports is listed as its own from then on:
// what of it shows in the figure is counted there, and is no orphan any more. In the ledger before
// it is out of the orphans.
void Account::ChangeLoose(uint64_t loose) {
  const uint64_t risen = loose > loose_overhead_ ? loose - loose_overhead_ : 0;
  ChangeOverhead(0, owned_overhead_, loose);
  if (risen != 0 && sharing_.Adopt(risen)) {
    has_adopted_.store(true, std::memory_order_relaxed);
  }
}

bool Account::SetOverhead(uint64_t bytes, const OverheadMoment& before) {
  SpinGuard guard(&overhead_lock_);
  if (before.version != overhead_version_) return false;
  ChangeLoose(bytes > owned_overhead_ ? bytes - owned_overhead_ : 0);
  only_raised_.store(false, std::memory_order_relaxed);
  if (!sharing_.imports()) has_adopted_.store(false, std::memory_order_relaxed);
  return true;
}

bool Account::RaiseOverhead(uint64_t bytes, const OverheadMoment& before) {
  SpinGuard guard(&overhead_lock_);
  const bool is_new = before.version == overhead_version_;
  const uint64_t known = owned_overhead_ + ended_overhead_ - before.ended_bytes;
  const uint64_t loose = bytes > known ? bytes - known : 0;
  if (loose > loose_overhead_) ChangeLoose(loose);
  if (loose < loose_overhead_) only_raised_.store(true, std::memory_order_relaxed);
  return is_new;
}

Account::OverheadMoment Account::overhead_moment() {
  SpinGuard guard(&overhead_lock_);
  return {overhead_version_, ended_overhead_};
}

uint64_t Account::charged_bytes() {
  SpinGuard guard(&overhead_lock_);
  const uint64_t held = is_oversold_ ? resident_.Own() : ledger_.Own();
  const uint64_t overhead = owned_overhead_ + loose_overhead_;
  return held > overhead ? held - overhead : 0;
}

}  // namespace gpufence
