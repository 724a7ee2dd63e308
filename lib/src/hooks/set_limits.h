// What was set for this process's container: looked for where its region is or would be, and whose
// word counts.
// Must not know what is done with it.
#pragma once

#include "config/limits.h"
#include "state/limits_file.h"

namespace gpufence {

// Before this process has a region. True where limits were set, or the file for them made, or where
// another process of the container holds one: this one is to be held though it may claim none.
bool FindSetLimits(const Claims& claims, LimitsFile* set_limits);

// Once there is one. False: the file is damaged.
bool ReadSetLimits(const Claims& claims, const RegionFile& file, LimitsFile* set_limits);

}  // namespace gpufence
