// What this process's graph memory is charged, per device. Must not know graphs or the driver.
#pragma once

#include <stdint.h>

#include "core/spin.h"

namespace gpufence {

// The driver keeps graph memory in blocks of this size, reserved at a launch and kept until a trim.
inline constexpr uint64_t kGraphBlockBytes = uint64_t{32} << 20;

// Executables take turns with the same memory until two of them run at once. While the charge covers
// what all of those launched since the last trim need together, no launch of them can make the
// driver take more; otherwise each launch brings its own need along until the driver has spoken.
struct GraphAccount {
  SpinLock lock;
  uint32_t flying;   // launches under way
  uint32_t version;  // changes with every one, and with every trim
  uint32_t trims;
  bool unsettled;  // the charge may differ from what the driver holds
  uint64_t charged_bytes;
  uint64_t backed_bytes;  // needed by the executables launched since the last trim
};

}  // namespace gpufence
