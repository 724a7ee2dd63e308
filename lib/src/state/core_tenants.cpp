// Rows and tenants of a core file: found, made, and taken over from the dead.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <initializer_list>

#include "core/held_locks.h"
#include "state/core_region.h"
#include "state/identity.h"
#include "state/shared_file.h"

namespace gpufence {
namespace {

// Bytes of the locks under which a container's processes join, far behind the members'.
constexpr uint32_t kJoinBase = 1 << 16;
constexpr uint32_t kJoinBytes = 1 << 16;
constexpr int kMostJoinMs = 2000;

// Which tenants exist is decided under the lock of the container's name: two processes of one
// container that start together must not become two containers with a share each.
class JoinLock {
 public:
  JoinLock(const CoreFile& file, uint64_t key)
      : fd_(file.fd), byte_(kJoinBase + static_cast<uint32_t>(key % kJoinBytes)) {}
  ~JoinLock() {
    if (held_) SetLock(fd_, byte_, F_UNLCK);
  }
  JoinLock(const JoinLock&) = delete;
  JoinLock& operator=(const JoinLock&) = delete;

  bool Try() { return held_ = fd_ < 0 || SetLock(fd_, byte_, F_WRLCK); }

  // Only a process of the same container that is stopped right here can make this fail.
  bool Wait() {
    return WaitFor(kMostJoinMs, [this] { return Try(); });
  }

 private:
  CountedLock counted_;
  int fd_;
  uint32_t byte_;
  bool held_ = false;
};

// The file with a descriptor that is its own. Without one nothing can be said of anybody's life,
// nor anything be locked or allocated.
class OpenCore {
 public:
  explicit OpenCore(const CoreFile& given) : file_(given) {
    if (given.fd < 0 || IsSameFile(given.fd, given.device, given.inode)) return;
    file_.fd = reopened_ = ReopenCoreFile(given);
    is_open_ = reopened_ >= 0;
  }
  ~OpenCore() {
    if (reopened_ >= 0) close(reopened_);
  }
  OpenCore(const OpenCore&) = delete;
  OpenCore& operator=(const OpenCore&) = delete;

  const CoreFile& file() const { return file_; }
  bool is_open() const { return is_open_; }

 private:
  CoreFile file_;
  int reopened_ = -1;
  bool is_open_ = true;
};

bool IsMemberAlive(const CoreFile& file, uint32_t member, uint64_t own_namespace) {
  if (member == file.member) return true;
  return file.fd >= 0 && IsLocked(file.fd, member) &&
         AskPid(file.region->processes[member], own_namespace, Effort::kThorough) != Owner::kGone;
}

bool AllocateRow(const CoreFile& file, uint32_t row) {
  if (file.fd < 0) return true;
  return AllocateRange(file.fd,
                       offsetof(CoreRegion, tenants) + row * sizeof file.region->tenants[0],
                       sizeof file.region->tenants[0]) &&
         AllocateRange(file.fd,
                       offsetof(CoreRegion, members) + row * sizeof file.region->members[0],
                       sizeof file.region->members[0]);
}

uint32_t FindRow(const CoreFile& file, const uint8_t uuid[16]) {
  const uint64_t key = RowKey(uuid);
  for (uint32_t row = 0; row < kMaxCoreRows; ++row) {
    CoreRow& device = file.region->rows[row];
    uint64_t seen = device.key.load(std::memory_order_acquire);
    if (seen != 0 && seen != key) continue;
    // Before the key is there: whoever sees a row may write to it.
    if (!AllocateRow(file, row)) return kMaxCoreRows;
    if (seen == key) return row;
    if (device.key.compare_exchange_strong(seen, key, std::memory_order_acq_rel)) {
      memcpy(device.uuid, uuid, sizeof device.uuid);
      return row;
    }
    if (seen == key) return row;
  }
  return kMaxCoreRows;
}

bool HasLivingMembers(const CoreFile& file, CorePlace place) {
  const uint64_t own_namespace = OwnPidNamespace();
  for (uint32_t member = 0; member < HighMember(file.region); ++member) {
    const CoreMember& cell = file.region->members[place.row][member];
    if (cell.tenant.load(std::memory_order_acquire) == place.tenant + 1 &&
        IsMemberAlive(file, member, own_namespace)) {
      return true;
    }
  }
  return false;
}

void Forget(CoreTenant* tenant) {
  for (Word* word :
       {&tenant->due_ns, &tenant->charged_until_ns, &tenant->shares, &tenant->shares_checked_ns,
        &tenant->backlog_ns, &tenant->active_ns, &tenant->served_ns, &tenant->charged_ns}) {
    word->store(0, std::memory_order_relaxed);
  }
  for (Word& gap : tenant->gaps) gap.store(0, std::memory_order_relaxed);
}

// A dead tenant keeps its place, and its debt, until another needs the place. Under the lock of its
// name no process of it can be joining.
bool TakeOver(const CoreFile& file, CorePlace place, uint64_t key) {
  CoreTenant& tenant = file.region->tenants[place.row][place.tenant];
  uint64_t old_key = tenant.key.load(std::memory_order_acquire);
  JoinLock lock(file, old_key);
  const bool same_byte = old_key % kJoinBytes == key % kJoinBytes;
  if ((!same_byte && !lock.Try()) || HasLivingMembers(file, place)) return false;
  Forget(&tenant);
  return tenant.key.compare_exchange_strong(old_key, key, std::memory_order_acq_rel);
}

// Of the dead, whoever owes the least: all who owe nothing come first. Who comes back in time finds
// its debt, unless as many others as there are places came meanwhile: refusing is worse.
uint32_t TakeOverOne(const CoreFile& file, uint32_t row, uint64_t key, uint64_t now_ns) {
  uint64_t owed_ns[kMaxCoreTenants];
  uint32_t tenants[kMaxCoreTenants];
  for (uint32_t i = 0; i < kMaxCoreTenants; ++i) {
    const uint64_t due_ns = file.region->tenants[row][i].due_ns.load(std::memory_order_relaxed);
    owed_ns[i] = due_ns > now_ns ? due_ns - now_ns : 0;
    tenants[i] = i;
  }
  std::sort(tenants, tenants + kMaxCoreTenants, [&](uint32_t one, uint32_t other) {
    return owed_ns[one] != owed_ns[other] ? owed_ns[one] < owed_ns[other] : one < other;
  });
  for (const uint32_t tenant : tenants) {
    if (TakeOver(file, {row, tenant}, key)) return tenant;
  }
  return kMaxCoreTenants;
}

uint32_t FindTenant(const CoreFile& file, uint32_t row, uint64_t key, uint64_t now_ns) {
  CoreTenant* tenants = file.region->tenants[row];
  for (uint32_t tenant = 0; tenant < kMaxCoreTenants; ++tenant) {
    if (tenants[tenant].key.load(std::memory_order_acquire) == key) return tenant;
  }
  for (uint32_t tenant = 0; tenant < kMaxCoreTenants; ++tenant) {
    uint64_t nobody = 0;
    if (tenants[tenant].key.compare_exchange_strong(nobody, key, std::memory_order_acq_rel)) {
      return tenant;
    }
  }
  return TakeOverOne(file, row, key, now_ns);
}

}  // namespace

uint64_t LowestShares(const CoreFile& given, CorePlace place) {
  const OpenCore opened(given);
  if (!opened.is_open()) return 0;
  const CoreFile& file = opened.file();
  const uint64_t own_namespace = OwnPidNamespace();
  CoreShares lowest = {UINT32_MAX, UINT32_MAX};
  for (uint32_t member = 0; member < HighMember(file.region); ++member) {
    const CoreMember& cell = file.region->members[place.row][member];
    if (cell.tenant.load(std::memory_order_acquire) != place.tenant + 1) continue;
    const CoreShares shares = UnpackShares(cell.shares.load(std::memory_order_relaxed));
    if (shares.hard >= lowest.hard && shares.soft >= lowest.soft) continue;
    if (!IsMemberAlive(file, member, own_namespace)) continue;
    if (shares.hard < lowest.hard) lowest.hard = shares.hard;
    if (shares.soft < lowest.soft) lowest.soft = shares.soft;
  }
  return lowest.hard == UINT32_MAX ? 0 : PackShares(lowest);
}

bool JoinCoreRow(const CoreFile& given, const char* container, const uint8_t uuid[16],
                 CoreShares shares, uint64_t now_ns, CorePlace* place, char* why,
                 size_t why_bytes) {
  const OpenCore opened(given);
  const CoreFile& file = opened.file();
  if (!opened.is_open()) {
    snprintf(why, why_bytes, "the program closed the core file, which is gone from its folder");
    return false;
  }
  place->row = FindRow(file, uuid);
  if (place->row == kMaxCoreRows) {
    snprintf(why, why_bytes,
             "no room for another GPU in the core file (%u at most), or its folder "
             "is full",
             kMaxCoreRows);
    return false;
  }
  const uint64_t hash = HashText(container);
  const uint64_t key = hash != 0 ? hash : 1;
  JoinLock lock(file, key);
  if (!lock.Wait()) {
    snprintf(why, why_bytes, "another process of this container was stopped while it joined");
    return false;
  }
  place->tenant = FindTenant(file, place->row, key, now_ns);
  if (place->tenant == kMaxCoreTenants) {
    snprintf(why, why_bytes, "no room for another container on a GPU (%u at most)",
             kMaxCoreTenants);
    return false;
  }
  // Who just came has saved nothing.
  uint64_t never = 0;
  file.region->tenants[place->row][place->tenant].due_ns.compare_exchange_strong(
      never, now_ns, std::memory_order_relaxed);
  CoreMember& cell = file.region->members[place->row][file.member];
  for (Word* word : {&cell.beat, &cell.wanted_ns, &cell.idle_ns, &cell.ends_ns, &cell.collectives,
                     &cell.gang_held}) {
    word->store(0, std::memory_order_relaxed);
  }
  cell.shares.store(PackShares(shares), std::memory_order_relaxed);
  cell.tenant.store(place->tenant + 1, std::memory_order_release);
  // A tenant that is new; how others change is policy.
  uint64_t none = 0;
  file.region->tenants[place->row][place->tenant].shares.compare_exchange_strong(
      none, PackShares(shares), std::memory_order_acq_rel);
  return true;
}

}  // namespace gpufence
