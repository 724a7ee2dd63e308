// link: cuda nvml
// flags: -pthread
// Processes and threads that fill and free a container's memory at once, and one that watches them.
//
//   memory_storm work MS THREADS (modules|plain)
//                                  contexts and allocations at random, and modules; {"granted",
//                                  "refused", "failed": calls with any other code}
//   memory_storm watch             until stdin ends: {"most": the most that was ever in use on the
//                                  device, in MiB, "looks"}
#include <poll.h>
#include <time.h>

#include <atomic>
#include <thread>

#include "support/fence_program.h"

namespace {

using namespace fencetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

std::atomic<uint64_t> granted{0};
std::atomic<uint64_t> refused{0};
std::atomic<uint64_t> failed{0};

uint64_t NowMs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1000000;
}

bool Count(CUresult rc) {
  (rc == CUDA_SUCCESS ? granted : rc == CUDA_ERROR_OUT_OF_MEMORY ? refused : failed).fetch_add(1);
  return rc == CUDA_SUCCESS;
}

// Sizes from 512 bytes to 64 MiB, as many small as large ones.
size_t SizeOf(unsigned draw) { return size_t{512} << (draw % 18); }

void Allocate(CUdeviceptr* place, unsigned draw) {
  if (*place != 0) {
    MUST(cuMemFree_v2(*place));
    *place = 0;
  }
  CUdeviceptr address = 0;
  if (Count(cuMemAlloc_v2(&address, SizeOf(draw)))) *place = address;
}

void LoadAndUnload() {
  CUmodule module = nullptr;
  if (Count(cuModuleLoadData(&module, kGlobals))) MUST(cuModuleUnload(module));
}

void CreateAndDestroy() {
  CUcontext context = nullptr;
  if (!Count(cuCtxCreate_v2(&context, 0, 0))) return;
  CUdeviceptr left_to_the_context = 0;
  Count(cuMemAlloc_v2(&left_to_the_context, 4 * kMiB));
  MUST(cuCtxDestroy_v2(context));
}

void Work(CUcontext context, unsigned seed, uint64_t end_ms, bool with_modules) {
  CUdeviceptr places[32] = {};
  MUST(cuCtxSetCurrent(context));
  while (NowMs() < end_ms) {
    const auto draw = static_cast<unsigned>(rand_r(&seed));
    if (draw % 64 == 0 && with_modules) {
      LoadAndUnload();
    } else if (draw % 64 == 1) {
      CreateAndDestroy();
      MUST(cuCtxSetCurrent(context));
    } else {
      Allocate(&places[draw / 64 % 32], draw / 2048);
    }
  }
  for (const CUdeviceptr place : places) {
    if (place != 0) MUST(cuMemFree_v2(place));
  }
}

int Storm(uint64_t run_ms, unsigned thread_count, bool with_modules) {
  MUST(cuInit(0));
  CUcontext context = nullptr;
  const uint64_t end_ms = NowMs() + run_ms;
  while (cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS) {
    if (NowMs() > end_ms) break;  // siblings hold it all, which is theirs to do
    std::this_thread::yield();
  }
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < thread_count && context != nullptr; ++i) {
    threads.emplace_back(Work, context, static_cast<unsigned>(NowMs()) + i * 7919, end_ms,
                         with_modules);
  }
  for (std::thread& each : threads) each.join();
  simtest::Facts facts;
  facts.Say("granted", granted.load());
  facts.Say("refused", refused.load());
  facts.Say("failed", failed.load());
  return 0;
}

// One figure for the whole device: a process list is read entry by entry while they change.
uint64_t UsedMiB() {
  nvmlDevice_t device = nullptr;
  nvmlMemory_v2_t memory = {};
  memory.version = static_cast<unsigned>(sizeof memory) | 2u << 24;
  if (nvmlInit_v2() != NVML_SUCCESS || nvmlDeviceGetHandleByIndex_v2(0, &device) != NVML_SUCCESS ||
      nvmlDeviceGetMemoryInfo_v2(device, &memory) != NVML_SUCCESS) {
    fprintf(stderr, "no memory info\n");
    exit(1);
  }
  return memory.used / kMiB;
}

int Watch() {
  uint64_t most = 0;
  uint64_t looks = 0;
  printf("watching\n");
  fflush(stdout);
  pollfd input{0, POLLIN, 0};
  while (poll(&input, 1, 0) == 0) {
    const uint64_t now = UsedMiB();
    most = now > most ? now : most;
    ++looks;
  }
  simtest::Facts facts;
  facts.Say("most", most);
  facts.Say("looks", looks);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 5 && strcmp(argv[1], "work") == 0) {
    return Storm(strtoull(argv[2], nullptr, 10), static_cast<unsigned>(atoi(argv[3])),
                 strcmp(argv[4], "modules") == 0);
  }
  if (argc == 2 && strcmp(argv[1], "watch") == 0) return Watch();
  return 2;
}
