// The pace of the core limit: how far launches may run ahead, and how often somebody looks. What
// cores.cpp and core_ticks.cpp share. Must not know which call launches.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "hooks/cores/cores.h"

namespace gpufence {

inline constexpr uint64_t kTickNs = 500'000;
inline constexpr size_t kMostIntervals = 256;

// Null: no core limit holds there now.
inline CoreDevice* DeviceAt(Cores* cores, uint32_t ordinal) {
  if (ordinal >= kMostLimitedDevices) return nullptr;
  return cores->by_ordinal[ordinal].load(std::memory_order_acquire);
}

// Nanoseconds until one more launch may be queued in the stream (null: one that is not marked).
uint64_t HoldNs(Cores* cores, CoreDevice* device, const MarkedStream* stream, uint64_t now_ns);

// Charges intervals to the devices that they are of; puts them in order.
void ChargeAll(Cores* cores, BusyInterval* busy, size_t count, uint64_t now_ns);

// Every fifth of a second, where it matters: whether somebody else uses the device.
void LookForNeighbours(CoreDevice* device, uint64_t now_ns);

}  // namespace gpufence
