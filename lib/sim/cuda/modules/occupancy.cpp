// The exports about occupancy: how many blocks fit, from threads and shared memory alone.
// Must not know streams or time.
#include "cuda/modules/module.h"
#include "cuda/streams/launch.h"
#include "machine/calls.h"

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
