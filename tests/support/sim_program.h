// What the programs about the machine and its memory share: facts printed as one JSON object, a
// context, and how much of the device is in use.
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver_abi.h"

namespace simtest {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;

// Ends the program when a call that the test depends on fails.
inline void Must(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "%s: %d\n", what, static_cast<int>(result));
  exit(1);
}
#define MUST(call) simtest::Must(call, #call)

// Prints {"name": number, ...}; closes the object when it goes.
class Facts {
 public:
  Facts() { printf("{"); }
  ~Facts() {
    printf("}\n");
    fflush(stdout);
  }
  void Say(const char* name, uint64_t value) {
    printf("%s\"%s\": %llu", separator_, name, static_cast<unsigned long long>(value));
    separator_ = ", ";
  }
  void Code(const char* name, CUresult result) { Say(name, static_cast<uint64_t>(result)); }

 private:
  const char* separator_ = "";
};

// A context in which the 32-bit calls work too.
inline CUcontext UseDeviceIn32Bits(CUdevice device) {
  CUcontext context = nullptr;
  MUST(cuInit(0));
  MUST(cuCtxCreate(&context, 0, device));
  return context;
}

inline CUcontext UseDevice(CUdevice device) {
  CUcontext context = nullptr;
  MUST(cuInit(0));
  MUST(cuCtxCreate_v2(&context, 0, device));
  return context;
}

// Bytes of the current device that are not free, whoever holds them.
inline uint64_t UsedBytes() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  MUST(cuMemGetInfo_v2(&free_bytes, &total_bytes));
  return total_bytes - free_bytes;
}

// Waits for a line of stdin, which is how a test says "go on"; false at its end.
inline bool AwaitLine() {
  char line[64];
  return fgets(line, sizeof(line), stdin) != nullptr;
}

}  // namespace simtest
