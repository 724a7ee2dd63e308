// What was measured of a GPU's pauses, kept for whoever comes later: a small file for each GPU,
// driver and user, in the node folder or the container's. Written whole or not at all, and read
// with mistrust: of root and of the own user alone, and only what some GPU may have. Must not know
// how it is measured. tools/gpufence/state/kept_pauses.py reads and writes it as well.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/pauses.h"

namespace gpufence {

inline constexpr uint64_t kKeptPausesMagic = 0x7365737561706667;  // "gfpauses"
inline constexpr uint32_t kKeptPausesVersion = 1;  // with each change here or of GpuPauses

// Whose pauses.
struct PausingGpu {
  uint8_t uuid[16];
  char driver[32];  // its version, as its driver tells it; "" where that is not known
};

struct KeptPauses {
  uint64_t magic;
  uint32_t version;
  uint32_t reserved;
  PausingGpu gpu;
  uint64_t measured_s;  // since 1970
  GpuPauses pauses;
  uint64_t check;  // of all before
};
static_assert(sizeof(GpuPauses) == 32 && sizeof(KeptPauses) == 112);

// Whether a GPU may have them: each between a quarter of the least and four times the most that is
// known of any.
bool ArePlausible(const GpuPauses& pauses);

// The first of the folders (null ends the list, and "" is none) that has them. False: none.
bool ReadKeptPauses(const char* const* folders, const PausingGpu& gpu, GpuPauses* pauses);

// In the first of the folders where that is possible. False: in none; no harm is done.
bool KeepPauses(const char* const* folders, const PausingGpu& gpu, const GpuPauses& pauses,
                uint64_t now_s);

}  // namespace gpufence
