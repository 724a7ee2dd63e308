// The exports that ask and set what a function or kernel is like, and how many blocks of it fit,
// from threads and shared memory alone. Must not know streams or time.
#include "cuda/modules/module.h"
#include "cuda/streams/launch.h"
#include "machine/calls.h"

namespace sim {

namespace {

using module::Function;

// Plausible for a small kernel compiled for the simulated GPU.
constexpr int kRegisters = 32;

// What it is called: the virtual GPU that the text was written for.
int PtxVersionOf(const Function& function) {
  const module::Module* module = module::FindByHandle(function.module);
  const int target = module != nullptr ? module->image->target : 0;
  return target != 0 ? target : image::kGpuTarget;
}

int AttributeOf(const Function& function, CUfunction_attribute attribute) {
  const image::Entry& entry = *function.entry;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return static_cast<int>(entry.max_threads != 0 ? entry.max_threads
                                                     : launch::kMaxThreadsPerBlock);
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      return static_cast<int>(entry.shared_bytes);
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      return static_cast<int>(entry.local_bytes);
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      return kRegisters;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      return PtxVersionOf(function);
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      return image::kGpuTarget;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: {
      const int set = function.attributes[attribute];
      return set != 0 ? set : static_cast<int>(launch::kSharedPerBlock - entry.shared_bytes);
    }
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: {
      const int set = function.attributes[attribute];
      return set != 0 ? set : -1;  // the driver decides
    }
    default:
      return attribute < module::kFunctionAttributes ? function.attributes[attribute] : 0;
  }
}

bool IsSettable(CUfunction_attribute attribute) {
  return attribute >= CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES &&
         attribute < static_cast<CUfunction_attribute>(module::kFunctionAttributes) &&
         attribute != CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET;
}

CUresult GetAttribute(const Function& function, CUfunction_attribute attribute, int* value) {
  if (attribute >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
  *value = AttributeOf(function, attribute);
  return CUDA_SUCCESS;
}

CUresult SetAttribute(Function* function, CUfunction_attribute attribute, int value) {
  if (!IsSettable(attribute)) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    const int most = static_cast<int>(launch::kSharedPerBlockOptin - function->entry->shared_bytes);
    if (value < 0 || value > most) return CUDA_ERROR_INVALID_VALUE;
  }
  function->attributes[attribute] = value;
  return CUDA_SUCCESS;
}

CUresult ParameterAt(const image::Entry& entry, size_t index, size_t* offset, size_t* bytes) {
  if (index >= entry.parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  if (offset != nullptr) *offset = entry.parameters[index].offset;
  if (bytes != nullptr) *bytes = entry.parameters[index].bytes;
  return CUDA_SUCCESS;
}

// A kernel's function on a device: in the device's primary context, or the current one if it is of
// that device.
CUresult FunctionOn(CUkernel handle, CUdevice device, Function** found) {
  const module::Kernel* kernel = module::FindKernel(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  context::Context* context = nullptr;
  const CUresult result = context::Current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (context->device != device) return CUDA_ERROR_INVALID_DEVICE;
  return module::FunctionOfKernel(*kernel, context, found);
}

// Resolves a function and does something with it under the lock.
template <typename Act>
CUresult With(CUfunction handle, Act act) {
  DriverLock lock;
  Function* function = nullptr;
  const CUresult result = module::ResolveFunction(handle, &function);
  return result != CUDA_SUCCESS ? result : act(function);
}

}  // namespace

}  // namespace sim

// The exports are global, everything that they use is in sim.
using namespace sim;

extern "C" CUresult cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  SIM_CALL(cuFuncGetAttribute, pi, attrib, hfunc);
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return With(hfunc, [&](Function* function) { return GetAttribute(*function, attrib, pi); });
}

extern "C" CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  SIM_CALL(cuFuncSetAttribute, hfunc, attrib, value);
  return With(hfunc, [&](Function* function) { return SetAttribute(function, attrib, value); });
}

extern "C" CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
  SIM_CALL(cuFuncSetCacheConfig, hfunc, config);
  return With(hfunc, [](Function*) { return CUDA_SUCCESS; });
}

extern "C" CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config) {
  SIM_CALL(cuFuncSetSharedMemConfig, hfunc, config);
  return With(hfunc, [](Function*) { return CUDA_SUCCESS; });
}

extern "C" CUresult cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  SIM_CALL(cuFuncGetModule, hmod, hfunc);
  if (hmod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return With(hfunc, [&](Function* function) {
    *hmod = AsHandle<CUmodule>(function->module);
    return CUDA_SUCCESS;
  });
}

extern "C" CUresult cuFuncGetName(const char** name, CUfunction hfunc) {
  SIM_CALL(cuFuncGetName, name, hfunc);
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return With(hfunc, [&](Function* function) {
    *name = function->entry->name;
    return CUDA_SUCCESS;
  });
}

extern "C" CUresult cuFuncGetParamCount(CUfunction func, size_t* paramCount) {
  SIM_CALL(cuFuncGetParamCount, func, paramCount);
  if (paramCount == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return With(func, [&](Function* function) {
    *paramCount = function->entry->parameters.size();
    return CUDA_SUCCESS;
  });
}

extern "C" CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t* paramOffset,
                                       size_t* paramSize) {
  SIM_CALL(cuFuncGetParamInfo, func, paramIndex, paramOffset, paramSize);
  if (paramOffset == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return With(func, [&](Function* function) {
    return ParameterAt(*function->entry, paramIndex, paramOffset, paramSize);
  });
}

extern "C" CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  SIM_CALL(cuFuncIsLoaded, state, function);
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return With(function, [&](Function* found) {
    const bool loaded = found->is_loaded || !module::IsLazy();
    *state = loaded ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
    return CUDA_SUCCESS;
  });
}

extern "C" CUresult cuFuncLoad(CUfunction function) {
  SIM_CALL(cuFuncLoad, function);
  return With(function, module::LoadFunction);
}

extern "C" CUresult cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel kernel,
                                         CUdevice dev) {
  SIM_CALL(cuKernelGetAttribute, pi, attrib, kernel, dev);
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  Function* function = nullptr;
  const CUresult result = FunctionOn(kernel, dev, &function);
  return result != CUDA_SUCCESS ? result : GetAttribute(*function, attrib, pi);
}

extern "C" CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel,
                                         CUdevice dev) {
  SIM_CALL(cuKernelSetAttribute, attrib, val, kernel, dev);
  DriverLock lock;
  Function* function = nullptr;
  const CUresult result = FunctionOn(kernel, dev, &function);
  return result != CUDA_SUCCESS ? result : SetAttribute(function, attrib, val);
}

extern "C" CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev) {
  SIM_CALL(cuKernelSetCacheConfig, kernel, config, dev);
  DriverLock lock;
  Function* function = nullptr;
  return FunctionOn(kernel, dev, &function);
}

extern "C" CUresult cuKernelGetParamCount(CUkernel kernel, size_t* paramCount) {
  SIM_CALL(cuKernelGetParamCount, kernel, paramCount);
  DriverLock lock;
  const module::Kernel* found = module::FindKernel(kernel);
  if (paramCount == nullptr || found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *paramCount = found->entry->parameters.size();
  return CUDA_SUCCESS;
}

extern "C" CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t* paramOffset,
                                         size_t* paramSize) {
  SIM_CALL(cuKernelGetParamInfo, kernel, paramIndex, paramOffset, paramSize);
  DriverLock lock;
  const module::Kernel* found = module::FindKernel(kernel);
  if (paramOffset == nullptr || found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return ParameterAt(*found->entry, paramIndex, paramOffset, paramSize);
}

// The profiler's switches have nothing to switch here.
extern "C" CUresult cuProfilerStart() {
  SIM_CALL(cuProfilerStart);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuProfilerStop() {
  SIM_CALL(cuProfilerStop);
  return CUDA_SUCCESS;
}

namespace sim {

namespace {

using module::Function;

constexpr int kMaxClusterBlocks = 8;  // the portable limit

CUresult ActiveBlocks(int* blocks, CUfunction handle, int threads, size_t dynamic_bytes,
                      unsigned flags) {
  const bool valid = blocks != nullptr && threads > 0 &&
                     threads <= static_cast<int>(launch::kMaxThreadsPerBlock) &&
                     flags <= CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE;
  if (!valid) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  Function* function = nullptr;
  const CUresult result = module::ResolveFunction(handle, &function);
  if (result != CUDA_SUCCESS) return result;
  *blocks = static_cast<int>(
      launch::BlocksPerSm(*function, static_cast<uint32_t>(threads), dynamic_bytes));
  return CUDA_SUCCESS;
}

// The largest block with the most threads per SM, and the grid that fills the device with it.
CUresult BestBlock(int* grid, int* block, CUfunction handle, CUoccupancyB2DSize dynamic_of,
                   size_t dynamic_bytes, int limit, unsigned flags) {
  if (grid == nullptr || block == nullptr || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  DriverLock lock;
  Function* function = nullptr;
  const CUresult result = module::ResolveFunction(handle, &function);
  if (result != CUDA_SUCCESS) return result;
  const context::Context* context = context::Find(AsHandle<CUcontext>(function->context));
  if (context == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;

  uint32_t most = launch::kMaxThreadsPerBlock;
  if (function->entry->max_threads != 0) most = function->entry->max_threads;
  if (limit > 0 && static_cast<uint32_t>(limit) < most) most = static_cast<uint32_t>(limit);
  uint32_t best_threads = 0;
  uint32_t best_blocks = 0;
  for (uint32_t threads = most; threads != 0;) {
    const size_t bytes =
        dynamic_of != nullptr ? dynamic_of(static_cast<int>(threads)) : dynamic_bytes;
    const uint32_t blocks = launch::BlocksPerSm(*function, threads, bytes);
    if (blocks * threads > best_blocks * best_threads) {
      best_blocks = blocks;
      best_threads = threads;
    }
    threads = (threads - 1) / launch::kWarp * launch::kWarp;
  }
  *block = static_cast<int>(best_threads);
  *grid = static_cast<int>(best_blocks) * context->sm_count;
  return CUDA_SUCCESS;
}

}  // namespace

}  // namespace sim

// The exports are global, everything that they use is in sim.
using namespace sim;

extern "C" CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, CUfunction func,
                                                                int blockSize,
                                                                size_t dynamicSMemSize) {
  SIM_CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, numBlocks, func, blockSize,
           dynamicSMemSize);
  return ActiveBlocks(numBlocks, func, blockSize, dynamicSMemSize, 0);
}

extern "C" CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* numBlocks, CUfunction func, int blockSize, size_t dynamicSMemSize, unsigned int flags) {
  SIM_CALL(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, numBlocks, func, blockSize,
           dynamicSMemSize, flags);
  return ActiveBlocks(numBlocks, func, blockSize, dynamicSMemSize, flags);
}

extern "C" CUresult cuOccupancyMaxPotentialBlockSize(int* minGridSize, int* blockSize,
                                                     CUfunction func,
                                                     CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                     size_t dynamicSMemSize, int blockSizeLimit) {
  SIM_CALL(cuOccupancyMaxPotentialBlockSize, minGridSize, blockSize, func,
           blockSizeToDynamicSMemSize, dynamicSMemSize, blockSizeLimit);
  return BestBlock(minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize,
                   blockSizeLimit, 0);
}

extern "C" CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(
    int* minGridSize, int* blockSize, CUfunction func,
    CUoccupancyB2DSize blockSizeToDynamicSMemSize, size_t dynamicSMemSize, int blockSizeLimit,
    unsigned int flags) {
  SIM_CALL(cuOccupancyMaxPotentialBlockSizeWithFlags, minGridSize, blockSize, func,
           blockSizeToDynamicSMemSize, dynamicSMemSize, blockSizeLimit, flags);
  return BestBlock(minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize,
                   blockSizeLimit, flags);
}

extern "C" CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* dynamicSmemSize,
                                                            CUfunction func, int numBlocks,
                                                            int blockSize) {
  SIM_CALL(cuOccupancyAvailableDynamicSMemPerBlock, dynamicSmemSize, func, numBlocks, blockSize);
  if (dynamicSmemSize == nullptr || numBlocks <= 0 || blockSize <= 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  DriverLock lock;
  Function* function = nullptr;
  const CUresult result = module::ResolveFunction(func, &function);
  if (result != CUDA_SUCCESS) return result;
  const uint32_t each = launch::kSharedPerSm / static_cast<uint32_t>(numBlocks);
  const uint32_t taken = launch::kSharedReserved + function->entry->shared_bytes;
  *dynamicSmemSize = each > taken ? each - taken : 0;
  return CUDA_SUCCESS;
}

extern "C" CUresult cuOccupancyMaxPotentialClusterSize(int* clusterSize, CUfunction func,
                                                       const CUlaunchConfig* config) {
  SIM_CALL(cuOccupancyMaxPotentialClusterSize, clusterSize, func, config);
  if (clusterSize == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  Function* function = nullptr;
  const CUresult result = module::ResolveFunction(func, &function);
  if (result == CUDA_SUCCESS) *clusterSize = kMaxClusterBlocks;
  return result;
}

extern "C" CUresult cuOccupancyMaxActiveClusters(int* numClusters, CUfunction func,
                                                 const CUlaunchConfig* config) {
  SIM_CALL(cuOccupancyMaxActiveClusters, numClusters, func, config);
  if (numClusters == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  Function* function = nullptr;
  const CUresult result = module::ResolveFunction(func, &function);
  if (result != CUDA_SUCCESS) return result;
  const context::Context* context = context::Find(AsHandle<CUcontext>(function->context));
  if (context == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  const uint32_t threads = config->blockDimX * config->blockDimY * config->blockDimZ;
  const uint32_t blocks = launch::BlocksPerSm(*function, threads, config->sharedMemBytes) *
                          static_cast<uint32_t>(context->sm_count);
  uint32_t cluster = 1;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    if (attribute.id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
    const auto& size = attribute.value.clusterDim;
    cluster = size.x * size.y * size.z;
  }
  *numClusters = cluster != 0 ? static_cast<int>(blocks / cluster) : 0;
  return CUDA_SUCCESS;
}
