// What a context says about itself: device, flags, caches, version, identity.
#include "cuda/devices/context_state.h"
#include "cuda/devices/device.h"
#include "machine/calls.h"

namespace {

using sim::DriverLock;
using sim::context::Context;

// The current context, or with a handle that one.
CUresult Resolve(CUcontext ctx, Context** context) {
  if (ctx == nullptr) return sim::context::Current(context);
  *context = sim::context::Find(ctx);
  if (*context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return (*context)->active ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

// Writes one fact of a context, which `read` takes from it.
template <typename Value, typename Read>
CUresult Tell(Value* result, CUcontext ctx, Read read) {
  DriverLock lock;
  Context* context = nullptr;
  const CUresult rc = Resolve(ctx, &context);
  if (rc != CUDA_SUCCESS) return rc;
  if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *result = read(*context);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuCtxGetDevice(CUdevice* device) {
  SIM_CALL(cuCtxGetDevice, device);
  return Tell(device, nullptr, [](const Context& context) { return context.device; });
}

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) {
  SIM_CALL(cuCtxGetDevice_v2, device, ctx);
  return Tell(device, ctx, [](const Context& context) { return context.device; });
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  SIM_CALL(cuCtxGetFlags, flags);
  return Tell(flags, nullptr, [](const Context& context) { return context.flags; });
}

CUresult cuCtxSetFlags(unsigned int flags) {
  SIM_CALL(cuCtxSetFlags, flags);
  DriverLock lock;
  Context* context = nullptr;
  const CUresult rc = sim::context::Current(&context);
  if (rc == CUDA_SUCCESS) context->flags = flags;
  return rc;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) {
  SIM_CALL(cuCtxGetId, ctx, ctxId);
  return Tell(ctxId, ctx, [](const Context& context) { return context.unique_id; });
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
  SIM_CALL(cuCtxGetApiVersion, ctx, version);
  return Tell(version, ctx, [](const Context& context) { return context.api_version; });
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* pconfig) {
  SIM_CALL(cuCtxGetCacheConfig, pconfig);
  return Tell(pconfig, nullptr, [](const Context& context) {
    return static_cast<CUfunc_cache>(context.cache_config);
  });
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  SIM_CALL(cuCtxSetCacheConfig, config);
  if (config > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  Context* context = nullptr;
  const CUresult rc = sim::context::Current(&context);
  if (rc == CUDA_SUCCESS) context->cache_config = config;
  return rc;
}

// Newer GPUs have one bank size; the setter is accepted and changes nothing.
CUresult cuCtxGetSharedMemConfig(CUsharedconfig* pConfig) {
  SIM_CALL(cuCtxGetSharedMemConfig, pConfig);
  return Tell(pConfig, nullptr,
              [](const Context&) { return CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE; });
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
  SIM_CALL(cuCtxSetSharedMemConfig, config);
  if (config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  Context* context = nullptr;
  return sim::context::Current(&context);
}

CUresult cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  SIM_CALL(cuCtxGetStreamPriorityRange, leastPriority, greatestPriority);
  DriverLock lock;
  Context* context = nullptr;
  const CUresult rc = sim::context::Current(&context);
  if (rc != CUDA_SUCCESS) return rc;
  if (leastPriority != nullptr) *leastPriority = 0;
  if (greatestPriority != nullptr) *greatestPriority = -5;
  return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache(void) {
  SIM_CALL(cuCtxResetPersistingL2Cache);
  DriverLock lock;
  Context* context = nullptr;
  return sim::context::Current(&context);
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam* pExecAffinity, CUexecAffinityType type) {
  SIM_CALL(cuCtxGetExecAffinity, pExecAffinity, type);
  DriverLock lock;
  Context* context = nullptr;
  const CUresult rc = sim::context::Current(&context);
  if (rc != CUDA_SUCCESS) return rc;
  if (pExecAffinity == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_EXEC_AFFINITY_TYPE_SM_COUNT) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  pExecAffinity->type = type;
  pExecAffinity->param.smCount.val = static_cast<unsigned>(context->sm_count);
  return CUDA_SUCCESS;
}

}  // extern "C"
