// Who is on the machine: claiming, listing and clearing process slots.
//
// Owns the life of a slot.  Must not know how much memory a device has (usage.cpp).
#include "machine/slots.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "machine/shared.h"

namespace sim::machine {
namespace {

// Reads a small file of /proc into a terminated buffer; "" when it cannot.
void ReadSmall(const char* path, char* text, size_t capacity) {
  text[0] = '\0';
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  const ssize_t bytes = read(fd, text, capacity - 1);
  close(fd);
  text[bytes > 0 ? bytes : 0] = '\0';
}

// Field 22 of /proc/self/stat.  The command in field 2 may hold blanks and brackets, so fields are
// counted from the last closing bracket.
uint64_t StartedTicks() {
  char text[1024];
  ReadSmall("/proc/self/stat", text, sizeof(text));
  const char* at = strrchr(text, ')');
  for (int field = 2; at != nullptr && field < 22; ++field) at = strchr(at + 1, ' ');
  return at != nullptr ? strtoull(at + 1, nullptr, 10) : 0;
}

void WriteName(char* name, size_t capacity) {
  const ssize_t bytes = readlink("/proc/self/exe", name, capacity - 1);
  name[bytes > 0 ? bytes : 0] = '\0';
  if (bytes <= 0) snprintf(name, capacity, "unknown");
}

void ClearSlot(MachineFile* file, int place) {
  Slot* slot = &file->slots[place];
  slot->pid.store(0, std::memory_order_release);
  for (uint32_t index = 0; index < file->device_count; ++index) {
    VacateSeat(&file->devices[index].compute, place);
    VacateSms(&file->devices[index].sms, place);
    SlotDevice& device = slot->devices[index];
    device.used_bytes.store(0, std::memory_order_relaxed);
    device.busy_ns.store(0, std::memory_order_relaxed);
    device.contexts.store(0, std::memory_order_relaxed);
    for (std::atomic<uint64_t>& bucket : device.busy.buckets) {
      bucket.store(0, std::memory_order_relaxed);
    }
  }
}

void FillSlot(const MachineFile& file, Slot* slot) {
  slot->started_ticks = StartedTicks();
  slot->claimed_ns = NowNs(file.clock);
  WriteName(slot->name, sizeof(slot->name));
  const int listed_pid = GetConfig()->listed_pid;
  slot->pid.store(static_cast<uint32_t>(listed_pid != 0 ? listed_pid : getpid()),
                  std::memory_order_release);
}

}  // namespace

int ClaimIn(MachineFile* file) {
  for (int index = 0; index < kMaxSlots; ++index) {
    if (!TryLockSlot(index)) continue;
    ClearSlot(file, index);
    ForgetOwner(file, index);
    FillSlot(*file, &file->slots[index]);
    if (index >= file->slot_limit.load(std::memory_order_relaxed)) {
      file->slot_limit.store(index + 1, std::memory_order_release);
    }
    return index;
  }
  return kNoSlot;
}

void ClearDeadSlots(MachineFile* file) {
  const int limit = file->slot_limit.load(std::memory_order_relaxed);
  for (int index = 0; index < limit; ++index) {
    const Slot* slot = &file->slots[index];
    if (slot->pid.load(std::memory_order_acquire) == 0 || index == CachedOwnSlot()) continue;
    if (!TryLockSlot(index)) continue;
    ClearSlot(file, index);
    ForgetOwner(file, index);
    UnlockSlot(index);
  }
}

bool Open() { return Map() != nullptr; }

bool ClaimSlot() {
  OpenControl();
  Gate gate;
  if (gate.file() == nullptr) return false;
  if (CachedOwnSlot() != kNoSlot) return true;
  const int slot = ClaimIn(gate.file());
  SetOwnSlot(slot);
  if (slot == kNoSlot) {
    Complain("GPUFENCE_SIM_STATE", GetConfig()->state, "all 512 process slots are taken");
  }
  return slot != kNoSlot;
}

int OwnSlot() {
  Gate gate;
  return gate.file() != nullptr ? CachedOwnSlot() : kNoSlot;
}

int LiveSlots(int* slots, int capacity) {
  Gate gate;
  if (gate.file() == nullptr) return 0;
  ClearDeadSlots(gate.file());
  ClearUnheld(gate.file());
  int count = 0;
  const int limit = gate.file()->slot_limit.load(std::memory_order_relaxed);
  for (int index = 0; index < limit && count < capacity; ++index) {
    if (gate.file()->slots[index].pid.load(std::memory_order_acquire) != 0) slots[count++] = index;
  }
  return count;
}

bool IsSlotAlive(int slot) { return IsSlotLocked(slot); }

void RingSlot(int slot) {
  std::atomic<uint32_t>& bell = Map()->slots[slot].bell;
  bell.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, &bell, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

int DeviceCount() {
  const MachineFile* file = Map();
  return file != nullptr ? static_cast<int>(file->device_count) : 0;
}

int InstancesPerBoard() {
  const Config* config = GetConfig();
  return config != nullptr ? config->mig_instances : 0;
}

MachineClock& Clock() { return Map()->clock; }
MeetingTable& AllMeetings() { return Map()->meetings; }

DeviceRecord& Device(int device) { return Map()->devices[device]; }
Slot& SlotAt(int slot) { return Map()->slots[slot]; }
uint64_t MachineId() { return Map()->machine_id; }

}  // namespace sim::machine
