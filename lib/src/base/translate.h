// Driver address -> symbol, so that a lookup's answer can be exchanged for our wrapper of that
// exact function. Identity decides, never a name: version and per-thread flavour are then right by
// construction. Must not know what a wrapper does.
#pragma once

#include "symbols.h"

namespace gpufence {

// Records that the driver's `sym` lives at `address`. Idempotent, lock-free; any thread.
void RememberAddress(const void* address, Sym sym);

// The symbol at exactly this address, or kNoSym.
Sym SymAt(const void* address);

}  // namespace gpufence
