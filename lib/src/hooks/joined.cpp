#include "hooks/joined.h"

#include <stdio.h>

#include "base/log.h"
#include "hooks/region_places.h"
#include "policy/share.h"
#include "state/core_region.h"
#include "state/onlook.h"

namespace gpufence {

bool OthersAreHeld(const RegionFile& file) {
  const uint32_t end = file.region->header.high_slot.load(std::memory_order_acquire);
  for (uint32_t row = 0; row < kMaxDevices; ++row) {
    if (file.region->rows[row].key.load(std::memory_order_acquire) == 0) break;
    for (uint32_t slot = 0; slot < end && slot < kMaxProcesses; ++slot) {
      // Whoever is fenced publishes a limit on each of its devices, perhaps that it has none.
      const uint64_t limit = file.region->limits[row][slot].load(std::memory_order_relaxed);
      if (limit != 0 && IsAlive(file, slot)) return true;
    }
  }
  return false;
}

uint64_t LimitAmongOthers(const RegionFile& file, uint32_t row, uint32_t slot, uint64_t claimed) {
  if (claimed != kUnlimitedBytes || file.fd < 0) return claimed;
  ReclaimDeadStricter(file, slot, row);
  const uint64_t lowest = LowestLimit(file.region, row);
  if (lowest != kNoLimit) {
    GPUFENCE_LOG(kInfo, "the memory limit of the container's other programs holds: %llu bytes",
                 static_cast<unsigned long long>(lowest));
  }
  return lowest;
}

void TakeSharesOfOthers(const Claims& claims, const DeviceIdentity* devices, DeviceLimits* limits,
                        size_t count) {
  if (claims.process_scope) return;
  char name[kContainerNameBytes];
  const RegionPlaces places = PlacesOf(claims, name);
  for (size_t i = 0; i < count; ++i) {
    if (limits[i].core_millipercent != 0) continue;
    const CoreShares shares = LookAtShares(places, devices[i].uuid);
    if (shares.hard == 0 || shares.hard >= kWholeShare) continue;
    limits[i].core_millipercent = shares.hard;
    limits[i].core_soft_millipercent = shares.soft > shares.hard ? shares.soft : 0;
    snprintf(limits[i].core_source, sizeof limits[i].core_source,
             "of the container's other programs");
  }
}

}  // namespace gpufence
