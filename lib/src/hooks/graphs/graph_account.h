// What this process's graph memory is charged, per device. Must not know graphs or the driver.
#pragma once

#include <stdint.h>

#include "base/spin.h"

namespace gpufence {

// The driver takes graph memory in blocks of this size, at a launch or an upload, and keeps it
// until a trim.
inline constexpr uint64_t kGraphBlockBytes = uint64_t{32} << 20;

// The charge is what the driver says that it holds, plus, during a launch, all that the launch
// could make it take: its executable's whole need, since nobody can tell from outside which idle
// blocks it would take again. (Measured: of two executables that need 600 MiB each, the second may
// take nothing, a part, or everything, after failed launches even beside idle blocks that would
// do.)
//
// One kind of launch takes nothing for certain: the same executable in the same stream, with no
// other launch, upload or trim since. That keeps a graph that runs again and again from asking for
// twice its memory.
struct GraphAccount {
  SpinLock lock;
  uint32_t flying;   // launches under way
  uint32_t version;  // changes with every one, and with every trim
  uint64_t charged_bytes;
  uint64_t riding_bytes;  // need of the launch under way that asked for nothing
  uint64_t last_exec;     // of the last launch, when nothing else happened since; or 0
  uint64_t last_stream;
};

}  // namespace gpufence
