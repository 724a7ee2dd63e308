#include "policy/account.h"

namespace gpufence {

void Account::Open(const RegionFile& file, uint32_t row, uint32_t slot, uint32_t device,
                   uint64_t own_limit_bytes, MakeRoom make_room) {
  file_ = file;
  ledger_ = Ledger(file.region, row, slot);
  slot_ = slot;
  device_ = device;
  make_room_ = make_room;
  PublishLimit(file.region, row, slot, own_limit_bytes);
  limit_bytes_.store(own_limit_bytes, std::memory_order_relaxed);
  limit_epoch_.store(0, std::memory_order_relaxed);
}

uint64_t Account::LimitBytes() {
  // Pairs with the release in PublishLimit: a new epoch comes with the new limits.
  const uint32_t epoch = file_.region->header.limit_epoch.load(std::memory_order_acquire);
  if (epoch != limit_epoch_.load(std::memory_order_relaxed)) {
    limit_bytes_.store(LowestLimit(file_.region, row()), std::memory_order_relaxed);
    limit_epoch_.store(epoch, std::memory_order_relaxed);
  }
  return limit_bytes_.load(std::memory_order_relaxed);
}

uint64_t Account::UsedBytes() const {
  const Totals totals = ledger_.Sum();
  return totals.held > UINT64_MAX - totals.asking ? UINT64_MAX : totals.held + totals.asking;
}

bool Account::Reserve(uint64_t bytes) {
  if (ledger_.Reserve(bytes, LimitBytes()) == Verdict::kGranted) return true;
  // The dead first: their bytes are free for the asking. Then what costs a driver call.
  if (ReclaimDead(file_, slot_, row()) > 0 &&
      ledger_.Reserve(bytes, LimitBytes()) == Verdict::kGranted) {
    return true;
  }
  return make_room_ != nullptr && make_room_(device_) &&
         ledger_.Reserve(bytes, LimitBytes()) == Verdict::kGranted;
}

void Account::Release(uint64_t bytes) { ledger_.Release(bytes); }

bool Account::ReserveLinear(uint64_t bytes) {
  if (!IsSmall(bytes)) return Reserve(LinearCharge(bytes));
  const uint64_t step = LinearCharge(bytes);
  const uint64_t small = small_bytes_.fetch_add(step, std::memory_order_seq_cst) + step;
  uint64_t charged = chunk_bytes_.load(std::memory_order_seq_cst);
  while (ChunksFor(small) > charged) {
    const uint64_t missing = ChunksFor(small) - charged;
    if (!Reserve(missing)) {
      small_bytes_.fetch_sub(step, std::memory_order_relaxed);
      return false;
    }
    if (chunk_bytes_.compare_exchange_strong(charged, charged + missing)) return true;
    Release(missing);  // another thread was first; `charged` now says how far it got
  }
  return true;
}

void Account::ReleaseLinear(uint64_t bytes) {
  if (!IsSmall(bytes)) return Release(LinearCharge(bytes));
  small_bytes_.fetch_sub(LinearCharge(bytes), std::memory_order_seq_cst);
  ShrinkChunks();
}

void Account::ShrinkChunks() {
  uint64_t charged = chunk_bytes_.load(std::memory_order_seq_cst);
  const uint64_t needed = ChunksFor(small_bytes_.load(std::memory_order_seq_cst));
  if (needed >= charged || !chunk_bytes_.compare_exchange_strong(charged, needed)) return;
  Release(charged - needed);
  // A thread may have counted on a chunk between our two reads: put back what it needs. The driver
  // has that memory already, so it is booked, not asked for.
  const uint64_t now = ChunksFor(small_bytes_.load(std::memory_order_seq_cst));
  uint64_t seen = needed;
  if (now > needed && chunk_bytes_.compare_exchange_strong(seen, now)) ledger_.Book(now - needed);
}

void Account::SetOverhead(uint64_t bytes) {
  SpinGuard guard(&overhead_lock_);
  const uint64_t before = overhead_.exchange(bytes, std::memory_order_relaxed);
  if (bytes > before) ledger_.Book(bytes - before);
  if (bytes < before) ledger_.Release(before - bytes);
  ledger_.ShowOverhead(bytes);
}

uint64_t Account::charged_bytes() const {
  const uint64_t held = ledger_.Own();
  const uint64_t overhead = overhead_bytes();
  return held > overhead ? held - overhead : 0;
}

}  // namespace gpufence
