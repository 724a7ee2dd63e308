// Uses tests/programs/odd_driver.c installed as libcuda.so.1. Prints JSON.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "driver_abi.h"

int main() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return 3;
  auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  auto brand_new = reinterpret_cast<int (*)(int)>(dlsym(driver, "cuBrandNew"));
  auto proc = reinterpret_cast<int (*)(const char*, void**, int, unsigned long, int*)>(
      dlsym(driver, "cuGetProcAddress_v2"));
  void* alloc = nullptr;
  void* unknown = nullptr;
  proc("cuMemAlloc", &alloc, 12000, 0, nullptr);
  proc("cuBrandNew", &unknown, 12000, 0, nullptr);
  Dl_info info{};
  dladdr(alloc, &info);
  printf(
      "{\"init\": %d, \"brand_new\": %d, \"absent\": %s, \"alloc_is_ours\": %s, "
      "\"alloc_works\": %d, \"unknown_untouched\": %s}\n",
      init(7), brand_new(41), dlsym(driver, "cuLaunchKernel") == nullptr ? "true" : "false",
      info.dli_fname != nullptr && strstr(info.dli_fname, "gpufence") != nullptr ? "true" : "false",
      reinterpret_cast<int (*)(void*, unsigned long)>(alloc)(driver, 5),
      unknown == reinterpret_cast<void*>(brand_new) ? "true" : "false");
  return 0;
}
