#include "state/time_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <initializer_list>

#include "base/forked.h"
#include "base/log.h"
#include "state/identity.h"
#include "state/shared_file.h"
#include "state/slots.h"

namespace gpufence {
namespace {

bool IsReady(const void* memory) {
  const TimeHeader& header = static_cast<const TimeBytes*>(memory)->header;
  return header.magic.load(std::memory_order_acquire) == kTimeMagic &&
         header.layout_version == kTimeVersion && header.max_rows == kMaxTimeRows &&
         header.max_tenants == kMaxCoreTenants && header.max_members == kMaxCoreMembers;
}

void WriteHeader(void* memory) {
  TimeHeader* header = &static_cast<TimeBytes*>(memory)->header;
  header->layout_version = kTimeVersion;
  header->max_rows = kMaxTimeRows;
  header->max_tenants = kMaxCoreTenants;
  header->max_members = kMaxCoreMembers;
  header->magic.store(kTimeMagic, std::memory_order_release);
}

constexpr SharedFileKind kTimeKind = {.bytes = sizeof(TimeBytes),
                                      .allocated_bytes = offsetof(TimeBytes, tenants),
                                      .write_header = WriteHeader,
                                      .is_ready = IsReady};

// `name` keeps the text.
SharedFilePlaces PlacesFor(const RegionPlaces& own, char name[NAME_MAX]) {
  snprintf(name, NAME_MAX, "gpufence-%s.cores%u-%08x", own.container, kTimeVersion,
           static_cast<uint32_t>(ClockIdentity()));
  return InPlaces(own, name);
}

void SignRecord(const TimeFile& file) {
  ProcessRecord& record = file.region->processes[file.member];
  record.uid = getuid();
  record.start_ticks = file.start_ticks;
  record.pid_namespace = file.pid_namespace;
  record.pid.store(static_cast<uint32_t>(getpid()), std::memory_order_release);
}

void RaiseHighMember(const TimeFile& file) {
  std::atomic<uint32_t>& high = file.region->header.high_member;
  uint32_t seen = high.load(std::memory_order_relaxed);
  while (seen <= file.member &&
         !high.compare_exchange_weak(seen, file.member + 1, std::memory_order_seq_cst)) {
  }
}

void SignMember(TimeFile* file) {
  TimeBytes* region = file->region;
  for (auto& row : region->members) {
    // Rows are claimed in order; those that nobody claimed may have no space yet.
    const auto index = static_cast<size_t>(&row - region->members);
    if (region->rows[index].key.load(std::memory_order_acquire) == 0) break;
    row[file->member].tenant.store(0, std::memory_order_release);
  }
  file->start_ticks = OwnStartTicks();
  file->pid_namespace = OwnPidNamespace();
  SignRecord(*file);
  RaiseHighMember(*file);
}

// As ClaimSlot does: asking for a lock takes the longer the more of them there are, so the first
// pass skips what looks taken.
bool ClaimMember(TimeFile* file) {
  const uint64_t own_namespace = OwnPidNamespace();
  for (const bool thorough : {false, true}) {
    for (uint32_t member = 0; member < kMaxCoreMembers; ++member) {
      const ProcessRecord& record = file->region->processes[member];
      const bool looks_taken = record.pid.load(std::memory_order_acquire) != 0 &&
                               AskPid(record, own_namespace, Effort::kQuick) != Owner::kGone;
      if ((looks_taken && !thorough) || !SetLock(file->fd, member, F_WRLCK)) continue;
      file->member = member;
      SignMember(file);
      return true;
    }
  }
  return false;
}

bool OpenPrivate(TimeFile* file, char* why, size_t why_bytes) {
  void* memory = MapWipedOnFork(sizeof(TimeBytes));
  if (memory == nullptr) {
    snprintf(why, why_bytes, "no memory for the process's own time file");
    return false;
  }
  WriteHeader(memory);
  *file = {.region = static_cast<TimeBytes*>(memory)};
  SignMember(file);
  return true;
}

bool OpenShared(const SharedFilePlaces& places, OpenedFile* opened, TimeFile* file, char* why,
                size_t why_bytes) {
  char path[PATH_MAX];
  SharedFile found;
  if (!OpenSharedFile(kTimeKind, places, &found, path, sizeof path)) {
    snprintf(why, why_bytes, "no place for the shared time file (last tried %s: %s)", path,
             ErrorText(errno));
    return false;
  }
  opened->Remember(found, sizeof(TimeBytes));
  *file = {.region = static_cast<TimeBytes*>(found.memory),
           .fd = found.fd,
           .device = found.device,
           .inode = found.inode};
  const bool claimed = ClaimMember(file);
  HasPlace(found.fd);
  if (claimed) return true;
  snprintf(why, why_bytes, "no free place in the time file (%u processes), or no locks there",
           kMaxCoreMembers);
  *file = {};
  return false;
}

constinit OpenedFile opened_file = {};
constinit TimeFile own_file = {};
constinit pid_t owner = 0;

}  // namespace

bool OpenTimeFile(const RegionPlaces& own, TimeFile* file, char* why, size_t why_bytes) {
  if (owner != getpid()) {
    opened_file.CloseInherited();
    own_file = {};
    owner = getpid();
  }
  if (own_file.region == nullptr) {
    char name[NAME_MAX];
    const SharedFilePlaces places = PlacesFor(own, name);
    const bool opened = places.folders[0] == nullptr
                            ? OpenPrivate(&own_file, why, why_bytes)
                            : OpenShared(places, &opened_file, &own_file, why, why_bytes);
    if (!opened) return false;
  }
  *file = own_file;
  return true;
}

CoreShares LookAtShares(const RegionPlaces& own, const uint8_t uuid[16]) {
  char name[NAME_MAX];
  SharedFile found;
  if (!FindSharedFile(kTimeKind, PlacesFor(own, name), O_RDONLY, &found)) return {};
  const TimeFile file = {.region = static_cast<TimeBytes*>(found.memory),
                         .fd = found.fd,
                         .device = found.device,
                         .inode = found.inode,
                         .member = kMaxCoreMembers};
  const uint64_t key = RowKey(uuid);
  uint64_t shares = 0;
  for (uint32_t row = 0; row < kMaxTimeRows; ++row) {
    if (file.region->rows[row].key.load(std::memory_order_acquire) != key) continue;
    shares = LowestShares(file, {row});
    break;
  }
  CloseSharedFile(kTimeKind, &found);
  return UnpackShares(shares);
}

int ReopenTimeFile(const TimeFile& file) {
  const int fd = opened_file.Reopen();
  if (IsSameFile(fd, file.device, file.inode)) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

TimeSignature SignatureOf(const TimeFile& file, TimePlace place) {
  const TimeBytes& region = *file.region;
  return {region.rows[place.row].key.load(std::memory_order_relaxed),
          region.tenants[place.row][kOwnTenant].key.load(std::memory_order_relaxed),
          region.members[place.row][file.member].shares.load(std::memory_order_relaxed),
          region.rows[place.row].author.load(std::memory_order_relaxed)};
}

void SignAgain(const TimeFile& file, TimePlace place, const TimeSignature& signature) {
  TimeBytes* region = file.region;
  if (!IsReady(region)) WriteHeader(region);
  RaiseHighMember(file);
  const ProcessRecord& record = region->processes[file.member];
  if (record.pid.load(std::memory_order_relaxed) != static_cast<uint32_t>(getpid()) ||
      record.start_ticks != file.start_ticks || record.pid_namespace != file.pid_namespace) {
    SignRecord(file);
  }
  region->rows[place.row].key.store(signature.row_key, std::memory_order_release);
  region->rows[place.row].author.store(signature.author, std::memory_order_release);
  region->tenants[place.row][kOwnTenant].key.store(signature.tenant_key, std::memory_order_release);
  CoreMember& own = region->members[place.row][file.member];
  own.shares.store(signature.shares, std::memory_order_relaxed);
  own.tenant.store(kOwnTenant + 1, std::memory_order_release);
}

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
  return AllocateRange(file.fd, offsetof(TimeBytes, tenants) + row * sizeof file.region->tenants[0],
                       sizeof file.region->tenants[0]) &&
         AllocateRange(file.fd, offsetof(TimeBytes, members) + row * sizeof file.region->members[0],
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
  cell.held.store(0, std::memory_order_relaxed);
  cell.shares.store(PackShares(shares), std::memory_order_relaxed);
  cell.tenant.store(kOwnTenant + 1, std::memory_order_release);
  // A container that is new; how others change is policy.
  uint64_t none = 0;
  tenant.shares.compare_exchange_strong(none, PackShares(shares), std::memory_order_acq_rel);
  return true;
}

}  // namespace gpufence
