// A driver from the future and from a bad day: a name nobody knows, and a constructor that looks
// itself up and calls itself while it is still being opened.
// flags: -shared -fPIC -Wl,-soname,libcuda.so.1
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

typedef int (*init_fn)(unsigned);

int cuInit(unsigned flags) { return flags == 7 ? 77 : 0; }
int cuBrandNew(int value) { return value + 1; }
static int Hidden(void* pointer, unsigned long bytes) {
  return pointer != NULL && bytes == 5 ? 55 : 0;
}

// Answers with addresses that are no exports, as a later driver might.
int cuMemAlloc_v2(void* pointer, unsigned long bytes) { return Hidden(pointer, bytes); }
int cuMemAllocAsync(void* pointer, unsigned long bytes) { return Hidden(pointer, bytes); }
int cuMemAllocAsync_ptsz(void* pointer, unsigned long bytes) { return Hidden(pointer, bytes); }
int cuGetProcAddress_v2(const char* name, void** pfn, int version, unsigned long flags,
                        int* status) {
  (void)version;
  (void)flags;
  if (status != NULL) *status = 0;
  *pfn = strncmp(name, "cuMemAlloc", 10) == 0 ? (void*)Hidden : (void*)cuBrandNew;
  return 0;
}

__attribute__((constructor)) static void LookAtMyself(void) {
  init_fn init = (init_fn)dlsym(RTLD_DEFAULT, "cuInit");
  if (init != NULL) init(0);
}
