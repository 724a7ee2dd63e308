// Rows of a time file, and who uses the device of one.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <initializer_list>

#include "state/time_file.h"
#include "state/identity.h"
#include "state/shared_file.h"

namespace gpufence {
namespace {

// The file with a descriptor that is its own. Without one nothing can be said of anybody's life,
// nor anything be locked or allocated.
class OpenTime {
 public:
  explicit OpenTime(const TimeFile& given) : file_(given) {
    if (given.fd < 0 || IsSameFile(given.fd, given.device, given.inode)) return;
    file_.fd = reopened_ = ReopenTimeFile(given);
    is_open_ = reopened_ >= 0;
  }
  ~OpenTime() {
    if (reopened_ >= 0) close(reopened_);
  }
  OpenTime(const OpenTime&) = delete;
  OpenTime& operator=(const OpenTime&) = delete;

  const TimeFile& file() const { return file_; }
  bool is_open() const { return is_open_; }

 private:
  TimeFile file_;
  int reopened_ = -1;
  bool is_open_ = true;
};

bool IsMemberAlive(const TimeFile& file, uint32_t member, uint64_t own_namespace) {
  if (member == file.member) return true;
  return file.fd >= 0 && IsLocked(file.fd, member) &&
         AskPid(file.region->processes[member], own_namespace, Effort::kThorough) != Owner::kGone;
}

bool AllocateRow(const TimeFile& file, uint32_t row) {
  if (file.fd < 0) return true;
  return AllocateRange(file.fd,
                       offsetof(TimeBytes, tenants) + row * sizeof file.region->tenants[0],
                       sizeof file.region->tenants[0]) &&
         AllocateRange(file.fd,
                       offsetof(TimeBytes, members) + row * sizeof file.region->members[0],
                       sizeof file.region->members[0]);
}

uint32_t FindRow(const TimeFile& file, const uint8_t uuid[16]) {
  const uint64_t key = RowKey(uuid);
  for (uint32_t row = 0; row < kMaxTimeRows; ++row) {
    TimeRow& device = file.region->rows[row];
    uint64_t seen = device.key.load(std::memory_order_acquire);
    if (seen != 0 && seen != key) continue;
    // Before the key is there: whoever sees a row may write to it.
    if (!AllocateRow(file, row)) return kMaxTimeRows;
    if (seen == key) return row;
    if (device.key.compare_exchange_strong(seen, key, std::memory_order_acq_rel)) {
      memcpy(device.uuid, uuid, sizeof device.uuid);
      return row;
    }
    if (seen == key) return row;
  }
  return kMaxTimeRows;
}

}  // namespace

bool HasLivingSiblings(const TimeFile& given, TimePlace place) {
  const OpenTime opened(given);
  const TimeFile& file = opened.file();
  const uint64_t own_namespace = OwnPidNamespace();
  for (uint32_t member = 0; opened.is_open() && member < HighMember(file.region); ++member) {
    const CoreMember& cell = file.region->members[place.row][member];
    if (member != file.member && cell.tenant.load(std::memory_order_acquire) == kOwnTenant + 1 &&
        IsMemberAlive(file, member, own_namespace)) {
      return true;
    }
  }
  return false;
}

uint64_t LowestShares(const TimeFile& given, TimePlace place) {
  const OpenTime opened(given);
  if (!opened.is_open()) return 0;
  const TimeFile& file = opened.file();
  const uint64_t own_namespace = OwnPidNamespace();
  CoreShares lowest = {UINT32_MAX, UINT32_MAX};
  for (uint32_t member = 0; member < HighMember(file.region); ++member) {
    const CoreMember& cell = file.region->members[place.row][member];
    if (cell.tenant.load(std::memory_order_acquire) != kOwnTenant + 1) continue;
    const CoreShares shares = UnpackShares(cell.shares.load(std::memory_order_relaxed));
    if (shares.hard >= lowest.hard && shares.soft >= lowest.soft) continue;
    if (!IsMemberAlive(file, member, own_namespace)) continue;
    if (shares.hard < lowest.hard) lowest.hard = shares.hard;
    if (shares.soft < lowest.soft) lowest.soft = shares.soft;
  }
  return lowest.hard == UINT32_MAX ? 0 : PackShares(lowest);
}

bool JoinTimeRow(const TimeFile& given, const char* container, const uint8_t uuid[16],
                 CoreShares shares, uint64_t now_ns, TimePlace* place, char* why,
                 size_t why_bytes) {
  const OpenTime opened(given);
  const TimeFile& file = opened.file();
  if (!opened.is_open()) {
    snprintf(why, why_bytes, "the program closed the time file, which is gone from its folder");
    return false;
  }
  place->row = FindRow(file, uuid);
  if (place->row == kMaxTimeRows) {
    snprintf(why, why_bytes,
             "no room for another GPU in the time file (%u at most), or its folder "
             "is full",
             kMaxTimeRows);
    return false;
  }
  const uint64_t hash = HashText(container);
  CoreTenant& tenant = file.region->tenants[place->row][kOwnTenant];
  tenant.key.store(hash != 0 ? hash : 1, std::memory_order_release);
  // Who just came has saved nothing.
  uint64_t never = 0;
  tenant.due_ns.compare_exchange_strong(never, now_ns, std::memory_order_relaxed);
  CoreMember& cell = file.region->members[place->row][file.member];
  for (Word* word : {&cell.beat, &cell.wanted_ns, &cell.idle_ns, &cell.ends_ns, &cell.collectives,
                     &cell.gang_held}) {
    word->store(0, std::memory_order_relaxed);
  }
  cell.shares.store(PackShares(shares), std::memory_order_relaxed);
  cell.tenant.store(kOwnTenant + 1, std::memory_order_release);
  // A container that is new; how others change is policy.
  uint64_t none = 0;
  tenant.shares.compare_exchange_strong(none, PackShares(shares), std::memory_order_acq_rel);
  return true;
}

}  // namespace gpufence
