#include "state/region.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/forked.h"
#include "base/log.h"
#include "state/sharing.h"

namespace gpufence {
namespace {

bool IsReady(const void* memory) {
  const RegionHeader& header = static_cast<const Region*>(memory)->header;
  return header.magic.load(std::memory_order_acquire) == kRegionMagic &&
         header.layout_version == kRegionVersion && header.max_processes == kMaxProcesses &&
         header.max_devices == kMaxDevices;
}

void WriteHeader(void* memory) {
  RegionHeader* header = &static_cast<Region*>(memory)->header;
  header->layout_version = kRegionVersion;
  header->max_processes = kMaxProcesses;
  header->max_devices = kMaxDevices;
  header->magic.store(kRegionMagic, std::memory_order_release);
}

constexpr SharedFileKind kRegionKind = {.bytes = sizeof(Region),
                                        .allocated_bytes = offsetof(Region, limits),
                                        .write_header = WriteHeader,
                                        .is_ready = IsReady};

// `name` keeps the text.
SharedFilePlaces PlacesFor(const RegionPlaces& places, char name[NAME_MAX]) {
  snprintf(name, NAME_MAX, "gpufence-%s.v%u", places.container, kRegionVersion);
  return InPlaces(places, name);
}

RegionFile AsRegion(const SharedFile& file) {
  return {.region = static_cast<Region*>(file.memory),
          .fd = file.fd,
          .device = file.device,
          .inode = file.inode,
          .place = file.place};
}

constinit OpenedFile opened = {};

}  // namespace

SharedFilePlaces InPlaces(const RegionPlaces& places, const char* file_name) {
  SharedFilePlaces wanted = {.folders = {}, .file_name = file_name, .lock_folder = "/"};
  static_assert(SharedFilePlaces::kMost == RegionPlaces::kMost);
  for (size_t i = 0; i < RegionPlaces::kMost; ++i) wanted.folders[i] = places.folders[i];
  return wanted;
}

bool OpenRegion(const RegionPlaces& places, RegionFile* file, char* why, size_t why_bytes) {
  opened.CloseInherited();
  char name[NAME_MAX];
  char path[PATH_MAX];
  SharedFile found;
  if (!OpenSharedFile(kRegionKind, PlacesFor(places, name), &found, path, sizeof path)) {
    const int error = errno;
    if (path[0] == '\0') {
      snprintf(why, why_bytes, "no folder can hold the container's region");
    } else {
      snprintf(why, why_bytes, "the container's region at %s cannot be used: %s", path,
               ErrorText(error));
    }
    errno = error;
    return false;
  }
  opened.Remember(found, sizeof(Region));
  *file = AsRegion(found);
  return true;
}

int ReopenRegion(const RegionFile& file) {
  const int fd = opened.Reopen();
  if (fd < 0 || IsSameFile(fd, file.device, file.inode)) return fd;
  close(fd);
  return -1;
}

bool FindRegion(const RegionPlaces& places, RegionFile* file) {
  char name[NAME_MAX];
  SharedFile found;
  if (!FindSharedFile(kRegionKind, PlacesFor(places, name), O_RDONLY, &found)) return false;
  *file = AsRegion(found);
  return true;
}

uid_t OwnerOf(const RegionFile& file) {
  struct stat found = {};
  return fstat(file.fd, &found) == 0 ? found.st_uid : geteuid();
}

const char* FolderOf(const RegionPlaces& places) { return FolderOf(InPlaces(places, "")); }

void CloseRegion(RegionFile* file) {
  munmap(file->region, sizeof(Region));
  close(file->fd);
  *file = {};
}

bool OpenPrivateRegion(RegionFile* file) {
  void* address = MapWipedOnFork(sizeof(Region));
  if (address == nullptr) return false;
  *file = {.region = static_cast<Region*>(address), .fd = -1};
  WriteHeader(address);
  return true;
}

namespace {

uint32_t EndOfSlots(const Region* region) {
  const uint32_t end = region->header.high_slot.load(std::memory_order_acquire);
  return end < kMaxProcesses ? end : kMaxProcesses;
}

uint64_t AddSaturating(uint64_t one, uint64_t other) {
  return one > UINT64_MAX - other ? UINT64_MAX : one + other;
}

}  // namespace

uint32_t LookRow(const Region* region, const uint8_t uuid[16]) {
  const uint64_t key = RowKey(uuid);
  for (uint32_t row = 0; row < kMaxDevices; ++row) {
    if (region->rows[row].key.load(std::memory_order_acquire) == key) return row;
  }
  return kMaxDevices;
}

bool IsAlive(const RegionFile& file, uint32_t slot) {
  const ProcessRecord& record = file.region->processes[slot];
  if (record.pid.load(std::memory_order_acquire) == 0) return false;
  if (IsOurFile(file) && !IsLocked(file.fd, slot)) return false;
  return AskPid(record, OwnPidNamespace(), Effort::kThorough) != Owner::kGone;
}

RowSeen LookAtRow(const RegionFile& file, uint32_t row) {
  RowSeen seen;
  const uint32_t end = EndOfSlots(file.region);
  for (uint32_t slot = 0; slot < end; ++slot) {
    // `asking` first, as in Ledger::Sum.
    const Cell& cell = file.region->cells[row][slot];
    const uint64_t asking = cell.asking.load(std::memory_order_acquire);
    const uint64_t held = cell.held.load(std::memory_order_relaxed);
    const uint64_t limit = file.region->limits[row][slot].load(std::memory_order_relaxed);
    if ((held == 0 && asking == 0 && limit == 0) || !IsAlive(file, slot)) continue;
    seen.used_bytes = AddSaturating(seen.used_bytes, AddSaturating(held, asking));
    if (limit == 0) continue;
    ++seen.processes;
    if (file.region->ratios[row][slot].load(std::memory_order_relaxed) != 0) {
      seen.is_oversold = true;
    }
    if (limit < seen.limit_bytes) seen.limit_bytes = limit;
  }
  seen.used_bytes = AddSaturating(seen.used_bytes, OrphanBytesSeen(file.region, row));
  return seen;
}

bool KnowsProcess(const Region* region, uint32_t pid) {
  if (pid == 0) return false;
  const uint64_t own_namespace = OwnPidNamespace();
  const uint32_t end = EndOfSlots(region);
  for (uint32_t slot = 0; slot < end; ++slot) {
    const ProcessRecord& record = region->processes[slot];
    if (record.pid.load(std::memory_order_acquire) == pid &&
        record.pid_namespace == own_namespace) {
      return true;
    }
  }
  return false;
}

}  // namespace gpufence
