// Where the container's region may be: the same places for those who join it and those who look on.
#pragma once

#include "config/limits.h"
#include "state/identity.h"
#include "state/region.h"

namespace gpufence {

// A folder that is named is the only one: a process that went on to another where it cannot use the
// named one would keep a ledger of its own under the same limit. Points into `claims` and `name`.
inline RegionPlaces PlacesOf(const Claims& claims, char name[kContainerNameBytes]) {
  NameContainer(claims.container, name);
  if (claims.state_folder[0] != '\0') {
    return {{claims.state_folder}, name};
  }
  return {{"/run/gpufence", "/dev/shm", "/tmp"}, name};
}

}  // namespace gpufence
