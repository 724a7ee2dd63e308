// The smallest resolver that the lazy stubs can work with: one symbol at a time, straight from the
// fake driver. It spoils every argument register on purpose, so a stub that saves too few shows.
// Must not know base/resolve: the forwarding proof holds for rendered code alone.
#include <dlfcn.h>

#include "base/entries.h"

namespace {

// Volatile arithmetic in all vector registers that arguments travel in.
void SpoilVectors() {
#if defined(__x86_64__)
  __asm__ volatile(
      "pxor %%xmm0, %%xmm0\n pxor %%xmm1, %%xmm1\n pxor %%xmm2, %%xmm2\n pxor %%xmm3, %%xmm3\n"
      "pxor %%xmm4, %%xmm4\n pxor %%xmm5, %%xmm5\n pxor %%xmm6, %%xmm6\n pxor %%xmm7, %%xmm7" ::
          : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7");
#else
  __asm__ volatile(
      "movi v0.16b, #0\n movi v1.16b, #0\n movi v2.16b, #0\n movi v3.16b, #0\n"
      "movi v4.16b, #0\n movi v5.16b, #0\n movi v6.16b, #0\n movi v7.16b, #0" ::
          : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7");
#endif
}

}  // namespace

extern "C" void* gpufence_resolve(uint32_t sym);

void* gpufence_resolve(uint32_t sym) {
  const gpufence::SymInfo& info = gpufence::kSymInfo[sym];
  const bool is_cuda = info.library == gpufence::kLibraryCuda;
  void* driver = dlopen(is_cuda ? "libcuda.so.1" : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  void* target = dlsym(driver, info.name);
  gpufence_entry[sym].store(target, std::memory_order_relaxed);
  SpoilVectors();
  return target;
}
