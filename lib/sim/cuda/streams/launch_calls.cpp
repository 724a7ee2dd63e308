// The doors through which kernels enter streams. Must not know what a kernel is made of.
#include <stdlib.h>
#include <string.h>

#include "cuda/streams/launch.h"
#include "cuda/streams/stream.h"
#include "machine/config.h"
#include "machine/timeline.h"

namespace sim {

namespace {

using launch::ParameterRoom;
using launch::Request;

bool LaunchesBlock() {
  const char* value = getenv("CUDA_LAUNCH_BLOCKING");
  return value != nullptr && strcmp(value, "0") != 0;
}

CUresult Enter(bool per_thread, const Request& request, CUstream stream) {
  launch::SpendOnLaunch();
  TimelineLock lock;
  stream::Stream* into = nullptr;
  CUresult result = stream::Resolve(stream, per_thread, &into);
  if (result != CUDA_SUCCESS) return result;
  ParameterRoom room;
  Operation operation;
  result = launch::Prepare(request, &room, &operation);
  if (result != CUDA_SUCCESS) return result;
  if (into->context != operation.context) return CUDA_ERROR_INVALID_HANDLE;
  const bool is_captured = into->capture != nullptr;
  if (!is_captured) result = launch::Provide(operation);
  if (result == CUDA_SUCCESS) result = stream::Issue(lock, stream, per_thread, operation);
  if (result == CUDA_SUCCESS && !is_captured && LaunchesBlock()) {
    Work* end = stream::AskedEndOf(lock, *into);
    lock.Wait(end);
    ReleaseWork(end);
  }
  return result;
}

CUresult LaunchKernel(bool per_thread, CUfunction f, unsigned grid_x, unsigned grid_y,
                      unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                      unsigned shared_bytes, CUstream stream, void** parameters, void** extra) {
  return Enter(per_thread,
               {f,
                {grid_x, grid_y, grid_z},
                {block_x, block_y, block_z},
                shared_bytes,
                parameters,
                extra,
                false},
               stream);
}

CUresult LaunchCooperative(bool per_thread, CUfunction f, unsigned grid_x, unsigned grid_y,
                           unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                           unsigned shared_bytes, CUstream stream, void** parameters) {
  return Enter(per_thread,
               {f,
                {grid_x, grid_y, grid_z},
                {block_x, block_y, block_z},
                shared_bytes,
                parameters,
                nullptr,
                true},
               stream);
}

CUresult LaunchEx(bool per_thread, const CUlaunchConfig* config, CUfunction f, void** parameters,
                  void** extra) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  bool cooperative = false;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
      cooperative = attribute.value.cooperative != 0;
    }
  }
  return Enter(per_thread,
               {f,
                {config->gridDimX, config->gridDimY, config->gridDimZ},
                {config->blockDimX, config->blockDimY, config->blockDimZ},
                config->sharedMemBytes,
                parameters,
                extra,
                cooperative},
               config->hStream);
}

// The launch API of CUDA 3: shape and parameters are set on the function beforehand.
CUresult LaunchPrepared(CUfunction f, int grid_width, int grid_height, CUstream stream) {
  uint8_t parameters[sizeof(ParameterRoom)];
  size_t bytes = 0;
  Request request = {};
  {
    DriverLock lock;
    module::Function* function = nullptr;
    const CUresult result = module::ResolveFunction(f, &function);
    if (result != CUDA_SUCCESS) return result;
    bytes = function->parameters.size();
    if (bytes > sizeof(parameters)) return CUDA_ERROR_INVALID_VALUE;
    if (bytes != 0) memcpy(parameters, function->parameters.data(), bytes);
    request.shared_bytes = function->shared_bytes;
    for (int i = 0; i < 3; ++i) request.block[i] = static_cast<uint32_t>(function->block[i]);
  }
  void* extra[] = {reinterpret_cast<void*>(1), parameters, reinterpret_cast<void*>(2), &bytes,
                   nullptr};
  request.function = f;
  request.grid[0] = static_cast<uint32_t>(grid_width);
  request.grid[1] = static_cast<uint32_t>(grid_height);
  request.grid[2] = 1;
  request.extra = extra;
  return Enter(false, request, stream);
}

CUresult SetParameter(CUfunction f, int offset, const void* value, size_t bytes) {
  DriverLock lock;
  module::Function* function = nullptr;
  const CUresult result = module::ResolveFunction(f, &function);
  if (result != CUDA_SUCCESS) return result;
  if (offset < 0 || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const size_t end = static_cast<size_t>(offset) + bytes;
  if (end > sizeof(ParameterRoom)) return CUDA_ERROR_INVALID_VALUE;
  while (function->parameters.size() < end) {
    if (!function->parameters.Push(0)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memcpy(function->parameters.data() + offset, value, bytes);
  return CUDA_SUCCESS;
}

}  // namespace

}  // namespace sim

// The exports are global, everything that they use is in sim.
using namespace sim;

SIM_TWINS(cuLaunchKernel, LaunchKernel,
          (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
           unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
           unsigned int sharedMemBytes, CUstream hStream, void** kernelParams, void** extra),
          f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream,
          kernelParams, extra);
SIM_TWINS(cuLaunchCooperativeKernel, LaunchCooperative,
          (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
           unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
           unsigned int sharedMemBytes, CUstream hStream, void** kernelParams),
          f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream,
          kernelParams);
SIM_TWINS(cuLaunchKernelEx, LaunchEx,
          (const CUlaunchConfig* config, CUfunction f, void** kernelParams, void** extra), config,
          f, kernelParams, extra);

// One launch per device, each in its own stream; 400 unless every stream is one of its function's
// context and not the legacy stream.
extern "C" CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launchParamsList,
                                                         unsigned int numDevices,
                                                         unsigned int flags) {
  SIM_CALL(cuLaunchCooperativeKernelMultiDevice, launchParamsList, numDevices, flags);
  if (launchParamsList == nullptr || numDevices == 0) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < numDevices; ++i) {
    const CUDA_LAUNCH_PARAMS& one = launchParamsList[i];
    if (HandleValue(one.hStream) <= 1) return CUDA_ERROR_INVALID_HANDLE;
    const CUresult result = Enter(false,
                                  {one.function,
                                   {one.gridDimX, one.gridDimY, one.gridDimZ},
                                   {one.blockDimX, one.blockDimY, one.blockDimZ},
                                   one.sharedMemBytes,
                                   one.kernelParams,
                                   nullptr,
                                   true},
                                  one.hStream);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

extern "C" CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) {
  SIM_CALL(cuFuncSetBlockShape, hfunc, x, y, z);
  DriverLock lock;
  module::Function* function = nullptr;
  const CUresult result = module::ResolveFunction(hfunc, &function);
  if (result != CUDA_SUCCESS) return result;
  if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
  constexpr int64_t kMost = launch::kMaxThreadsPerBlock;
  if (x > kMost || y > kMost || int64_t{x} * y * z > kMost) return CUDA_ERROR_INVALID_VALUE;
  function->block[0] = x;
  function->block[1] = y;
  function->block[2] = z;
  return CUDA_SUCCESS;
}

extern "C" CUresult cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes) {
  SIM_CALL(cuFuncSetSharedSize, hfunc, bytes);
  DriverLock lock;
  module::Function* function = nullptr;
  const CUresult result = module::ResolveFunction(hfunc, &function);
  if (result == CUDA_SUCCESS) function->shared_bytes = bytes;
  return result;
}

extern "C" CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes) {
  SIM_CALL(cuParamSetSize, hfunc, numbytes);
  DriverLock lock;
  module::Function* function = nullptr;
  const CUresult result = module::ResolveFunction(hfunc, &function);
  if (result == CUDA_SUCCESS) function->parameter_bytes = numbytes;
  return result;
}

extern "C" CUresult cuParamSeti(CUfunction hfunc, int offset, unsigned int value) {
  SIM_CALL(cuParamSeti, hfunc, offset, value);
  return SetParameter(hfunc, offset, &value, sizeof(value));
}

extern "C" CUresult cuParamSetf(CUfunction hfunc, int offset, float value) {
  SIM_CALL(cuParamSetf, hfunc, offset, value);
  return SetParameter(hfunc, offset, &value, sizeof(value));
}

extern "C" CUresult cuParamSetv(CUfunction hfunc, int offset, void* ptr, unsigned int numbytes) {
  SIM_CALL(cuParamSetv, hfunc, offset, ptr, numbytes);
  return SetParameter(hfunc, offset, ptr, numbytes);
}

extern "C" CUresult cuLaunch(CUfunction f) {
  SIM_CALL(cuLaunch, f);
  return LaunchPrepared(f, 1, 1, nullptr);
}

extern "C" CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height) {
  SIM_CALL(cuLaunchGrid, f, grid_width, grid_height);
  return LaunchPrepared(f, grid_width, grid_height, nullptr);
}

extern "C" CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height,
                                      CUstream hStream) {
  SIM_CALL(cuLaunchGridAsync, f, grid_width, grid_height, hStream);
  return LaunchPrepared(f, grid_width, grid_height, hStream);
}
