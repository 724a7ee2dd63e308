// What the programs about overhead share: how much fits below the limit, and the modules they load.
#pragma once

#include <vector>

#include "sim_program.h"

namespace fencetest {

using simtest::kMiB;

// Allocates 2 MiB pieces in the current context until one is refused, gives them back, and returns
// how many MiB fitted: what the container may still hold, exactly.
inline uint64_t RoomMiB() {
  std::vector<CUdeviceptr> pieces;
  CUdeviceptr piece = 0;
  CUresult rc = CUDA_SUCCESS;
  while ((rc = cuMemAlloc_v2(&piece, 2 * kMiB)) == CUDA_SUCCESS) pieces.push_back(piece);
  if (rc != CUDA_ERROR_OUT_OF_MEMORY) simtest::Must(rc, "the last cuMemAlloc_v2");
  for (const CUdeviceptr each : pieces) MUST(cuMemFree_v2(each));
  return pieces.size() * 2;
}

// What is shown as free, which asks for nothing and so sets nothing right.
inline uint64_t FreeMiB() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  MUST(cuMemGetInfo_v2(&free_bytes, &total_bytes));
  return free_bytes / kMiB;
}

// What NVML lists for this process, in MiB; 0 when it is not listed.
inline uint64_t ListedMiB() {
  nvmlDevice_t device = nullptr;
  nvmlProcessInfo_t infos[64];
  unsigned count = 64;
  if (nvmlInit_v2() != NVML_SUCCESS || nvmlDeviceGetHandleByIndex_v2(0, &device) != NVML_SUCCESS ||
      nvmlDeviceGetComputeRunningProcesses_v3(device, &count, infos) != NVML_SUCCESS) {
    fprintf(stderr, "no process list\n");
    exit(1);
  }
  uint64_t bytes = 0;
  for (unsigned i = 0; i < count; ++i) bytes += infos[i].usedGpuMemory;
  return bytes / kMiB;
}

// One kernel without local memory, two with 8 KiB a thread, one with 64 KiB; nothing global.
inline constexpr char kKernels[] = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry plain() { ret; }
.visible .entry deep() { .local .align 16 .b8 depot0[8192]; ret; }
.visible .entry deep_too() { .local .align 16 .b8 depot1[8192]; ret; }
.visible .entry deepest() { .local .align 16 .b8 depot2[65536]; ret; }
)";

// 64 MiB of globals.
inline constexpr char kGlobals[] = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .global .align 16 .b8 table[67108864];
.visible .entry touch() { ret; }
)";

inline CUfunction Function(CUmodule module, const char* name) {
  CUfunction function = nullptr;
  MUST(cuModuleGetFunction(&function, module, name));
  return function;
}

inline CUresult Launch(CUfunction function) {
  return cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr);
}

}  // namespace fencetest
