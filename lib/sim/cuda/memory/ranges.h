// The address map: which range of device-visible memory an address belongs to.
//
// Owns the sorted table.  Must not know how ranges come to be.  DriverLock held throughout.
#pragma once

#include "cuda/memory/memory.h"

namespace sim::ranges {

// Adds a range, which must overlap none, gives it a buffer id and returns where it is kept; nullptr
// when memory is exhausted.
memory::Range* Add(const memory::Range& range);

// Forgets a range that Add or FindRange returned.
void Remove(memory::Range* range);

// The first range that begins at or behind an address, or nullptr.
memory::Range* FirstFrom(uintptr_t address);

// Whether any range overlaps [address, address+bytes).
bool Overlaps(uintptr_t address, size_t bytes);

}  // namespace sim::ranges
