#include "state/slots.h"

#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <initializer_list>

#include "base/futex.h"
#include "base/held_locks.h"
#include "state/region.h"
#include "state/shared_file.h"
#include "state/sharing.h"

namespace gpufence {
namespace {

// A second byte per slot: held for a moment by whoever zeroes the slot of an owner whose lock still
// stands, and by whoever claims it, so that nobody zeroes what was just claimed. Nobody waits for
// it.
constexpr uint32_t kZeroingBase = kMaxProcesses;

// Whoever dies in between loses a count, which nothing is decided by.
void RetireActivity(Region* region, uint32_t row, uint32_t slot) {
  Activity& own = region->activity[row][slot];
  Activity& past = region->past[row];
  for (Word Activity::* word :
       {&Activity::refusals, &Activity::launches_held, &Activity::held_ns}) {
    const uint64_t amount = (own.*word).exchange(0, std::memory_order_relaxed);
    if (amount != 0) (past.*word).fetch_add(amount, std::memory_order_relaxed);
  }
}

void ZeroSlot(Region* region, uint32_t slot) {
  for (uint32_t row = 0; row < kMaxDevices; ++row) {
    if (region->rows[row].key.load(std::memory_order_relaxed) == 0) break;
    Sharing(region, row, slot).Died();
    for (Cell* cell : {&region->cells[row][slot], &region->resident[row][slot]}) {
      cell->asking.store(0, std::memory_order_relaxed);
      cell->held.store(0, std::memory_order_relaxed);
    }
    region->overhead[row][slot].store(0, std::memory_order_relaxed);
    RetireActivity(region, row, slot);
    region->ratios[row][slot].store(0, std::memory_order_relaxed);
    PublishCeilings(region, row, slot, kNoLimit, 0, 0);
    if (region->limits[row][slot].exchange(0, std::memory_order_relaxed) != 0) {
      region->header.limit_epoch.fetch_add(1, std::memory_order_release);
    }
  }
  region->processes[slot].pid.store(0, std::memory_order_release);
}

void RaiseHighSlot(Region* region, uint32_t slot) {
  uint32_t seen = region->header.high_slot.load(std::memory_order_relaxed);
  while (seen <= slot && !region->header.high_slot.compare_exchange_weak(
                             seen, slot + 1, std::memory_order_seq_cst)) {
  }
}

void SignSlot(Region* region, uint32_t slot) {
  ZeroSlot(region, slot);
  ProcessRecord& record = region->processes[slot];
  const auto pid = static_cast<uint32_t>(getpid());
  record.uid = getuid();
  record.start_ticks = OwnStartTicks();
  record.pid_namespace = OwnPidNamespace();
  record.pid.store(pid, std::memory_order_release);
  RaiseHighSlot(region, slot);
}

// A child that inherited descriptor and mapping keeps a dead owner's lock alive.
bool ZeroOrphanedSlot(const RegionFile& file, uint32_t slot, uint64_t own_namespace,
                      Effort effort) {
  const ProcessRecord& record = file.region->processes[slot];
  if (AskPid(record, own_namespace, effort) != Owner::kGone) return false;
  if (!SetLock(file.fd, kZeroingBase + slot, F_WRLCK)) return false;
  // Again, now that nobody can claim it: the slot may have a new owner since.
  const bool gone = record.pid.load(std::memory_order_acquire) != 0 &&
                    AskPid(record, own_namespace, effort) == Owner::kGone;
  if (gone) ZeroSlot(file.region, slot);
  SetLock(file.fd, kZeroingBase + slot, F_UNLCK);
  return gone;
}

// All locks of this process belong to one open file, so a second thread would take the first one's
// lock and could zero a slot that was meanwhile claimed anew.
constinit std::atomic<bool> reclaiming{false};
constexpr int kReclaimTurns = 1000;

bool TakeReclaimTurn(bool* waited) {
  for (int turn = 0; reclaiming.exchange(true, std::memory_order_acquire); ++turn) {
    if (turn == kReclaimTurns) return false;
    *waited = true;
    Nap(5000);
  }
  return true;
}

// The file is sparse, and writing to a hole of a full file system is a fatal signal.
bool AllocateRow(const RegionFile& file, uint32_t row) {
  if (file.fd < 0) return true;
  constexpr size_t kWords = sizeof(Region::limits[0]);
  constexpr size_t kCells = sizeof(Region::cells[0]);
  constexpr size_t kShares = sizeof(Region::shares[0]);
  constexpr size_t kActivity = sizeof(Region::activity[0]);
  constexpr size_t kCeilings = sizeof(Region::ceilings[0]);
  constexpr size_t kResidentRows = sizeof(Region::resident_rows);
  return AllocateRange(file.fd, offsetof(Region, limits) + row * kWords, kWords) &&
         AllocateRange(file.fd, offsetof(Region, overhead) + row * kWords, kWords) &&
         AllocateRange(file.fd, offsetof(Region, cells) + row * kCells, kCells) &&
         AllocateRange(file.fd, offsetof(Region, shares) + row * kShares, kShares) &&
         AllocateRange(file.fd, offsetof(Region, activity) + row * kActivity, kActivity) &&
         AllocateRange(file.fd, offsetof(Region, past), sizeof(Region::past)) &&
         AllocateRange(file.fd, offsetof(Region, resident_rows), kResidentRows) &&
         AllocateRange(file.fd, offsetof(Region, resident) + row * kCells, kCells) &&
         AllocateRange(file.fd, offsetof(Region, ratios) + row * kWords, kWords) &&
         AllocateRange(file.fd, offsetof(Region, ceilings) + row * kCeilings, kCeilings);
}

// Frees the slot of an owner that is proven dead.
bool Reclaim(const RegionFile& file, uint32_t slot, uint64_t own_namespace, Effort effort) {
  if (!SetLock(file.fd, slot, F_WRLCK)) {
    return ZeroOrphanedSlot(file, slot, own_namespace, effort);
  }
  ZeroSlot(file.region, slot);
  SetLock(file.fd, slot, F_UNLCK);
  return true;
}

// Only what is free already: whoever is stopped in here, holding both locks, keeps nobody's bytes.
bool Claim(const RegionFile& file, uint32_t slot) {
  const std::atomic<uint32_t>& pid = file.region->processes[slot].pid;
  if (pid.load(std::memory_order_acquire) != 0 || !SetLock(file.fd, slot, F_WRLCK)) return false;
  if (pid.load(std::memory_order_acquire) == 0 && SetLock(file.fd, kZeroingBase + slot, F_WRLCK)) {
    SignSlot(file.region, slot);
    SetLock(file.fd, kZeroingBase + slot, F_UNLCK);
    return true;
  }
  SetLock(file.fd, slot, F_UNLCK);
  return false;
}

bool IsAny(uint32_t) { return true; }

template <typename Suspect>
uint32_t ReclaimAll(const RegionFile& file, uint32_t own_slot, Effort effort, Suspect is_suspect) {
  uint32_t reclaimed = 0;
  const uint64_t own_namespace = OwnPidNamespace();
  const uint32_t end = file.region->header.high_slot.load(std::memory_order_acquire);
  for (uint32_t slot = 0; slot < end && slot < kMaxProcesses; ++slot) {
    const ProcessRecord& record = file.region->processes[slot];
    if (slot == own_slot || record.pid.load(std::memory_order_relaxed) == 0) continue;
    if (!is_suspect(slot)) continue;
    if (Reclaim(file, slot, own_namespace, effort)) ++reclaimed;
  }
  return reclaimed;
}

// The region with a descriptor that works. Where ours was closed, another open file serves for a
// moment: our slot's lock stays with the mapping.
class OpenDescriptor {
 public:
  explicit OpenDescriptor(const RegionFile& file) : file_(file), is_new_(!IsOurFile(file)) {
    if (is_new_) file_.fd = ReopenRegion(file);
  }
  ~OpenDescriptor() {
    if (is_new_ && usable()) close(file_.fd);
  }
  OpenDescriptor(const OpenDescriptor&) = delete;
  OpenDescriptor& operator=(const OpenDescriptor&) = delete;

  bool usable() const { return file_.fd >= 0; }
  const RegionFile& file() const { return file_; }

 private:
  RegionFile file_;
  bool is_new_;
};

// The first pass passes over whoever has a living number, since asking for a lock takes the longer
// the more of them there are; the second asks everywhere.
uint32_t ClaimFreeSlot(const RegionFile& file) {
  const uint64_t own_namespace = OwnPidNamespace();
  for (const bool thorough : {false, true}) {
    for (uint32_t slot = 0; slot < kMaxProcesses; ++slot) {
      const ProcessRecord& record = file.region->processes[slot];
      const bool taken = record.pid.load(std::memory_order_acquire) != 0;
      if (taken && (thorough || AskPid(record, own_namespace, Effort::kQuick) == Owner::kGone)) {
        Reclaim(file, slot, own_namespace, Effort::kThorough);
      }
      if (Claim(file, slot)) return slot;
    }
  }
  return kNoSlot;
}

template <typename Suspect>
uint32_t ReclaimThose(const RegionFile& mapped, uint32_t own_slot, Effort effort,
                      Suspect is_suspect) {
  if (mapped.fd < 0) return 0;
  const CountedLock counted;
  bool waited = false;
  if (!TakeReclaimTurn(&waited)) return 0;
  uint32_t reclaimed = 0;
  if (!waited) {
    const OpenDescriptor file(mapped);
    if (file.usable()) reclaimed = ReclaimAll(file.file(), own_slot, effort, is_suspect);
  }
  reclaiming.store(false, std::memory_order_release);
  return waited ? 1 : reclaimed;
}

}  // namespace

uint32_t ClaimSlot(const RegionFile& file) {
  // In a forked child the flag may be that of a thread which stayed behind.
  reclaiming.store(false, std::memory_order_relaxed);
  if (file.fd < 0) {
    SignSlot(file.region, 0);
    return 0;
  }
  const uint32_t slot = ClaimFreeSlot(file);
  HasPlace(file.fd);
  return slot;
}

uint32_t ReclaimDead(const RegionFile& mapped, uint32_t own_slot, Effort effort) {
  return ReclaimThose(mapped, own_slot, effort, IsAny);
}

uint32_t ReclaimDeadStricter(const RegionFile& mapped, uint32_t own_slot, uint32_t row) {
  const Word* limits = mapped.region->limits[row];
  const Word* ratios = mapped.region->ratios[row];
  const uint64_t claimed = limits[own_slot].load(std::memory_order_relaxed);
  const uint64_t limit_bytes = claimed == 0 ? kNoLimit : claimed;
  const uint64_t ratio = ratios[own_slot].load(std::memory_order_relaxed);
  const auto is_stricter = [=](uint32_t slot) {
    const uint64_t other = limits[slot].load(std::memory_order_relaxed);
    return (other != 0 && other < limit_bytes) ||
           ratios[slot].load(std::memory_order_relaxed) > ratio;
  };
  const uint32_t end = mapped.region->header.high_slot.load(std::memory_order_acquire);
  for (uint32_t slot = 0; slot < end && slot < kMaxProcesses; ++slot) {
    if (!is_stricter(slot)) continue;
    return ReclaimThose(mapped, own_slot, Effort::kThorough, is_stricter);
  }
  return 0;
}

bool IsOurFile(const RegionFile& file) { return IsSameFile(file.fd, file.device, file.inode); }

uint64_t RowKey(const uint8_t uuid[16]) {
  uint64_t key = 0;
  memcpy(&key, uuid, sizeof key);
  if (key == 0) memcpy(&key, uuid + 8, sizeof key);
  return key != 0 ? key : 1;
}

uint32_t FindRow(const RegionFile& file, const uint8_t uuid[16]) {
  const uint64_t key = RowKey(uuid);
  for (uint32_t row = 0; row < kMaxDevices; ++row) {
    DeviceRow& device = file.region->rows[row];
    uint64_t seen = device.key.load(std::memory_order_acquire);
    if (seen != 0 && seen != key) continue;
    if (!AllocateRow(file, row)) return kMaxDevices;
    if (seen == key) return row;
    if (device.key.compare_exchange_strong(seen, key, std::memory_order_acq_rel)) {
      memcpy(device.uuid, uuid, sizeof device.uuid);
      return row;
    }
    if (seen == key) return row;
  }
  return kMaxDevices;
}

void PublishLimit(Region* region, uint32_t row, uint32_t slot, uint64_t limit_bytes) {
  region->limits[row][slot].store(limit_bytes, std::memory_order_relaxed);
  region->header.limit_epoch.fetch_add(1, std::memory_order_release);
}

void PublishCeilings(Region* region, uint32_t row, uint32_t slot, uint64_t memory_bytes,
                     uint32_t hard_share, uint32_t soft_share) {
  Ceilings* ceilings = &region->ceilings[row][slot];
  const uint64_t shares = uint64_t{soft_share} << 32 | hard_share;
  ceilings->memory_bytes.store(memory_bytes == kNoLimit ? 0 : memory_bytes,
                               std::memory_order_relaxed);
  ceilings->shares.store(shares, std::memory_order_relaxed);
}

uint64_t LowestLimit(const Region* region, uint32_t row) {
  uint64_t lowest = kNoLimit;
  const uint32_t end = region->header.high_slot.load(std::memory_order_acquire);
  for (uint32_t slot = 0; slot < end && slot < kMaxProcesses; ++slot) {
    const uint64_t limit = region->limits[row][slot].load(std::memory_order_relaxed);
    if (limit != 0 && limit < lowest) lowest = limit;
  }
  return lowest;
}

void PublishRatio(Region* region, uint32_t row, uint32_t slot, uint64_t ratio) {
  region->ratios[row][slot].store(ratio, std::memory_order_relaxed);
  region->header.limit_epoch.fetch_add(1, std::memory_order_release);
}

uint64_t HighestRatio(const Region* region, uint32_t row) {
  uint64_t highest = 0;
  const uint32_t end = region->header.high_slot.load(std::memory_order_acquire);
  for (uint32_t slot = 0; slot < end && slot < kMaxProcesses; ++slot) {
    const uint64_t ratio = region->ratios[row][slot].load(std::memory_order_relaxed);
    if (ratio > highest) highest = ratio;
  }
  return highest;
}

}  // namespace gpufence
