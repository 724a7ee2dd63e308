// The entry points that create, end and select contexts, and that ask what one is: device, flags,
// caches, version, identity.
//
// Must not know how contexts are kept (context.cpp).
#include "cuda/devices/context_state.h"
#include "cuda/devices/device.h"
#include "cuda/memory/memory.h"
#include "machine/calls.h"

namespace {

using sim::DriverLock;
using sim::context::Context;

// The flags that a context knows; the scheduling bits (0..2) exclude each other.
constexpr unsigned kKnownFlags = 0xff;
constexpr unsigned kScheduleMask = CU_CTX_SCHED_MASK;

bool AreFlagsValid(unsigned flags) {
  const unsigned schedule = flags & kScheduleMask;
  return (flags & ~kKnownFlags) == 0 && (schedule & (schedule - 1)) == 0;
}

CUresult CreateCurrent(CUcontext* pctx, unsigned flags, CUdevice dev, unsigned api_version) {
  if (pctx == nullptr || !AreFlagsValid(flags)) return CUDA_ERROR_INVALID_VALUE;
  if (!sim::device::IsValid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  DriverLock lock;
  Context* context = nullptr;
  const CUresult rc = sim::context::Create(dev, flags, &context);
  if (rc != CUDA_SUCCESS) return rc;
  context->api_version = api_version;
  if (!sim::context::Push(context->handle)) {
    sim::context::Destroy(context);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *pctx = sim::AsHandle<CUcontext>(context->handle);
  return CUDA_SUCCESS;
}

// The device stands still for the end of a context: whatever runs on it, in any, is waited for.
void AwaitDeviceOf(CUcontext ctx) {
  int device = -1;
  {
    DriverLock lock;
    const Context* context = sim::context::Find(ctx);
    if (context != nullptr) device = context->device;
  }
  if (device >= 0 && sim::stream::WaitForDevice != nullptr) sim::stream::WaitForDevice(device);
}

CUresult DestroyContext(CUcontext ctx) {
  if (ctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  AwaitDeviceOf(ctx);
  DriverLock lock;
  Context* context = sim::context::Find(ctx);
  if (sim::context::HasEnded(ctx)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (context == nullptr || context->is_primary || context->green != 0) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  sim::context::Destroy(context);
  return CUDA_SUCCESS;
}

CUresult PushContext(CUcontext ctx) {
  if (ctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  if (sim::context::Find(ctx) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return sim::context::Push(sim::HandleValue(ctx)) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult PopContext(CUcontext* pctx) {
  DriverLock lock;
  uint64_t handle = 0;
  if (!sim::context::Pop(&handle)) return CUDA_ERROR_INVALID_CONTEXT;
  if (pctx != nullptr) *pctx = sim::AsHandle<CUcontext>(handle);
  return CUDA_SUCCESS;
}

// The same for a primary context; `references`: a release ends it that finds no more of them.
void AwaitPrimaryOf(CUdevice dev, uint32_t references) {
  bool ends = false;
  {
    DriverLock lock;
    const Context* primary = sim::context::Primary(dev);
    ends = primary != nullptr && primary->active && primary->references <= references;
  }
  if (ends && sim::stream::WaitForDevice != nullptr) sim::stream::WaitForDevice(dev);
}

CUresult ReleasePrimary(CUdevice dev) {
  if (!sim::device::IsValid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  AwaitPrimaryOf(dev, 1);
  DriverLock lock;
  return sim::context::ReleasePrimary(dev);
}

CUresult ResetPrimary(CUdevice dev) {
  if (!sim::device::IsValid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  AwaitPrimaryOf(dev, UINT32_MAX);
  DriverLock lock;
  sim::context::ResetPrimary(dev);
  return CUDA_SUCCESS;
}

CUresult SetPrimaryFlags(CUdevice dev, unsigned flags) {
  if (!AreFlagsValid(flags)) return CUDA_ERROR_INVALID_VALUE;
  if (!sim::device::IsValid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  DriverLock lock;
  sim::context::SetPrimaryFlags(dev, flags);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuCtxCreate(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  SIM_CALL(cuCtxCreate, pctx, flags, dev);
  return CreateCurrent(pctx, flags, dev, 3010);
}

CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  SIM_CALL(cuCtxCreate_v2, pctx, flags, dev);
  return CreateCurrent(pctx, flags, dev, 3020);
}

// Affinity exists only under MPS, which the simulator is not.
CUresult cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam* paramsArray, int numParams,
                        unsigned int flags, CUdevice dev) {
  SIM_CALL(cuCtxCreate_v3, pctx, paramsArray, numParams, flags, dev);
  if (numParams < 0 || (numParams > 0 && paramsArray == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  if (numParams > 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return CreateCurrent(pctx, flags, dev, 3020);
}

CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* ctxCreateParams, unsigned int flags,
                        CUdevice dev) {
  SIM_CALL(cuCtxCreate_v4, pctx, ctxCreateParams, flags, dev);
  if (ctxCreateParams != nullptr) {
    if (ctxCreateParams->numExecAffinityParams > 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    if (ctxCreateParams->cigParams != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CreateCurrent(pctx, flags, dev, 3020);
}

CUresult cuCtxDestroy(CUcontext ctx) {
  SIM_CALL(cuCtxDestroy, ctx);
  return DestroyContext(ctx);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
  SIM_CALL(cuCtxDestroy_v2, ctx);
  return DestroyContext(ctx);
}

CUresult cuCtxAttach(CUcontext* pctx, unsigned int flags) {
  SIM_CALL(cuCtxAttach, pctx, flags);
  if (pctx == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  Context* context = nullptr;
  const CUresult rc = sim::context::Current(&context);
  if (rc != CUDA_SUCCESS) return rc;
  ++context->references;
  *pctx = sim::AsHandle<CUcontext>(context->handle);
  return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext ctx) {
  SIM_CALL(cuCtxDetach, ctx);
  DriverLock lock;
  Context* context = sim::context::Find(ctx);
  if (context == nullptr || sim::HandleValue(ctx) != sim::context::CurrentHandle()) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (context->is_primary) return sim::context::ReleasePrimary(context->device);
  if (--context->references == 0) sim::context::Destroy(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext ctx) {
  SIM_CALL(cuCtxPushCurrent, ctx);
  return PushContext(ctx);
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  SIM_CALL(cuCtxPushCurrent_v2, ctx);
  return PushContext(ctx);
}

CUresult cuCtxPopCurrent(CUcontext* pctx) {
  SIM_CALL(cuCtxPopCurrent, pctx);
  return PopContext(pctx);
}

CUresult cuCtxPopCurrent_v2(CUcontext* pctx) {
  SIM_CALL(cuCtxPopCurrent_v2, pctx);
  return PopContext(pctx);
}

// Null takes the current context away, which is no error.
CUresult cuCtxSetCurrent(CUcontext ctx) {
  SIM_CALL(cuCtxSetCurrent, ctx);
  DriverLock lock;
  if (ctx != nullptr && sim::context::Find(ctx) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return sim::context::Replace(sim::HandleValue(ctx)) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuCtxGetCurrent(CUcontext* pctx) {
  SIM_CALL(cuCtxGetCurrent, pctx);
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pctx = sim::AsHandle<CUcontext>(sim::context::CurrentHandle());
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  SIM_CALL(cuDevicePrimaryCtxRetain, pctx, dev);
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!sim::device::IsValid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  DriverLock lock;
  Context* context = nullptr;
  const CUresult rc = sim::context::RetainPrimary(dev, &context);
  if (rc == CUDA_SUCCESS) *pctx = sim::AsHandle<CUcontext>(context->handle);
  return rc;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
  SIM_CALL(cuDevicePrimaryCtxRelease, dev);
  return ReleasePrimary(dev);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  SIM_CALL(cuDevicePrimaryCtxRelease_v2, dev);
  return ReleasePrimary(dev);
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev) {
  SIM_CALL(cuDevicePrimaryCtxReset, dev);
  return ResetPrimary(dev);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  SIM_CALL(cuDevicePrimaryCtxReset_v2, dev);
  return ResetPrimary(dev);
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags) {
  SIM_CALL(cuDevicePrimaryCtxSetFlags, dev, flags);
  return SetPrimaryFlags(dev, flags);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  SIM_CALL(cuDevicePrimaryCtxSetFlags_v2, dev, flags);
  return SetPrimaryFlags(dev, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  SIM_CALL(cuDevicePrimaryCtxGetState, dev, flags, active);
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!sim::device::IsValid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  DriverLock lock;
  *flags = sim::context::PrimaryFlags(dev);
  *active = sim::context::IsPrimaryActive(dev) ? 1 : 0;
  return CUDA_SUCCESS;
}

}  // extern "C"

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
