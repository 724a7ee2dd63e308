// Finding the real functions: the C library's dlsym behind every interposer, and the driver
// libraries, opened at the first use and never before. And the way back, from an address of the
// driver to its symbol. Must not know what a wrapper does.
// No lock anywhere: two threads may bind a library at once, because dlopen is safe by itself and
// filling the tables twice writes the same words. A lock here could be held by a thread that waits
// for the loader while the loader runs a constructor that waits for us.
#pragma once

#include <stdint.h>

#include "base/elf.h"
#include "symbols.h"

namespace gpufence {

using DlsymFn = void* (*)(void* handle, const char* name);
using DlvsymFn = void* (*)(void* handle, const char* name, const char* version);

// The next dlsym / dlvsym after ours in load order: the C library's, or another interposer's.
DlsymFn RealDlsym();
DlvsymFn RealDlvsym();

// True when `address` belongs to this library.
bool IsOwn(const void* address);

// True when `address` belongs to a driver library that is bound. No lock, no system call.
bool IsDriverCode(const void* address);

// Fills the tables from a driver library that is already loaded; true when `object` is one.
bool BindLoaded(const LoadedObject& object);

// True when the library of `sym` is loaded (it is bound then) and exports it. Never loads anything.
bool DriverHas(Sym sym);

// Driver address -> symbol, so that a lookup's answer can be exchanged for our wrapper of that
// exact function. Identity decides, never a name: version and per-thread flavour are then right by
// construction. The symbol at exactly this address, or kNoSym.
Sym SymAt(const void* address);

}  // namespace gpufence

// The next hops of the assembler stubs in hooks/lookup/dlsym_entry.S; null until bound.
extern "C" {
extern gpufence::DlsymFn gpufence_next_dlsym;
extern gpufence::DlvsymFn gpufence_next_dlvsym;

// Called by the lazy stubs at the first call of a symbol: opens and binds its library. Returns the
// address to jump to: the driver's function, or a stub that reports "not found".
void* gpufence_resolve(uint32_t sym);
}
