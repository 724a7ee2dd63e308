// Green contexts: SM resources, their descriptors, and contexts made from them.
//
// A green context needs the device's primary context, which pays; it adds no bytes of its own.
#include <algorithm>

#include "cuda/devices/context_state.h"
#include "cuda/devices/device.h"
#include "machine/calls.h"

namespace sim::green {
namespace {

using context::Context;
using context::kSmGroup;

struct Descriptor {
  unsigned sm_count;
};

struct GreenContext {
  int device;
  unsigned sm_count;
  uint64_t view;  // the CUcontext of cuCtxFromGreenCtx, made at creation
  uint64_t unique_id;
};

constinit Table<Descriptor, Kind::kResourceDesc> g_descriptors;
constinit Table<GreenContext, Kind::kGreenContext> g_greens;
constinit uint64_t g_next_id = 1;

CUresult WriteSm(CUdevResource* resource, CUdevResourceType type, unsigned sm_count) {
  if (resource == nullptr || type != CU_DEV_RESOURCE_TYPE_SM) {
    return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  }
  *resource = {};
  resource->type = CU_DEV_RESOURCE_TYPE_SM;
  resource->sm.smCount = sm_count;
  resource->sm.minSmPartitionSize = kSmGroup;
  resource->sm.smCoscheduledAlignment = kSmGroup;
  return CUDA_SUCCESS;
}

bool IsSm(const CUdevResource* resource) {
  return resource != nullptr && resource->type == CU_DEV_RESOURCE_TYPE_SM &&
         resource->sm.smCount > 0;
}

void WriteSmOf(const CUdevResource& input, unsigned sm_count, CUdevResource* result) {
  *result = input;
  result->sm.smCount = sm_count;
  if (sm_count == 0) result->type = CU_DEV_RESOURCE_TYPE_INVALID;
}

// Deals groups of at least `min_count` SMs, rounded up to whole SM groups; `group_count` says how
// many are wanted and then how many there are.  `result` may be null: then only the count is told.
CUresult Split(CUdevResource* result, unsigned* group_count, const CUdevResource& input,
               CUdevResource* remainder, unsigned min_count) {
  const unsigned per_group = std::max(1u, (min_count + kSmGroup - 1) / kSmGroup) * kSmGroup;
  const unsigned possible = input.sm.smCount / per_group;
  const unsigned dealt = result != nullptr ? std::min(possible, *group_count) : possible;
  if (dealt == 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  for (unsigned index = 0; result != nullptr && index < dealt; ++index) {
    WriteSmOf(input, per_group, &result[index]);
  }
  if (remainder != nullptr) WriteSmOf(input, input.sm.smCount - dealt * per_group, remainder);
  *group_count = dealt;
  return CUDA_SUCCESS;
}

CUresult Create(CUgreenCtx* result, const Descriptor& descriptor, CUdevice device) {
  Context* primary = nullptr;
  const CUresult rc = context::RetainPrimary(device, &primary);
  if (rc != CUDA_SUCCESS) return rc;
  uint64_t handle = 0;
  GreenContext* green = g_greens.Create(&handle);
  Context* view = green != nullptr ? context::CreateGreenView(handle, device,
                                                              static_cast<int>(descriptor.sm_count))
                                   : nullptr;
  if (view == nullptr) {
    if (green != nullptr) g_greens.Destroy(handle);
    context::ReleasePrimary(device);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *green = {.device = device,
            .sm_count = descriptor.sm_count,
            .view = view->handle,
            .unique_id = g_next_id++};
  *result = AsHandle<CUgreenCtx>(handle);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace sim::green

extern "C" {

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource* resource, CUdevResourceType type) {
  SIM_CALL(cuDeviceGetDevResource, device, resource, type);
  if (!sim::device::IsValid(device)) return CUDA_ERROR_INVALID_DEVICE;
  return sim::green::WriteSm(resource, type, static_cast<unsigned>(sim::device::SmCount(device)));
}

CUresult cuCtxGetDevResource(CUcontext hCtx, CUdevResource* resource, CUdevResourceType type) {
  SIM_CALL(cuCtxGetDevResource, hCtx, resource, type);
  sim::DriverLock lock;
  const sim::context::Context* context = sim::context::Find(hCtx);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return sim::green::WriteSm(resource, type, static_cast<unsigned>(context->sm_count));
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource* resource,
                                  CUdevResourceType type) {
  SIM_CALL(cuGreenCtxGetDevResource, hCtx, resource, type);
  sim::DriverLock lock;
  const sim::green::GreenContext* green = sim::green::g_greens.Find(hCtx);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return sim::green::WriteSm(resource, type, green->sm_count);
}

CUresult cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* nbGroups,
                                     const CUdevResource* input, CUdevResource* remainder,
                                     unsigned int flags, unsigned int minCount) {
  SIM_CALL(cuDevSmResourceSplitByCount, result, nbGroups, input, remainder, flags, minCount);
  constexpr unsigned kKnownFlags = 3;  // ignore co-scheduling, largest possible groups
  if (nbGroups == nullptr || (flags & ~kKnownFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!sim::green::IsSm(input)) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  return sim::green::Split(result, nbGroups, *input, remainder, minCount);
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* phDesc, CUdevResource* resources,
                                   unsigned int nbResources) {
  SIM_CALL(cuDevResourceGenerateDesc, phDesc, resources, nbResources);
  if (phDesc == nullptr || resources == nullptr || nbResources == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  unsigned sm_count = 0;
  for (unsigned index = 0; index < nbResources; ++index) {
    if (!sim::green::IsSm(&resources[index])) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    sm_count += resources[index].sm.smCount;
  }
  sim::DriverLock lock;
  uint64_t handle = 0;
  sim::green::Descriptor* descriptor = sim::green::g_descriptors.Create(&handle);
  if (descriptor == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  descriptor->sm_count = sm_count;
  *phDesc = sim::AsHandle<CUdevResourceDesc>(handle);
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxCreate(CUgreenCtx* phCtx, CUdevResourceDesc desc, CUdevice dev,
                          unsigned int flags) {
  SIM_CALL(cuGreenCtxCreate, phCtx, desc, dev, flags);
  if (phCtx == nullptr || flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
  if (!sim::device::IsValid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  sim::DriverLock lock;
  const sim::green::Descriptor* descriptor = sim::green::g_descriptors.Find(desc);
  if (descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return sim::green::Create(phCtx, *descriptor, dev);
}

CUresult cuGreenCtxDestroy(CUgreenCtx hCtx) {
  SIM_CALL(cuGreenCtxDestroy, hCtx);
  sim::DriverLock lock;
  const sim::green::GreenContext* green = sim::green::g_greens.Find(hCtx);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const int device = green->device;
  sim::context::Context* view = sim::context::Find(sim::AsHandle<CUcontext>(green->view));
  if (view != nullptr) sim::context::Destroy(view);
  sim::green::g_greens.Destroy(hCtx);
  sim::context::ReleasePrimary(device);  // fails only if the primary was reset meanwhile
  return CUDA_SUCCESS;
}

CUresult cuCtxFromGreenCtx(CUcontext* pContext, CUgreenCtx hCtx) {
  SIM_CALL(cuCtxFromGreenCtx, pContext, hCtx);
  sim::DriverLock lock;
  const sim::green::GreenContext* green = sim::green::g_greens.Find(hCtx);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (pContext == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pContext = sim::AsHandle<CUcontext>(green->view);
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxGetId(CUgreenCtx greenCtx, unsigned long long* greenCtxId) {
  SIM_CALL(cuGreenCtxGetId, greenCtx, greenCtxId);
  sim::DriverLock lock;
  const sim::green::GreenContext* green = sim::green::g_greens.Find(greenCtx);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (greenCtxId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *greenCtxId = green->unique_id;
  return CUDA_SUCCESS;
}

}  // extern "C"
