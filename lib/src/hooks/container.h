// What this process has from its container: where the container's region may be, what an operator
// set for it, and the limits of its other processes. A process without a limit of its own takes
// those over: one that came in by `docker exec` as another user, by cron or ssh knows none of the
// container's variables. Must not know who enforces.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "config/limits.h"
#include "state/identity.h"
#include "state/limits_file.h"
#include "state/region.h"

namespace gpufence {

// Where the container's region may be: the same places for those who join it and those who look on.
// A folder that is named is the only one: a process that went on to another where it cannot use the
// named one would keep a ledger of its own under the same limit. Points into `claims` and `name`.
inline RegionPlaces PlacesOf(const Claims& claims, char name[kContainerNameBytes]) {
  NameContainer(claims.container, name);
  if (claims.state_folder[0] != '\0') {
    return {{claims.state_folder}, name};
  }
  return {{"/run/gpufence", "/dev/shm", "/tmp"}, name};
}

// ---- what was set for the container, and whose word counts ----

// Before this process has a region. True where limits were set, or the file for them made, or where
// another process of the container holds one: this one is to be held though it may claim none.
bool FindSetLimits(const Claims& claims, LimitsFile* set_limits);

// Once there is one. False: the file is damaged.
bool ReadSetLimits(const Claims& claims, const RegionFile& file, LimitsFile* set_limits);

// ---- the other processes of the container ----

// Whether a living process of the container is held to a limit, so that this one is held as well.
bool OthersAreHeld(const RegionFile& file);

// The memory limit that this process holds for its life: `claimed`, or where it claims none the
// lowest among the living. Before it publishes one.
uint64_t LimitAmongOthers(const RegionFile& file, uint32_t row, uint32_t slot, uint64_t claimed);

// The same for the shares of GPU time of each device, which it writes into `limits`.
void TakeSharesOfOthers(const Claims& claims, const DeviceIdentity* devices, DeviceLimits* limits,
                        size_t count);

}  // namespace gpufence
