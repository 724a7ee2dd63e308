// What a process without a limit of its own takes over from the others of its container: one that
// came in by `docker exec` as another user, by cron or ssh knows none of the container's variables.
// Must not know who enforces.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "config/limits.h"
#include "state/region.h"

namespace gpufence {

// Whether a living process of the container is held to a limit, so that this one is held as well.
bool OthersAreHeld(const RegionFile& file);

// The memory limit that this process holds for its life: `claimed`, or where it claims none the
// lowest among the living. Before it publishes one.
uint64_t LimitAmongOthers(const RegionFile& file, uint32_t row, uint32_t slot, uint64_t claimed);

// The same for the shares of GPU time of each device, which it writes into `limits`.
void TakeSharesOfOthers(const Claims& claims, const DeviceIdentity* devices, DeviceLimits* limits,
                        size_t count);

}  // namespace gpufence
