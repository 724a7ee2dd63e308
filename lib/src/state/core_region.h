// The core file: where it is, and who has a place in it. In the operator's node folder, where every
// container of the node finds the others, or beside the container's own region.
//
// A process lives as long as it holds the lock on its byte (state/slots.h says why). Joining is the
// only step that excludes anybody: processes of one container join a device one after another,
// under a lock that the kernel drops with its holder, and that nobody waits for longer than a
// moment. Must not know turns, budgets or CUDA.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "state/core_layout.h"
#include "state/region.h"

namespace gpufence {

// This process's place in an open core file. fd < 0: memory of this process alone.
struct CoreFile {
  CoreRegion* region = nullptr;
  int fd = -1;
  uint64_t device = 0;  // which file the descriptor was opened for
  uint64_t inode = 0;
  uint32_t member = 0;
};

// A container's place on one device.
struct CorePlace {
  uint32_t row;
  uint32_t tenant;
};

// Opens the file in `node_folder`, or, when that is "", the container's own in one of `own`'s
// folders, or, when it has none, in memory; takes a member's place in it. Opened once per process:
// later calls give the same. False with one clause in `why`. One thread at a time.
bool OpenCoreFile(const char* node_folder, const RegionPlaces& own, CoreFile* file, char* why,
                  size_t why_bytes);

// Finds or makes the device's row and the container's tenant there, and publishes this process's
// shares. `imposed` as in SettleShares. False with one clause in `why`. One thread at a time.
bool JoinCoreRow(const CoreFile& file, const char* container, const uint8_t uuid[16],
                 CoreShares shares, uint64_t now_ns, CorePlace* place, char* why, size_t why_bytes,
                 uint64_t imposed = 0);

// Sets the tenant's shares to `imposed` (packed), or, where that is 0, to the lowest of its living
// members, at a system call for each. Returns what they were.
uint64_t SettleShares(const CoreFile& file, CorePlace place, uint64_t imposed);

}  // namespace gpufence
