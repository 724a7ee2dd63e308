// A wrapper library loaded behind us that looks for the cuInit behind itself.
// flags: -shared -fPIC
#define _GNU_SOURCE
#include <dlfcn.h>

void* NextCuInit(void) { return dlsym(RTLD_NEXT, "cuInit"); }
void* NextMalloc(void) { return dlsym(RTLD_NEXT, "malloc"); }
