// link: cuda
// Holds memory of a GPU and keeps it busy on command, for whoever watches.
//
//   nvml_load DEVICE BYTES     prints "held PID", then obeys lines on stdin until they end:
//     busy MS PERCENT          keeps the GPU busy for that share of so many milliseconds; "done"
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "conformance/gpu.h"

namespace {

constexpr long long kPeriodNs = 10'000'000;

CUfunction LoadSpin() {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  cuModuleLoadData(&module, conformance::kKernels);
  cuModuleGetFunction(&function, module, "gpufence_spin_ns");
  return function;
}

void Spin(CUfunction function, unsigned long long duration_ns) {
  void* arguments[] = {&duration_ns};
  cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr);
  cuCtxSynchronize();
}

void SleepUntil(long long instant_ns) {
  const long long left_ns = instant_ns - conformance::NowNs();
  if (left_ns > 0) usleep(static_cast<unsigned>(left_ns / 1000));
}

// One kernel in each period, as long as its share of the period.
void StayBusy(CUfunction function, long long milliseconds, long long percent) {
  const long long start_ns = conformance::NowNs();
  for (long long at_ns = 0; at_ns < milliseconds * 1'000'000; at_ns += kPeriodNs) {
    if (percent > 0) Spin(function, static_cast<unsigned long long>(kPeriodNs / 100 * percent));
    SleepUntil(start_ns + at_ns + kPeriodNs);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 || cuInit(0) != CUDA_SUCCESS) return 2;
  CUdevice device = 0;
  cuDeviceGet(&device, atoi(argv[1]));
  conformance::UsePrimary(device);
  CUfunction spin = LoadSpin();
  CUdeviceptr block = 0;
  const size_t bytes = strtoull(argv[2], nullptr, 10);
  if (bytes > 0 && cuMemAlloc_v2(&block, bytes) != CUDA_SUCCESS) return 3;
  std::printf("held %d\n", static_cast<int>(getpid()));
  std::fflush(stdout);

  long long milliseconds = 0;
  long long percent = 0;
  while (std::scanf(" busy %lld %lld", &milliseconds, &percent) == 2) {
    StayBusy(spin, milliseconds, percent);
    std::puts("done");
    std::fflush(stdout);
  }
  return 0;
}
