// The region file of this container: found in one of several places, or made in the first that
// allows it. Must not know limits, slots or ledgers.
#pragma once

#include <stddef.h>
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

}  // namespace gpufence
