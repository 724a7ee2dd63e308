// Memory that a stream frees goes at the very moment at which the library compares what the driver
// holds with what is charged.
// link: cuda nvml
// flags: -rdynamic -pthread
//
//   late_looks load|alloc  the call during which the library compares: a module is loaded, or
//                          memory is asked for near the limit. Another thread waits for another
//                          stream since before the free: the driver lets the memory go just before
//                          it is asked what the process holds, and that thread goes on only when
//                          the call is over.
//
// Prints {"gone": 1 when the memory went in time, "refused": code of the request for which there is
// no room left, "held": MiB that the driver holds then}.
#include <unistd.h>

#include <atomic>
#include <thread>

#include "raw_symbol.h"
#include "support/fence_program.h"

namespace {

using simtest::kMiB;

constexpr uint64_t kFreedMiB = 192;

enum class Part { kNone, kComparer, kWaiter };
thread_local Part part = Part::kNone;
bool is_armed = false;  // the next comparison is the one that counts
bool is_gone = false;
CUstream frees = nullptr;
CUstream waited_for = nullptr;
std::atomic<bool> are_open[2] = {};  // the same two
std::atomic<bool> is_over{false};

// The driver's own functions, whoever is limited.
template <typename Function>
Function Bare(const char* name, Function) {
  return reinterpret_cast<Function>(bench::RawSymbol("libcuda.so", name));
}
#define BARE(name) Bare(#name, name)

uint64_t DriverUsedMiB() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  MUST(BARE(cuMemGetInfo_v2)(&free_bytes, &total_bytes));
  return (total_bytes - free_bytes) / kMiB;
}

void Hold(void* is_open) {
  while (!*static_cast<std::atomic<bool>*>(is_open)) usleep(100);
}

// The stream gets to the free, and the driver's wait for the other one ends.
void LetGo() {
  const uint64_t before_mib = DriverUsedMiB();
  are_open[0] = true;
  while (BARE(cuStreamQuery)(frees) != CUDA_SUCCESS) usleep(100);
  are_open[1] = true;
  while (DriverUsedMiB() != before_mib - kFreedMiB) usleep(100);
  is_gone = true;
}

void LoadGlobals(CUmodule* module, uint64_t mib) {
  char image[256];
  snprintf(image, sizeof image,
           ".version 7.0\n.target sm_80\n.address_size 64\n"
           ".visible .global .align 16 .b8 table[%llu];\n.visible .entry touch() { ret; }\n",
           static_cast<unsigned long long>(mib * kMiB));
  MUST(cuModuleLoadData(module, image));
}

}  // namespace

extern "C" void gpufence_sim_callback(const char* name) {
  const Part mine = part;
  part = Part::kNone;  // what is called here is none of it
  if (mine == Part::kWaiter && are_open[1]) {
    while (!is_over) usleep(100);
  } else if (mine == Part::kComparer && strcmp(name, "cuModuleLoadData") == 0) {
    is_armed = true;
  } else if (mine == Part::kComparer && is_armed && !is_gone &&
             strcmp(name, "nvmlDeviceGetComputeRunningProcesses_v3") == 0) {
    LetGo();
  }
  part = mine;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  CUcontext context = simtest::UseDevice(0);
  CUcontext other = nullptr;
  MUST(cuCtxCreate_v2(&other, 0, 0));
  MUST(cuCtxSetCurrent(context));
  CUmodule module = nullptr;
  LoadGlobals(&module, 2 * kFreedMiB);  // overhead that could be hidden
  MUST(cuStreamCreate(&frees, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamCreate(&waited_for, CU_STREAM_NON_BLOCKING));
  CUdeviceptr memory = 0;
  MUST(cuMemAlloc_v2(&memory, kFreedMiB * kMiB));
  MUST(cuLaunchHostFunc(frees, Hold, &are_open[0]));
  MUST(cuLaunchHostFunc(waited_for, Hold, &are_open[1]));
  std::thread waiter([&] {
    MUST(cuCtxSetCurrent(context));
    part = Part::kWaiter;
    MUST(cuStreamSynchronize(waited_for));
  });
  usleep(50'000);  // should it not wait by then, the promise holds all the same
  MUST(cuMemFreeAsync(memory, frees));

  MUST(cuCtxSetCurrent(other));  // where nobody waits for the stream
  CUdeviceptr piece = 0;
  if (strcmp(argv[1], "load") == 0) {
    part = Part::kComparer;
    LoadGlobals(&module, 2 * kFreedMiB);
  } else {
    MUST(cuMemAlloc_v2(&piece, (fencetest::FreeMiB() - 4) * kMiB));
    fencetest::Function(module, "touch");  // which may have brought something
    part = Part::kComparer;
    is_armed = true;
    MUST(cuMemAlloc_v2(&piece, 2 * kMiB));
  }
  part = Part::kNone;
  is_over = true;
  waiter.join();

  CUresult rc = CUDA_SUCCESS;
  while (rc == CUDA_SUCCESS) rc = cuMemAlloc_v2(&piece, 2 * kMiB);
  simtest::Facts facts;
  facts.Say("gone", is_gone);
  facts.Code("refused", rc);
  facts.Say("held", DriverUsedMiB());
  return 0;
}
