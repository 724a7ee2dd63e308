// What was measured of a GPU's pauses, kept for whoever comes later: a small file for each GPU,
// driver and user, in the node folder or the container's. Written whole or not at all, and read
// with mistrust: of root and of the own user alone, and only what some GPU may have. Must not know
// how it is measured. tools/gpufence/state/kept_pauses.py reads and writes it as well.
#pragma once

#include <stdint.h>

#include "base/pauses.h"
#include "shared_layouts.h"

namespace gpufence {

// Whether a GPU may have them: each between a quarter of the least and four times the most that is
// known of any.
bool ArePlausible(const GpuPauses& pauses);

// The first of the folders (null ends the list, and "" is none) that has them. False: none.
bool ReadKeptPauses(const char* const* folders, const PausingGpu& gpu, GpuPauses* pauses);

// In the first of the folders where that is possible. False: in none; no harm is done.
bool KeepPauses(const char* const* folders, const PausingGpu& gpu, const GpuPauses& pauses,
                uint64_t now_s);

}  // namespace gpufence
