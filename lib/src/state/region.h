// The region of this container: its file, found in one of several places or made in the first that
// allows it, and what whoever mapped it sees of it without a slot: living processes only, nothing
// changed. Must not know what a request costs, nor what is shown to whom.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "state/shared_file.h"
#include "state/slots.h"

namespace gpufence {

// Where to look, in order, and under which name. Texts are the caller's.
struct RegionPlaces {
  static constexpr size_t kMost = 4;
  const char* folders[kMost];  // nullptr ends the list early
  const char* container;       // [A-Za-z0-9._-]{1,128}; see state/identity.h
};

// A file of the container beside its region. The root folder, under whose lock it is made, is what
// every process of the container can open, whatever its uid.
SharedFilePlaces InPlaces(const RegionPlaces& places, const char* file_name);

// Maps the region; true on success. On failure `why` holds one clause a person can act on, and
// errno its cause. One thread at a time. In a forked child it first lets go of what the parent had
// open.
bool OpenRegion(const RegionPlaces& places, RegionFile* file, char* why, size_t why_bytes);

// A new descriptor of the region that OpenRegion opened, for a process whose own was closed behind
// our back; -1 when its name leads elsewhere by now. The caller closes it.
int ReopenRegion(const RegionFile& file);

// Whose the region is.
uid_t OwnerOf(const RegionFile& file);

// The folder where it would be made now; null: there is none.
const char* FolderOf(const RegionPlaces& places);

// Maps the region read-only where there is one, and makes nothing: for onlookers.
bool FindRegion(const RegionPlaces& places, RegionFile* file);

// Lets go of what FindRegion mapped.
void CloseRegion(RegionFile* file);

// A region in memory that only this process sees.
bool OpenPrivateRegion(RegionFile* file);

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
