// Slots: which process owns which column of the region, who is dead, and what becomes of the dead.
//
// Alive means holding an open-file-description lock on the slot's byte. The kernel drops it at the
// owner's death, in every pid namespace; taking it is therefore proof of death, and nobody ever
// waits for it. Must not know what the cells count.
#pragma once

#include <stdint.h>

#include "state/layout.h"

namespace gpufence {

inline constexpr uint32_t kNoSlot = UINT32_MAX;

// An open region file. fd < 0: anonymous memory of this process alone, with slot 0 only.
struct RegionFile {
  Region* region = nullptr;
  int fd = -1;
};

// Takes the lowest free slot, zeroes it and signs it. kNoSlot when all are taken by living
// processes, or when the file system knows no such locks.
uint32_t ClaimSlot(const RegionFile& file);

// Zeroes the slots of dead processes. Returns how many bytes that freed in `row`.
// One thread of a process at a time; a second one returns 0 at once.
uint64_t ReclaimDead(const RegionFile& file, uint32_t own_slot, uint32_t row);

// The device's row by the first eight bytes of its UUID, made if need be; kMaxDevices when full.
uint32_t FindRow(Region* region, const uint8_t uuid[16]);

// Publishes what this process resolved as the limit of a row (kNoLimit: it has none).
void PublishLimit(Region* region, uint32_t row, uint32_t slot, uint64_t limit_bytes);

// The lowest limit among living processes; kNoLimit when none has one.
uint64_t LowestLimit(const Region* region, uint32_t row);

}  // namespace gpufence
