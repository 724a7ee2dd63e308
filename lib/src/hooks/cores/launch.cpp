// The doors through which kernels enter streams. Here: the memory that a first launch takes.
#include "device/context_scope.h"
#include "hooks/contexts/context_cost.h"
#include "hooks/contexts/overhead.h"
#include "hooks/cores/cores.h"
#include "hooks/cores/streams.h"
#include "real.h"

namespace gpufence {
namespace {

uint64_t BlocksOf(uint64_t x, uint64_t y, uint64_t z) { return x * y * z; }

// Where a launch goes and how large it is, told when it is asked for: a caller's structure is not
// read before a limit is known to hold.
struct Into {
  CUstream stream;
  uint64_t blocks = 1;
  CUstream operator()() const { return stream; }
  uint64_t Blocks() const { return blocks; }
};

struct IntoPerThread {
  CUstream stream;
  uint64_t blocks = 1;
  CUstream operator()() const { return PerThread(stream); }
  uint64_t Blocks() const { return blocks; }
};

struct IntoConfigured {
  const CUlaunchConfig* config;
  bool per_thread;
  CUstream operator()() const {
    const CUstream stream = config != nullptr ? config->hStream : nullptr;
    return per_thread ? PerThread(stream) : stream;
  }
  uint64_t Blocks() const {
    return config != nullptr ? BlocksOf(config->gridDimX, config->gridDimY, config->gridDimZ) : 0;
  }
};

// Also the driver's late loading of the function's code is seen here, since it happens in the
// launch. A captured launch takes nothing yet: what it asks for must fit, and the next launch is
// the first.
// `is_collective`: what was launched meets others on other devices.
template <typename Where, typename Launch>
[[gnu::noinline]] CUresult FirstLaunch(const Hook& hook, CUfunction function, Where stream,
                                       Launch launch, bool* is_collective) {
  FencedDevice* device = hook.current_device();
  if (device == nullptr) return launch();
  const uint64_t context = hook.context();
  uint64_t stack_bytes = 0;
  // Asking after a library's kernel may be what places its library.
  const CUresult placed = CallThatPlaces(device, [&] {
    stack_bytes = StackOf(function);
    return CUDA_SUCCESS;
  });
  if (placed != CUDA_SUCCESS) return placed;
  const uint64_t growth_bytes = StackGrowthBytes(hook.fence(), device, context, stack_bytes);
  const CUresult rc = CallThatGrows(device, growth_bytes, launch);
  if (rc != CUDA_SUCCESS || (growth_bytes > 0 && MayBeCapturing(stream()))) return rc;
  if (growth_bytes > 0) SetLaunchedStack(hook.fence(), device, context, stack_bytes);
  *is_collective = IsCollective(function);
  RememberLaunch(function, *is_collective);
  return rc;
}

template <typename Where, typename Launch>
CUresult CallLaunch(CUfunction function, Where where, Launch launch) {
  const Hook hook;
  if (hook.fence() == nullptr) return hook.refused() ? kRefusalCode : launch();
  CoreLaunch core_launch(where);
  core_launch.HasGrid(function, [&] { return where.Blocks(); });
  const Launched known = WasLaunched(function);
  if (known == Launched::kBefore) [[likely]]
    return launch();
  bool is_collective = known == Launched::kCollective;
  const CUresult rc =
      is_collective ? launch() : FirstLaunch(hook, function, where, launch, &is_collective);
  if (is_collective && rc == CUDA_SUCCESS) core_launch.Meets(/*waits=*/true);
  return rc;
}

// Each of the streams is asked and counted.
template <typename Launch>
CUresult ThroughGates(const CUDA_LAUNCH_PARAMS* list, unsigned int count, Launch launch) {
  if (count == 0) return launch();
  const CoreLaunch core_launch([list] { return list->hStream; });
  return ThroughGates(list + 1, count - 1, launch);
}

// One launch on each of several devices. What it takes is read afterwards: each stack belongs to
// another context, none of them the caller's. Drivers from CUDA 13 on have no such call.
template <typename Launch>
CUresult LaunchedOnMany(const CUDA_LAUNCH_PARAMS* list, unsigned int count, Launch launch) {
  const Hook hook;
  if (hook.fence() == nullptr) return hook.refused() ? kRefusalCode : launch();
  const bool asks = LaunchCores() != nullptr && list != nullptr;
  const CUresult rc = ThroughGates(list, asks ? count : 0, launch);
  for (uint32_t i = 0; i < hook.fence()->device_count; ++i) {
    ReadOverheadNow(&hook.fence()->devices[i]);
  }
  return rc;
}

}  // namespace
}  // namespace gpufence

extern "C" {

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                        unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                        unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                        void** kernelParams, void** extra) {
  return gpufence::CallLaunch(
      f, gpufence::Into{hStream, gpufence::BlocksOf(gridDimX, gridDimY, gridDimZ)}, [=] {
        return real::cuLaunchKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY,
                                    blockDimZ, sharedMemBytes, hStream, kernelParams, extra);
      });
}

CUresult cuLaunchKernel_ptsz(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                             unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                             unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                             void** kernelParams, void** extra) {
  return gpufence::CallLaunch(
      f, gpufence::IntoPerThread{hStream, gpufence::BlocksOf(gridDimX, gridDimY, gridDimZ)}, [=] {
        return real::cuLaunchKernel_ptsz(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY,
                                         blockDimZ, sharedMemBytes, hStream, kernelParams, extra);
      });
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
                          void** extra) {
  return gpufence::CallLaunch(f, gpufence::IntoConfigured{config, false}, [=] {
    return real::cuLaunchKernelEx(config, f, kernelParams, extra);
  });
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
                               void** extra) {
  return gpufence::CallLaunch(f, gpufence::IntoConfigured{config, true}, [=] {
    return real::cuLaunchKernelEx_ptsz(config, f, kernelParams, extra);
  });
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX,
                                   unsigned int blockDimY, unsigned int blockDimZ,
                                   unsigned int sharedMemBytes, CUstream hStream,
                                   void** kernelParams) {
  return gpufence::CallLaunch(
      f, gpufence::Into{hStream, gpufence::BlocksOf(gridDimX, gridDimY, gridDimZ)}, [=] {
        return real::cuLaunchCooperativeKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX,
                                               blockDimY, blockDimZ, sharedMemBytes, hStream,
                                               kernelParams);
      });
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                        unsigned int gridDimZ, unsigned int blockDimX,
                                        unsigned int blockDimY, unsigned int blockDimZ,
                                        unsigned int sharedMemBytes, CUstream hStream,
                                        void** kernelParams) {
  return gpufence::CallLaunch(
      f, gpufence::IntoPerThread{hStream, gpufence::BlocksOf(gridDimX, gridDimY, gridDimZ)}, [=] {
        return real::cuLaunchCooperativeKernel_ptsz(f, gridDimX, gridDimY, gridDimZ, blockDimX,
                                                    blockDimY, blockDimZ, sharedMemBytes, hStream,
                                                    kernelParams);
      });
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launchParamsList,
                                              unsigned int numDevices, unsigned int flags) {
  return gpufence::LaunchedOnMany(launchParamsList, numDevices, [=] {
    return real::cuLaunchCooperativeKernelMultiDevice(launchParamsList, numDevices, flags);
  });
}

CUresult cuLaunch(CUfunction f) {
  return gpufence::CallLaunch(f, gpufence::Into{nullptr}, [=] { return real::cuLaunch(f); });
}

CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height) {
  return gpufence::CallLaunch(f, gpufence::Into{nullptr},
                              [=] { return real::cuLaunchGrid(f, grid_width, grid_height); });
}

CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream) {
  return gpufence::CallLaunch(f, gpufence::Into{hStream}, [=] {
    return real::cuLaunchGridAsync(f, grid_width, grid_height, hStream);
  });
}

}  // extern "C"
