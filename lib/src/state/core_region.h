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
  uint64_t start_ticks = 0;  // with which the process signed
  uint64_t pid_namespace = 0;
};

// A container's place on one device.
struct CorePlace {
  uint32_t row;
  uint32_t tenant;
};

// What was written when a process took its seat, and has to stay there while it lives.
struct CoreSignature {
  uint64_t row_key;
  uint64_t tenant_key;
  uint64_t shares;
};

// Opens the file in `node_folder`, or, when that is "", the container's own in one of `own`'s
// folders, or, when it has none, in memory; takes a member's place in it. Opened once per process:
// later calls give the same. False with one clause in `why`. One thread at a time.
bool OpenCoreFile(const char* node_folder, const RegionPlaces& own, CoreFile* file, char* why,
                  size_t why_bytes);

// True where the containers' file is there and can be used, whoever may write to the folder.
bool HasNodeFile(const char* node_folder);

// True while processes of the container live that stand alone with it, in a file of their own.
bool StandsAlone(const RegionPlaces& own);

// Finds or makes the device's row and the container's tenant there, and publishes this process's
// shares, which are the tenant's where that is new. False with one clause in `why`. One thread at a
// time.
bool JoinCoreRow(const CoreFile& file, const char* container, const uint8_t uuid[16],
                 CoreShares shares, uint64_t now_ns, CorePlace* place, char* why, size_t why_bytes);

// A descriptor of the same file for one that the program closed, as daemons do; the number may be
// another file's by now, which nobody may lock or grow. -1: the file is gone. The caller closes it.
int ReopenCoreFile(const CoreFile& file);

// The lowest shares of the tenant's living members (packed), at a system call for each; 0: none of
// them is known to live.
uint64_t LowestShares(const CoreFile& file, CorePlace place);

// What the file says now, of a place that was just taken.
CoreSignature SignatureOf(const CoreFile& file, CorePlace place);

// Writes again what went wrong of that, of this process's record and of the header: nobody else
// would, and who is not seen gets no turn.
void SignAgain(const CoreFile& file, CorePlace place, const CoreSignature& signature);

}  // namespace gpufence
