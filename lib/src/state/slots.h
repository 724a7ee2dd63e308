// Slots: which process owns which column of the region, who is dead, and what becomes of the dead.
//
// Alive means holding an open-file-description lock on the slot's byte. The kernel drops it with
// the owner's last reference to the open file, its mapping included: at death or exec, in every pid
// namespace. Taking it is therefore proof of death, and nobody ever waits for it. Must not know
// what the cells count.
#pragma once

#include <stdint.h>

#include "shared_layouts.h"
#include "state/owner.h"

namespace gpufence {

inline constexpr uint32_t kNoSlot = UINT32_MAX;

// An open region file. fd < 0: anonymous memory of this process alone, with slot 0 only.
struct RegionFile {
  Region* region = nullptr;
  int fd = -1;
  uint64_t device = 0;  // which file the descriptor was opened for
  uint64_t inode = 0;
  uint32_t place = 0;  // in which of the folders where it was looked for
};

// Takes the lowest free slot, zeroes it and signs it. kNoSlot when all are taken by living
// processes, or when the file system knows no such locks. Once per process, before all else. From
// here on it is the slot that keeps the file from being removed.
uint32_t ClaimSlot(const RegionFile& file);

// Zeroes the slots of dead processes. Returns how many there were. While another thread of this
// process does the same, waits for it (a moment, bounded) and counts its work as one. Works without
// the descriptor too, as long as the file can be opened by its name.
uint32_t ReclaimDead(const RegionFile& mapped, uint32_t own_slot, Effort effort);

// The same of those alone whose limit on the row is lower than the own slot's, or whose ratio is
// higher: what the dead published holds nobody. Costs no system call where there is none.
uint32_t ReclaimDeadStricter(const RegionFile& mapped, uint32_t own_slot, uint32_t row);

// True while the descriptor is still the region's. Daemons close all descriptors they have; the
// lock lives on with the mapping, but another file's locks would prove nothing.
bool IsOurFile(const RegionFile& file);

// What a row is found by: the first eight bytes of the UUID, never 0.
uint64_t RowKey(const uint8_t uuid[16]);

// The device's row, made if need be; kMaxDevices when there are
// 64 others, or no space in the file's folder: better now than by a signal at the first write.
uint32_t FindRow(const RegionFile& file, const uint8_t uuid[16]);

// Publishes what this process resolved as the limit of a row (kNoLimit: it has none).
void PublishLimit(Region* region, uint32_t row, uint32_t slot, uint64_t limit_bytes);

// Publishes what an operator's file allows at most; kNoLimit and 0: no ceiling.
void PublishCeilings(Region* region, uint32_t row, uint32_t slot, uint64_t memory_bytes,
                     uint32_t hard_share, uint32_t soft_share);

// The lowest limit among those who have a slot; kNoLimit when none has one.
uint64_t LowestLimit(const Region* region, uint32_t row);

// The same for the ratio by which memory is oversold, in thousandths; 0: it is not. The highest
// holds, as it leaves the least device memory.
void PublishRatio(Region* region, uint32_t row, uint32_t slot, uint64_t ratio);
uint64_t HighestRatio(const Region* region, uint32_t row);

}  // namespace gpufence
