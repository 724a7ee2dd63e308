#include "state/slots.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef F_OFD_SETLK
#define F_OFD_SETLK 37
#endif

namespace gpufence {
namespace {

// Far behind the file's bytes, so that a lock never covers data.
constexpr off_t kLockBase = off_t{1} << 40;

bool SetLock(int fd, uint32_t slot, short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = kLockBase + slot;
  lock.l_len = 1;
  return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

// Field 22 of a process's stat line: the clock tick of its start; 0 when it cannot be read.
uint64_t StartTicks(uint32_t pid) {
  char path[32];
  snprintf(path, sizeof path, "/proc/%u/stat", pid);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  char text[1024];
  const ssize_t got = read(file, text, sizeof text - 1);
  close(file);
  if (got <= 0) return 0;
  text[got] = '\0';
  const char* field = strrchr(text, ')');  // the command's name may hold blanks and brackets
  for (int skipped = 2; field != nullptr && skipped < 22; ++skipped) {
    field = strchr(field + 1, ' ');
  }
  return field != nullptr ? strtoull(field + 1, nullptr, 10) : 0;
}

uint64_t OwnPidNamespace() {
  struct stat found = {};
  return stat("/proc/self/ns/pid", &found) == 0 ? found.st_ino : 0;
}

// A child that inherited the descriptor keeps a dead owner's lock alive. Its pid tells then, but
// only in our own namespace, where the number means the same process.
bool OwnerIsGone(const ProcessRecord& record, uint64_t own_namespace) {
  const uint32_t pid = record.pid.load(std::memory_order_acquire);
  if (pid == 0 || own_namespace == 0 || record.pid_namespace != own_namespace) return false;
  if (kill(static_cast<pid_t>(pid), 0) != 0) return errno == ESRCH;
  const uint64_t started = StartTicks(pid);
  return started != 0 && record.start_ticks != 0 && started != record.start_ticks;
}

void ZeroSlot(Region* region, uint32_t slot) {
  for (uint32_t row = 0; row < kMaxDevices; ++row) {
    if (region->rows[row].key.load(std::memory_order_relaxed) == 0) break;
    Cell& cell = region->cells[row][slot];
    cell.asking.store(0, std::memory_order_relaxed);
    cell.held.store(0, std::memory_order_relaxed);
    region->overhead[row][slot].store(0, std::memory_order_relaxed);
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

void Sign(Region* region, uint32_t slot) {
  ProcessRecord& record = region->processes[slot];
  const auto pid = static_cast<uint32_t>(getpid());
  record.uid = getuid();
  record.start_ticks = StartTicks(pid);
  record.pid_namespace = OwnPidNamespace();
  record.pid.store(pid, std::memory_order_release);
}

}  // namespace

uint32_t ClaimSlot(const RegionFile& file) {
  for (uint32_t slot = 0; slot < kMaxProcesses; ++slot) {
    if (file.fd >= 0 && !SetLock(file.fd, slot, F_WRLCK)) {
      if (errno == EAGAIN || errno == EACCES) continue;
      return kNoSlot;
    }
    ZeroSlot(file.region, slot);
    Sign(file.region, slot);
    RaiseHighSlot(file.region, slot);
    return slot;
  }
  return kNoSlot;
}

uint64_t ReclaimDead(const RegionFile& file, uint32_t own_slot, uint32_t row) {
  if (file.fd < 0) return 0;
  // All locks of this process belong to one open file, so a second thread would take the first
  // one's lock and could zero a slot that was meanwhile claimed anew.
  static constinit std::atomic<bool> busy{false};
  if (busy.exchange(true, std::memory_order_acquire)) return 0;
  const uint64_t own_namespace = OwnPidNamespace();
  uint64_t freed = 0;
  const uint32_t end = file.region->header.high_slot.load(std::memory_order_acquire);
  for (uint32_t slot = 0; slot < end && slot < kMaxProcesses; ++slot) {
    const ProcessRecord& record = file.region->processes[slot];
    if (slot == own_slot || record.pid.load(std::memory_order_relaxed) == 0) continue;
    const Cell& cell = file.region->cells[row][slot];
    const uint64_t held = cell.held.load(std::memory_order_relaxed);
    if (SetLock(file.fd, slot, F_WRLCK)) {
      ZeroSlot(file.region, slot);
      SetLock(file.fd, slot, F_UNLCK);
      freed += held;
    } else if (OwnerIsGone(record, own_namespace)) {
      ZeroSlot(file.region, slot);
      freed += held;
    }
  }
  busy.store(false, std::memory_order_release);
  return freed;
}

uint32_t FindRow(Region* region, const uint8_t uuid[16]) {
  uint64_t key = 0;
  memcpy(&key, uuid, sizeof key);
  if (key == 0) memcpy(&key, uuid + 8, sizeof key);
  if (key == 0) key = 1;
  for (uint32_t row = 0; row < kMaxDevices; ++row) {
    uint64_t seen = 0;
    DeviceRow& device = region->rows[row];
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

uint64_t LowestLimit(const Region* region, uint32_t row) {
  uint64_t lowest = kNoLimit;
  const uint32_t end = region->header.high_slot.load(std::memory_order_acquire);
  for (uint32_t slot = 0; slot < end && slot < kMaxProcesses; ++slot) {
    const uint64_t limit = region->limits[row][slot].load(std::memory_order_relaxed);
    if (limit != 0 && limit < lowest) lowest = limit;
  }
  return lowest;
}

}  // namespace gpufence
