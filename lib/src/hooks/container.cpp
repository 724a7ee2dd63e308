#include "hooks/container.h"

#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "policy/share.h"
#include "state/region.h"
#include "state/time_file.h"

namespace gpufence {
namespace {

// Whose word counts beside root's: this process's own user's, who could as well change the limits
// that it starts with, and only where that user made the container's region. Any other user's is
// none: a folder for everybody is one where anybody may put a file of any name.
uid_t TrustedUser(uid_t region_owner) { return region_owner == geteuid() ? region_owner : 0; }

}  // namespace

bool FindSetLimits(const Claims& claims, LimitsFile* set_limits) {
  if (claims.process_scope) return false;
  char name[kContainerNameBytes];
  const RegionPlaces places = PlacesOf(claims, name);
  const char* folder = FolderOf(places);
  uid_t owner = geteuid();
  bool others_are_held = false;
  RegionFile file;
  if (FindRegion(places, &file)) {
    folder = places.folders[file.place];
    owner = OwnerOf(file);
    others_are_held = OthersAreHeld(file);
    CloseRegion(&file);
  }
  if (folder == nullptr) return false;
  set_limits->Look(folder, name, TrustedUser(owner));
  const LimitsFound found = set_limits->Read();
  return found == LimitsFound::kRead || found == LimitsFound::kDamaged || others_are_held;
}

bool ReadSetLimits(const Claims& claims, const RegionFile& file, LimitsFile* set_limits) {
  if (claims.process_scope) return true;
  char name[kContainerNameBytes];
  const RegionPlaces places = PlacesOf(claims, name);
  set_limits->Look(places.folders[file.place], name, TrustedUser(OwnerOf(file)));
  const LimitsFound found = set_limits->Read();
  if (found == LimitsFound::kDamaged) return false;
  if (found == LimitsFound::kForeign) {
    GPUFENCE_LOG(
        kWarn,
        "the container's limits file is ignored: it can be written by users other than root "
        "and the owner of the container's region. Remove it, or set limits as root");
  }
  set_limits->Announce(file.region);
  return true;
}

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
    GPUFENCE_LOG(
        kInfo,
        "this program follows the memory limit of the container's other programs: %llu bytes",
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
