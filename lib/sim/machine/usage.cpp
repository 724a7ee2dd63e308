// How much of the machine is in use: device bytes, context counts, busy time.
//
// Owns the arithmetic of capacity and of the busy history.  Must not know how slots are claimed.
#include <algorithm>

#include "machine/slots.h"

namespace sim::machine {
namespace {

constexpr int kBusyBits = 28;
constexpr uint64_t kBusyMask = (uint64_t{1} << kBusyBits) - 1;
static_assert(kBusyBucketNs <= kBusyMask);

uint64_t SumUsed(const MachineFile& file, int device) {
  uint64_t sum_bytes = 0;
  const int limit = file.slot_limit.load(std::memory_order_relaxed);
  for (int index = 0; index < limit; ++index) {
    const Slot& slot = file.slots[index];
    if (slot.pid.load(std::memory_order_acquire) == 0) continue;
    sum_bytes += slot.devices[device].used_bytes.load(std::memory_order_relaxed);
  }
  return sum_bytes + SharedBytes(file, device, kNoSlot);
}

uint64_t FreeBytes(const MachineFile& file, int device) {
  const uint64_t used_bytes = SumUsed(file, device);
  const uint64_t total_bytes = file.devices[device].memory_bytes;
  return total_bytes > used_bytes ? total_bytes - used_bytes : 0;
}

// Own part of a device, or nullptr without a slot.  Under the gate.
SlotDevice* OwnPart(const Gate& gate, int device) {
  if (gate.file() == nullptr || CachedOwnSlot() == kNoSlot) return nullptr;
  return &gate.file()->slots[CachedOwnSlot()].devices[device];
}

// Adds busy time to the bucket of one number, restarting a bucket that still holds an older number.
void AddToBucket(BusyHistory* history, uint64_t number, uint64_t busy_ns) {
  std::atomic<uint64_t>& bucket = history->buckets[number % kBusyBuckets];
  uint64_t seen = bucket.load(std::memory_order_relaxed);
  uint64_t next;
  do {
    if (seen >> kBusyBits > number) return;  // the ring has moved on: too old to matter
    const uint64_t before_ns = seen >> kBusyBits == number ? seen & kBusyMask : 0;
    next = number << kBusyBits | std::min(before_ns + busy_ns, kBusyBucketNs);
  } while (!bucket.compare_exchange_weak(seen, next, std::memory_order_relaxed));
}

// Calls visit(bucket number, nanoseconds of the interval that fall into it).
template <typename Visit>
void ForEachBucket(uint64_t start_ns, uint64_t end_ns, Visit visit) {
  constexpr uint64_t kSpanNs = kBusyBuckets * kBusyBucketNs;
  if (end_ns > kSpanNs) start_ns = std::max(start_ns, end_ns - kSpanNs);
  while (start_ns < end_ns) {
    const uint64_t number = start_ns / kBusyBucketNs;
    const uint64_t until_ns = std::min(end_ns, (number + 1) * kBusyBucketNs);
    visit(number, until_ns - start_ns);
    start_ns = until_ns;
  }
}

}  // namespace

bool Reserve(int device, uint64_t bytes) {
  Gate gate;
  SlotDevice* own = OwnPart(gate, device);
  if (own == nullptr) return false;
  if (FreeBytes(*gate.file(), device) < bytes) {
    ClearDeadSlots(gate.file());
    ClearUnheld(gate.file());
    if (FreeBytes(*gate.file(), device) < bytes) return false;
  }
  own->used_bytes.fetch_add(bytes, std::memory_order_relaxed);
  return true;
}

uint64_t ReserveUpTo(int device, uint64_t bytes) {
  Gate gate;
  SlotDevice* own = OwnPart(gate, device);
  if (own == nullptr) return 0;
  ClearDeadSlots(gate.file());
  ClearUnheld(gate.file());
  const uint64_t free_bytes = FreeBytes(*gate.file(), device);
  const uint64_t taken_bytes = std::min(bytes, free_bytes - free_bytes % kGranuleBytes);
  own->used_bytes.fetch_add(taken_bytes, std::memory_order_relaxed);
  return taken_bytes;
}

void Release(int device, uint64_t bytes) {
  Gate gate;
  SlotDevice* own = OwnPart(gate, device);
  if (own == nullptr) return;
  const uint64_t used_bytes = own->used_bytes.load(std::memory_order_relaxed);
  own->used_bytes.store(used_bytes - std::min(used_bytes, bytes), std::memory_order_relaxed);
}

uint64_t UsedBytes(int device) {
  Gate gate;
  if (gate.file() == nullptr) return 0;
  ClearDeadSlots(gate.file());
  ClearUnheld(gate.file());
  return SumUsed(*gate.file(), device);
}

uint64_t ListedBytes(int device, int slot) {
  const MachineFile* file = Map();
  return file->slots[slot].devices[device].used_bytes.load(std::memory_order_relaxed) +
         SharedBytes(*file, device, slot);
}

void CountContext(int device, int delta) {
  Gate gate;
  SlotDevice* own = OwnPart(gate, device);
  if (own != nullptr) own->contexts.fetch_add(static_cast<uint32_t>(delta));
}

void RecordBusy(int device, uint64_t start_ns, uint64_t end_ns) {
  MachineFile* file = Map();
  const int slot = CachedOwnSlot();
  if (file == nullptr || slot == kNoSlot || end_ns <= start_ns) return;
  SlotDevice& own = file->slots[slot].devices[device];
  own.busy_ns.fetch_add(end_ns - start_ns, std::memory_order_relaxed);
  ForEachBucket(start_ns, end_ns, [&](uint64_t number, uint64_t busy_ns) {
    AddToBucket(&own.busy, number, busy_ns);
    AddToBucket(&file->devices[device].busy, number, busy_ns);
  });
}

uint64_t BusyNs(const BusyHistory& history, uint64_t from_ns, uint64_t to_ns) {
  uint64_t sum_ns = 0;
  ForEachBucket(from_ns, to_ns, [&](uint64_t number, uint64_t wanted_ns) {
    const uint64_t word = history.buckets[number % kBusyBuckets].load(std::memory_order_relaxed);
    if (word >> kBusyBits != number) return;
    sum_ns += (word & kBusyMask) * wanted_ns / kBusyBucketNs;
  });
  return sum_ns;
}

}  // namespace sim::machine
