// What the assembler stubs of dlsym_entry.S call. Must not be called from anywhere else.
#pragma once

#include <stdint.h>

namespace gpufence {

// Returned in two registers. handled == 0: the stub jumps on to the next dlsym itself.
struct LookupAnswer {
  void* address;
  uintptr_t handled;
};

}  // namespace gpufence

extern "C" {

// dlsym(handle, name) as asked by the code at `caller`.
gpufence::LookupAnswer gpufence_filter_dlsym(void* handle, const char* name, const void* caller);

// dlvsym(handle, name, version) as asked by the code at `caller`. The driver's symbols carry no
// version, so nearly all answers are nullptr.
gpufence::LookupAnswer gpufence_filter_dlvsym(void* handle, const char* name, const char* version,
                                              const void* caller);
}
