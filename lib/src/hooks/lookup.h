// What a lookup's answer becomes: the driver's address turns into our wrapper of the same function.
// Shared by the dlsym and the cuGetProcAddress hooks. Must not know limits.
#pragma once

#include "symbols.h"

namespace gpufence {

// The answer for a program that looked up `sym` by name and was given `found` by the loader.
// `found` itself when it is neither the driver's nor ours; nullptr stays nullptr.
void* Substitute(Sym sym, void* found);

}  // namespace gpufence
