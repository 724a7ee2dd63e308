#include "hooks/set_limits.h"

#include "core/log.h"
#include "hooks/region_places.h"

namespace gpufence {

bool FindSetLimits(const Claims& claims, LimitsFile* set_limits) {
  if (claims.process_scope) return false;
  char name[kContainerNameBytes];
  const RegionPlaces places = PlacesOf(claims, name);
  set_limits->Look(places, OwnerOfRegion(places));
  const LimitsFound found = set_limits->Read();
  return found == LimitsFound::kRead || found == LimitsFound::kDamaged;
}

bool ReadSetLimits(const Claims& claims, const RegionFile& file, LimitsFile* set_limits) {
  if (claims.process_scope) return true;
  char name[kContainerNameBytes];
  set_limits->Look(PlacesOf(claims, name), OwnerOf(file));
  const LimitsFound found = set_limits->Read();
  if (found == LimitsFound::kDamaged) return false;
  if (found == LimitsFound::kForeign) {
    GPUFENCE_LOG(kWarn,
                 "the container's limits file is ignored: others than its owner and root can write "
                 "to it. Remove it");
  }
  set_limits->Announce(file.region);
  return true;
}

}  // namespace gpufence
