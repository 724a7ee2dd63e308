// What the library measures of a GPU's pauses, by its own code: of a GPU as well as of the
// simulated one.
// link: cuda
// sources: device/calibration.cpp base/forked.cpp
//
//   calibration [PROCESSORS] [sleeps]
//
// PROCESSORS: as if the GPU had so many; 0 or nothing: as it has. sleeps: waits in the context give
// the processor away.
//
// Prints {"measured": 0 (nothing), 1 (partly) or 2 (all), "us": what it took, and each pause by its
// name}. Status 1 where nothing was measured.
#include "device/calibration.h"

#include <stdlib.h>

#include "base/entries.h"
#include "base/futex.h"
#include "support/sim_program.h"
#include "symbols.h"

constinit std::atomic<void*> gpufence_entry[gpufence::kSymCount] = {};

namespace {

#define USED(name) gpufence_entry[gpufence::kSym_##name].store(reinterpret_cast<void*>(&name))

void UseDriver() {
  USED(cuThreadExchangeStreamCaptureMode);
  USED(cuModuleLoadData);
  USED(cuModuleUnload);
  USED(cuModuleGetFunction);
  USED(cuModuleGetGlobal_v2);
  USED(cuStreamCreate);
  USED(cuStreamDestroy_v2);
  USED(cuStreamSynchronize);
  USED(cuStreamQuery);
  USED(cuCtxGetFlags);
  USED(cuEventCreate);
  USED(cuEventDestroy_v2);
  USED(cuEventRecord);
  USED(cuEventQuery);
  USED(cuEventElapsedTime);
  USED(cuLaunchKernel);
  USED(cuMemcpyDtoHAsync_v2);
  USED(cuGraphCreate);
  USED(cuGraphDestroy);
  USED(cuGraphAddKernelNode);
  USED(cuGraphInstantiateWithFlags);
  USED(cuGraphInstantiate_v2);
  USED(cuGraphExecDestroy);
  USED(cuGraphLaunch);
}

}  // namespace

int main(int argc, char** argv) {
  UseDriver();
  CUdevice device = 0;
  CUcontext context = nullptr;
  int processors = 0;
  MUST(cuInit(0));
  MUST(cuDeviceGet(&device, 0));
  MUST(cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
  if (argc > 2) MUST(cuDevicePrimaryCtxSetFlags_v2(device, CU_CTX_SCHED_BLOCKING_SYNC));
  MUST(cuDevicePrimaryCtxRetain(&context, device));
  MUST(cuCtxSetCurrent(context));
  const int wanted = argc > 1 ? atoi(argv[1]) : 0;
  if (wanted != 0) processors = wanted;
  gpufence::GpuPauses pauses = {};
  const char* why = "";
  const uint64_t from_ns = gpufence::NowNs();
  const auto measured = gpufence::Calibrate(static_cast<uint32_t>(processors), &pauses, &why);
  const uint64_t took_us = (gpufence::NowNs() - from_ns) / 1'000;
  const bool is_whole = measured == gpufence::Calibration::kWhole;
  if (!is_whole) fprintf(stderr, "%s\n", why);
  printf(
      "{\"measured\": %d, \"us\": %llu, \"launch_gap_ns\": %u, \"step_gap_ns\": %u, "
      "\"marker_gap_ns\": %u, \"around_run_ns\": %u, \"queued_gap_ns\": %u, \"start_ns\": %u, "
      "\"end_marker_ns\": %u, \"wide_gap_ns\": %u}\n",
      static_cast<int>(measured), static_cast<unsigned long long>(took_us), pauses.launch_gap_ns,
      pauses.step_gap_ns, pauses.marker_gap_ns, pauses.around_run_ns, pauses.queued_gap_ns,
      pauses.start_ns, pauses.end_marker_ns, pauses.wide_gap_ns);
  return measured == gpufence::Calibration::kNothing ? 1 : 0;
}
