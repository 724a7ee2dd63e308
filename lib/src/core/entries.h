// The entry table: one word per symbol, the address that a call through us jumps to.
// Defined by the rendered entries.cpp; filled by core/resolve.
#pragma once

#include <atomic>

#include "symbols.h"

// Starts out as lazy stubs that call gpufence_resolve and then jump on with all argument registers
// as they came. Later: the driver's function, or a stub that reports "not found".
extern "C" std::atomic<void*> gpufence_entry[gpufence::kSymCount];

namespace gpufence {

// Our export of each symbol: what lookups hand out instead of the driver's address.
extern void* const kWrapper[kSymCount];

}  // namespace gpufence
