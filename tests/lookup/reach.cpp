// link: cuda
// flags: -rdynamic
// Which object answers, for every way in which a program reaches cuInit and friends.
// Prints {"way": "object file name" | null}.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "driver_abi.h"

static bool first = true;

static const char* ObjectOf(const void* address) {
  Dl_info info;
  if (address == nullptr || dladdr(address, &info) == 0) return nullptr;
  const char* slash = strrchr(info.dli_fname, '/');
  return slash != nullptr ? slash + 1 : info.dli_fname;
}

static void Report(const char* way, const void* address) {
  const char* object = ObjectOf(address);
  printf("%s\"%s\": ", first ? "{" : ", ", way);
  first = false;
  printf(object != nullptr ? "\"%s\"" : "null%s", object != nullptr ? object : "");
}

static void* Proc(void* entry, const char* name, int version, cuuint64_t flags) {
  void* found = nullptr;
  auto* call = reinterpret_cast<decltype(&cuGetProcAddress)>(entry);
  return call(name, &found, version, flags) == CUDA_SUCCESS ? found : nullptr;
}

int main(int argc, char** argv) {
  const char* path = argc > 1 ? argv[1] : "libcuda.so.1";
  int version = 0;
  cuDriverGetVersion(&version);  // the linked way: resolves through the global scope
  Report("linked", reinterpret_cast<const void*>(&cuDriverGetVersion));

  void* soname = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  Report("dlsym by soname", dlsym(soname, "cuInit"));
  void* absolute = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  Report("dlsym by path", dlsym(absolute, "cuInit"));
  Report("dlsym of v2", dlsym(soname, "cuMemAlloc_v2"));
  Report("dlsym of v1", dlsym(soname, "cuMemAlloc"));
  Report("dlsym per thread", dlsym(soname, "cuLaunchKernel_ptsz"));
  Report("dlsym RTLD_DEFAULT", dlsym(RTLD_DEFAULT, "cuInit"));
  Report("dlsym RTLD_NEXT", dlsym(RTLD_NEXT, "cuInit"));
  Report("dlsym of the program", dlsym(dlopen(nullptr, RTLD_NOW), "cuInit"));
  Report("dlsym of another namespace", dlsym(dlmopen(LM_ID_NEWLM, path, RTLD_NOW), "cuInit"));
  Report("dlvsym", dlvsym(soname, "cuInit", "GLIBC_2.2.5"));
  Report("dlsym unknown", dlsym(soname, "cuNoSuchFunction"));

  void* old_entry = dlsym(soname, "cuGetProcAddress");
  Report("cuGetProcAddress", Proc(old_entry, "cuMemAlloc", 12000, 0));
  Report("cuGetProcAddress v1", Proc(old_entry, "cuMemAlloc", 2000, 0));
  Report("cuGetProcAddress per thread", Proc(old_entry, "cuLaunchKernel", 12000, 2));
  Report("cuGetProcAddress of itself", Proc(old_entry, "cuGetProcAddress", 12000, 0));
  void* by_linked = nullptr;
  cuGetProcAddress_v2("cuMemAlloc", &by_linked, 12000, 0, nullptr);
  Report("cuGetProcAddress_v2", by_linked);

  void* libc = dlopen("libc.so.6", RTLD_NOW);
  using Lookup = void* (*)(void*, const char*);
  auto libc_dlsym = reinterpret_cast<Lookup>(dlsym(libc, "dlsym"));
  Report("dlsym found by dlsym", libc_dlsym != nullptr ? libc_dlsym(soname, "cuInit") : nullptr);
  printf("}\n");
  return 0;
}
