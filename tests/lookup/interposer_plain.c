// The same second interposer, finding the real dlsym the way older ones do: with dlsym itself.
// flags: -shared -fPIC
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

typedef void* (*dlsym_fn)(void*, const char*);

void* dlsym(void* handle, const char* name) {
  static dlsym_fn real;
  static int depth;
  if (real == NULL) {
    // Asks whoever stands behind; an answer that leads back here would never end.
    void* libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    if (++depth > 1) return NULL;
    dlsym_fn outer = (dlsym_fn)dlvsym(RTLD_DEFAULT, "dlsym", "GLIBC_2.2.5");
    real = outer != NULL && outer != dlsym ? (dlsym_fn)outer(libc, "dlsym") : NULL;
  }
  return real != NULL ? real(handle, name) : NULL;
}
