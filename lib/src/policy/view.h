// What memory queries answer inside a limit: a GPU of that size. Pure arithmetic; must not know who
// asks, nor through which library.
#pragma once

#include <stdint.h>

namespace gpufence {

// Fields always agree: used + free <= total, and reserved is what is left of it.
struct MemoryView {
  uint64_t total_bytes;
  uint64_t used_bytes;
  uint64_t free_bytes;
  uint64_t reserved_bytes;  // of the total, but neither used nor free: taken by others, or withheld
};

// What the container holds and may hold.
struct Held {
  uint64_t limit_bytes;
  uint64_t used_bytes;
  bool is_oversold;
};

// `driver_*` is the driver's own answer for the whole GPU.
//
// total = min(limit, total); used = the container's, at most total, since a limit that was lowered
// may lie below it; free = what is left of the limit, at most what the driver has free. Without a
// limit (UINT64_MAX) total and free are the driver's own. Where memory is oversold the driver's
// figures bound nothing: total = limit, free = what is left of it.
MemoryView ViewMemory(const Held& held, uint64_t driver_total_bytes, uint64_t driver_free_bytes);

}  // namespace gpufence
