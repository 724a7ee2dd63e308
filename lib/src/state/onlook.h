// Looking into a region without a slot in it: living processes only, nothing changed.
// Serves whoever mapped the region read-only. Must not know what is shown to whom.
#pragma once

#include <stdint.h>

#include "state/slots.h"

namespace gpufence {

// The device's row; kMaxDevices when there is none.
uint32_t LookRow(const Region* region, const uint8_t uuid[16]);

// True when the slot has a living owner.
bool IsAlive(const RegionFile& file, uint32_t slot);

struct RowSeen {
  uint64_t used_bytes = 0;          // held and asked for by living processes, saturated
  uint64_t limit_bytes = kNoLimit;  // the lowest they published; kNoLimit when none has one
  uint32_t processes = 0;           // living ones that published a limit, or that there is none
  bool is_oversold = false;         // by any of them
};
RowSeen LookAtRow(const RegionFile& file, uint32_t row);

// True when the process is one of the region's, by its number in our own pid namespace; numbers
// from other namespaces mean somebody else here and match nothing.
bool KnowsProcess(const Region* region, uint32_t pid);

}  // namespace gpufence
