// The entry table: one word per symbol, the address that a call through us jumps to.
// Defined by the rendered entries.cpp; filled by base/resolve.
#pragma once

#include <atomic>

#include "symbols.h"

// Starts out as lazy stubs that call gpufence_resolve and then jump on with all argument registers
// as they came. Later: the driver's function, or a stub that reports "not found".
// Hidden, so that an entry is one addressing mode away and a call through it one instruction.
extern "C" [[gnu::visibility("hidden")]] std::atomic<void*> gpufence_entry[gpufence::kSymCount];

namespace gpufence {

// The stub that each entry starts out with.
extern void* const kLazyStub[kSymCount];

// Our export of each symbol: what lookups hand out instead of the driver's address.
extern void* const kWrapper[kSymCount];

}  // namespace gpufence
