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
// it.
template <typename Function>
Function* Find(Function* linked, const char* symbol, const char* base, int version) {
  void* found = nullptr;
  if (way == "linked") return linked;
  if (way == "dlsym") found = dlsym(dlopen("libcuda.so.1", RTLD_NOW), symbol);
  if (way == "address") cuGetProcAddress(base, &found, version, 0);
  if (way == "address_v2" || way == "per_thread") {
    CUdriverProcAddressQueryResult status;
    cuGetProcAddress_v2(base, &found, version, way == "per_thread" ? 2 : 0, &status);
  }
  if (found == nullptr) {
    fprintf(stderr, "%s is not found by %s\n", symbol, way.c_str());
    exit(1);
  }
  return reinterpret_cast<Function*>(found);
}
#define FIND(name, base, version) ways::Find(name, #name, #base, version)

}  // namespace ways
