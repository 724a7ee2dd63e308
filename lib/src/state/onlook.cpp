#include "state/onlook.h"

#include "state/sharing.h"

namespace gpufence {
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
