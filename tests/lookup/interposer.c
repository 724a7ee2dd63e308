// A second library that hooks dlsym, as profilers and GL shims do; counts in interposed_calls.
// flags: -shared -fPIC
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

typedef void* (*dlsym_fn)(void*, const char*);

int interposed_calls;

void* dlsym(void* handle, const char* name) {
  static dlsym_fn real;
  if (real == NULL) real = (dlsym_fn)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
  if (real == NULL) return NULL;
  ++interposed_calls;
  return real(handle, name);
}
