// Uses tests/lookup/odd_driver.c installed as libcuda.so.1. Prints JSON.
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "driver_abi.h"

namespace {

using GetProcAddress = int (*)(const char*, void**, int, unsigned long, int*);

// The name of our export that the lookup answers with.
const char* OwnName(GetProcAddress proc, const char* name, unsigned long flags) {
  void* found = nullptr;
  proc(name, &found, 12000, flags, nullptr);
  Dl_info info{};
  const bool is_ours = found != nullptr && dladdr(found, &info) != 0 && info.dli_fname != nullptr &&
                       strstr(info.dli_fname, "gpufence") != nullptr;
  return is_ours && info.dli_sname != nullptr ? info.dli_sname : "not ours";
}

}  // namespace

int main() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return 3;
  auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  auto brand_new = reinterpret_cast<int (*)(int)>(dlsym(driver, "cuBrandNew"));
  auto proc = reinterpret_cast<GetProcAddress>(dlsym(driver, "cuGetProcAddress_v2"));
  void* alloc = nullptr;
  void* unknown = nullptr;
  errno = ENOTTY;
  proc("cuMemAlloc", &alloc, 12000, 0, nullptr);
  const bool keeps_errno = errno == ENOTTY;
  proc("cuBrandNew", &unknown, 12000, 0, nullptr);
  printf(
      "{\"init\": %d, \"brand_new\": %d, \"absent\": %s, \"alloc\": \"%s\", "
      "\"alloc_works\": %d, \"unknown_untouched\": %s, \"async\": \"%s\", "
      "\"async_per_thread\": \"%s\", \"keeps_errno\": %s}\n",
      init(7), brand_new(41), dlsym(driver, "cuLaunchKernel") == nullptr ? "true" : "false",
      OwnName(proc, "cuMemAlloc", 0),
      reinterpret_cast<int (*)(void*, unsigned long)>(alloc)(driver, 5),
      unknown == reinterpret_cast<void*>(brand_new) ? "true" : "false",
      OwnName(proc, "cuMemAllocAsync", 0), OwnName(proc, "cuMemAllocAsync", 2),
      keeps_errno ? "true" : "false");
  return 0;
}
