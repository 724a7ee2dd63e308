// The ways in which a program reaches a function of the driver, by name: what linking gives, dlsym,
// and cuGetProcAddress old, new and per-thread.  Owns nothing; must not know what is then called.
#pragma once

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <string>

#include "driver_abi.h"

namespace ways {

// linked | dlsym | address | address_v2 | per_thread
inline std::string way;

// The function behind `symbol`. `version` is the cuGetProcAddress threshold of `base` that gives
// it, with the flag for per-thread streams where the symbol is of that kind.
template <typename Function>
Function* Find(Function* linked, const char* symbol, const char* base, int version) {
  void* found = nullptr;
  if (way == "linked") return linked;
  if (way == "dlsym") found = dlsym(dlopen("libcuda.so.1", RTLD_NOW), symbol);
  const bool per_thread = std::string(symbol).find("_ptsz") != std::string::npos;
  const cuuint64_t flags = per_thread || way == "per_thread" ? 2 : 0;
  if (way == "address") cuGetProcAddress(base, &found, version, flags);
  if (way == "address_v2" || way == "per_thread") {
    CUdriverProcAddressQueryResult status;
    cuGetProcAddress_v2(base, &found, version, flags, &status);
  }
  if (found == nullptr) {
    fprintf(stderr, "%s is not found by %s\n", symbol, way.c_str());
    exit(1);
  }
  return reinterpret_cast<Function*>(found);
}
#define FIND(name, base, version) ways::Find(name, #name, #base, version)

}  // namespace ways
