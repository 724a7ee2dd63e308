// Makes our own exported names fit the configured driver: what it lacks cannot be looked up.
//
// The file on disk carries the names of one driver (or of the newest headers).  An older driver is
// simulated by turning the symbol table entries of later names into undefined references, in this
// process's copy of the file, when it is loaded: dlsym, dlvsym, RTLD_NEXT, lazy binding and dladdr
// then answer as they would for the older file.  What the loader binds before any code of ours runs
// (a program linked with -z now) still sees every name of the file.
// Must not know what a symbol does.
#pragma once

#include <stdint.h>

namespace sim {

// The address of this library's export, or nullptr when the file or the configured driver has no
// such name.  Thread-safe once the library is loaded.
void* ExportAddress(uint16_t sym);

}  // namespace sim
