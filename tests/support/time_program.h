// What the programs about simulated time share: a context, kernels of known durations, events, and
// facts printed as one JSON object.
#pragma once

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver_abi.h"

namespace timing {

inline constexpr char kKernels[] =
#include "spin_kernel.h"
    R"(
.visible .entry named_150us() { ret; }
.visible .entry plain() { ret; }
.visible .entry many(.param .u32 a, .param .align 8 .b8 b[24], .param .f64 c) { ret; }
.visible .global .align 4 .b8 bytes[4096];
)";

inline constexpr unsigned long long kUs = 1'000;
inline constexpr unsigned long long kMs = 1'000'000;

// Blocks: no two such kernels can run side by side, on the largest simulated GPU either, and few
// enough that next to no pause is in front of them.
inline constexpr unsigned kWholeGpu = 1'024;

// Ends the program when a call that the test depends on fails.
inline void Must(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "%s: %d\n", what, static_cast<int>(result));
  exit(1);
}
#define MUST(call) timing::Must(call, #call)

// Prints {"name": value, ...}; closes the object when it goes.
class Facts {
 public:
  Facts() { printf("{"); }
  ~Facts() { printf("}\n"); }
  void Say(const char* name, double value) {
    printf("%s\"%s\": %.17g", separator_, name, value);
    separator_ = ", ";
    fflush(stdout);  // a program that dies has still told what it had learned
  }
  void Code(const char* name, CUresult result) { Say(name, static_cast<double>(result)); }

 private:
  const char* separator_ = "";
};

struct Gpu {
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction spin = nullptr;

  explicit Gpu(unsigned context_flags = 0, int ordinal = 0) {
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, ordinal));
    MUST(cuCtxCreate_v2(&context, context_flags, device));
    MUST(cuModuleLoadData(&module, kKernels));
    MUST(cuModuleGetFunction(&spin, module, "gpufence_spin_ns"));
  }

  CUfunction Function(const char* name) const {
    CUfunction function = nullptr;
    MUST(cuModuleGetFunction(&function, module, name));
    return function;
  }

  CUresult Spin(CUstream stream, unsigned long long ns, unsigned blocks = 1) const {
    void* params[] = {&ns};
    return cuLaunchKernel(spin, blocks, 1, 1, 1, 1, 1, 0, stream, params, nullptr);
  }
};

// The host is busy until then, by microseconds of a clock. Where time is virtual, to read the clock
// is a change of threads for each 25 ns: all but the last microsecond passes at a call for each.
inline void BusyUntil(double (*now_us)(), double until_us) {
  for (double at_us = now_us(); at_us < until_us; at_us = now_us()) {
    if (until_us - at_us > 1) sched_yield();
  }
}

inline CUstream NewStream(unsigned flags = CU_STREAM_NON_BLOCKING) {
  CUstream stream = nullptr;
  MUST(cuStreamCreate(&stream, flags));
  return stream;
}

inline CUevent NewEvent(unsigned flags = 0) {
  CUevent event = nullptr;
  MUST(cuEventCreate(&event, flags));
  return event;
}

inline CUevent Mark(CUstream stream) {
  CUevent event = NewEvent();
  MUST(cuEventRecord(event, stream));
  return event;
}

// Microseconds between two events, waited for. Exact to a nanosecond up to 16 ms.
inline double ElapsedUs(CUevent start, CUevent end) {
  float milliseconds = 0;
  MUST(cuEventSynchronize(end));
  MUST(cuEventElapsedTime(&milliseconds, start, end));
  return milliseconds * 1e3;
}

}  // namespace timing
