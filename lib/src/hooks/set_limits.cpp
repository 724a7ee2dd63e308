#include "hooks/set_limits.h"

#include <unistd.h>

#include "base/log.h"
#include "hooks/joined.h"
#include "hooks/region_places.h"

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
    GPUFENCE_LOG(kWarn,
                 "the container's limits file is ignored: others than root and this user, who must "
                 "own the container's region, can write to it. Remove it, or set limits as root");
  }
  set_limits->Announce(file.region);
  return true;
}

}  // namespace gpufence
