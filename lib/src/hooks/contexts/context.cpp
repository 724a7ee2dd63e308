// Contexts: each is paid for while it lives, and takes with it what was allocated in it.
// Primary contexts are counted by the driver; we look at its count after each change.
#include "hooks/contexts/context_cost.h"
#include "hooks/contexts/overhead.h"
#include "hooks/cores/cores.h"
#include "real.h"

namespace gpufence {
namespace {

uint64_t KeyOf(CUcontext context) { return reinterpret_cast<uint64_t>(context); }

FencedDevice* FencedOf(const Hook& hook, CUdevice device) {
  return hook.fence() != nullptr ? FencedOrdinal(hook.fence(), static_cast<uint32_t>(device))
                                 : nullptr;
}

// Before the driver is told to, whoever asks: inside of our hooks, too, and on any device.
void AnotherContext() {
  Fence* fence = the_fence.load(std::memory_order_acquire);
  if (fence != nullptr) fence->sole_context.Another();
}

bool IsPrimaryActive(CUdevice device) {
  unsigned int flags = 0;
  int active = 0;
  return real::cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active != 0;
}

template <typename Make>
CUresult Create(CUcontext* out, CUdevice ordinal, Make make) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  FencedDevice* device = FencedOf(hook, ordinal);
  AnotherContext();
  if (device == nullptr || out == nullptr) return make(out);
  NewContext cost(device);
  if (!cost) return cost.Refused();
  CUcontext made = nullptr;
  const CUresult rc = make(&made);
  if (rc != CUDA_SUCCESS) return rc;
  if (!cost.Settle(hook.fence(), made, kFreshHandle)) {
    real::cuCtxDestroy_v2(made);
    return cost.Refused();
  }
  *out = made;
  return CUDA_SUCCESS;
}

template <typename Destroy>
CUresult Destroyed(CUcontext context, Destroy destroy) {
  const Hook hook;
  Fence* fence = hook.fence();
  const uint64_t booking = fence != nullptr ? BookingOf(fence, KeyOf(context)) : 0;
  CoreContextEnd core_end(context, 0);
  if (fence != nullptr) DischargeBeforeEnd(fence, context, /*waits=*/true);
  const CUresult rc = destroy(context);
  core_end.Settle(rc == CUDA_SUCCESS);
  if (rc == CUDA_SUCCESS && fence != nullptr) ContextEnded(fence, KeyOf(context), booking);
  return rc;
}

// A retain elsewhere may bring it back to life meanwhile, with the same handle: then what was
// booked before is that retain's to end.
void EndPrimaryIfInactive(Fence* fence, FencedDevice* device) {
  const uint64_t primary = device->primary.load(std::memory_order_relaxed);
  const uint64_t booking = BookingOf(fence, primary);
  if (primary == 0 || IsPrimaryActive(device->ordinal)) return;
  ContextEnded(fence, primary, booking);
}

// It was booked. Somebody may have ended it before that, and found nothing to give back.
void PrimaryMade(Fence* fence, FencedDevice* device, CUcontext primary, const NewContext& cost) {
  device->primary.store(KeyOf(primary), std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with the count in ContextEnded
  if (cost.SawEnd()) EndPrimaryIfInactive(fence, device);
}

CUresult RetainPrimary(CUcontext* out, CUdevice ordinal) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  FencedDevice* device = FencedOf(hook, ordinal);
  if (device == nullptr || out == nullptr) {
    AnotherContext();
    return real::cuDevicePrimaryCtxRetain(out, ordinal);
  }
  const uint64_t before = BookingOf(hook.fence(), device->primary.load());
  const bool makes_it = !IsPrimaryActive(ordinal);
  if (makes_it) AnotherContext();
  NewContext cost(makes_it ? device : nullptr);
  if (!cost) return cost.Refused();
  CUcontext primary = nullptr;
  const CUresult rc = real::cuDevicePrimaryCtxRetain(&primary, ordinal);
  if (rc != CUDA_SUCCESS) return rc;
  if (!cost.Settle(hook.fence(), primary, before)) {
    real::cuDevicePrimaryCtxRelease_v2(ordinal);
    return cost.Refused();
  }
  PrimaryMade(hook.fence(), device, primary, cost);
  if (makes_it) hook.fence()->sole_context.Made(KeyOf(primary));
  *out = primary;
  return CUDA_SUCCESS;
}

// Which life of a context this is: a primary one keeps its handle. 0 before CUDA 12.
unsigned long long LifeOf(uint64_t context) {
  unsigned long long id = 0;
  if (context == 0) return 0;
  return real::cuCtxGetId(reinterpret_cast<CUcontext>(context), &id) == CUDA_SUCCESS ? id : 0;
}

// A release ends the primary context if it was the last one, a reset whoever else uses it; and
// these may have brought it back to life already.
template <typename Release>
CUresult ReleasedPrimary(CUdevice ordinal, bool ends, Release release) {
  const Hook hook;
  FencedDevice* device = FencedOf(hook, ordinal);
  const uint64_t primary = device != nullptr ? device->primary.load() : 0;
  const uint64_t booking = primary != 0 ? BookingOf(hook.fence(), primary) : 0;
  const unsigned long long life = LifeOf(primary);
  CoreContextEnd core_end(nullptr, ordinal);
  if (primary != 0) DischargeBeforeEnd(hook.fence(), reinterpret_cast<CUcontext>(primary), ends);
  const CUresult rc = release(ordinal);
  const bool ended =
      rc == CUDA_SUCCESS && (ends || !IsPrimaryActive(ordinal) || LifeOf(primary) != life);
  core_end.Settle(ended);
  if (ended && primary != 0) {
    ContextEnded(hook.fence(), primary, booking);
  } else if (ended && device != nullptr) {
    // Whoever has just made it finds that, or is found here.
    device->moves.ContextEnded(/*primary=*/true);
    EndPrimaryIfInactive(hook.fence(), device);
  }
  return rc;
}

CUresult Attach(CUcontext* out, unsigned int flags) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  const CUresult rc = real::cuCtxAttach(out, flags);
  if (rc != CUDA_SUCCESS || hook.fence() == nullptr) return rc;
  Holding context;
  hook.fence()->holdings.AddReference(HoldingKind::kContext, KeyOf(*out), 1, &context);
  return rc;
}

// The last of creation and attachments ends a context; a primary one is the driver's to count.
CUresult Detach(CUcontext context) {
  const Hook hook;
  Fence* fence = hook.fence();
  Holding found;
  const bool known =
      fence != nullptr && fence->holdings.Get(HoldingKind::kContext, KeyOf(context), &found);
  CoreContextEnd core_end(context, 0);
  if (fence != nullptr) DischargeBeforeEnd(fence, context, /*waits=*/false);
  const CUresult rc = real::cuCtxDetach(context);
  core_end.Settle(rc == CUDA_SUCCESS && !IsAlive(KeyOf(context)));
  if (rc != CUDA_SUCCESS || !known) return rc;
  FencedDevice* device = &fence->devices[found.device];
  if (device->primary.load(std::memory_order_relaxed) == KeyOf(context)) {
    EndPrimaryIfInactive(fence, device);
  } else if (found.count <= 1) {
    ContextEnded(fence, KeyOf(context), found.context);
  } else {
    fence->holdings.AddReference(HoldingKind::kContext, KeyOf(context), -1, &found);
  }
  return rc;
}

// A green context brings the primary context to life where nobody retained it, and that is what it
// costs; whatever it takes of its own is measured with it. Retaining once more and releasing again
// tells the primary's handle.
CUresult CreateGreen(CUgreenCtx* out, CUdevResourceDesc desc, CUdevice ordinal,
                     unsigned int flags) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  FencedDevice* device = FencedOf(hook, ordinal);
  AnotherContext();
  if (device == nullptr || out == nullptr) {
    return real::cuGreenCtxCreate(out, desc, ordinal, flags);
  }
  CUgreenCtx green = nullptr;
  const auto make = [&] { return real::cuGreenCtxCreate(&green, desc, ordinal, flags); };
  const auto undo = [&] { return real::cuGreenCtxDestroy(green); };
  CUresult rc = CUDA_SUCCESS;
  const uint64_t before = BookingOf(hook.fence(), device->primary.load());
  if (IsPrimaryActive(ordinal)) {
    rc = CallThatGrows(device, 0, make, undo);
  } else {
    NewContext cost(device);
    if (!cost) return cost.Refused();
    rc = make();
    CUcontext primary = nullptr;
    if (rc == CUDA_SUCCESS && real::cuDevicePrimaryCtxRetain(&primary, ordinal) == CUDA_SUCCESS) {
      const bool fits = cost.Settle(hook.fence(), primary, before);
      PrimaryMade(hook.fence(), device, primary, cost);
      real::cuDevicePrimaryCtxRelease_v2(ordinal);
      if (!fits) {
        undo();
        rc = cost.Refused();
      }
    }
  }
  if (rc == CUDA_SUCCESS) *out = green;
  return rc;
}

CUresult DestroyGreen(CUgreenCtx green) {
  const Hook hook;
  Fence* fence = hook.fence();
  CUcontext view = nullptr;
  if (fence != nullptr && real::cuCtxFromGreenCtx(&view, green) != CUDA_SUCCESS) view = nullptr;
  CoreContextEnd core_end(view, 0);
  if (view != nullptr) DischargeBeforeEnd(fence, view, /*waits=*/false);
  const CUresult rc = real::cuGreenCtxDestroy(green);
  core_end.Settle(rc == CUDA_SUCCESS && view != nullptr);
  if (rc != CUDA_SUCCESS || fence == nullptr) return rc;
  if (view != nullptr) ContextEnded(fence, KeyOf(view), 0);
  for (uint32_t i = 0; i < fence->device_count; ++i) {
    EndPrimaryIfInactive(fence, &fence->devices[i]);
  }
  return rc;
}

CUresult ViewGreen(CUcontext* out, CUgreenCtx green) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  return CallThatGrows(hook.current_device(), 0,
                       [&] { return real::cuCtxFromGreenCtx(out, green); });
}

}  // namespace
}  // namespace gpufence

extern "C" {

CUresult cuCtxCreate(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return gpufence::Create(pctx, dev,
                          [&](CUcontext* made) { return real::cuCtxCreate(made, flags, dev); });
}

CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return gpufence::Create(pctx, dev,
                          [&](CUcontext* made) { return real::cuCtxCreate_v2(made, flags, dev); });
}

CUresult cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam* paramsArray, int numParams,
                        unsigned int flags, CUdevice dev) {
  return gpufence::Create(pctx, dev, [&](CUcontext* made) {
    return real::cuCtxCreate_v3(made, paramsArray, numParams, flags, dev);
  });
}

CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* ctxCreateParams, unsigned int flags,
                        CUdevice dev) {
  return gpufence::Create(pctx, dev, [&](CUcontext* made) {
    return real::cuCtxCreate_v4(made, ctxCreateParams, flags, dev);
  });
}

CUresult cuGLCtxCreate(CUcontext* pCtx, unsigned int Flags, CUdevice device) {
  return gpufence::Create(
      pCtx, device, [&](CUcontext* made) { return real::cuGLCtxCreate(made, Flags, device); });
}

CUresult cuGLCtxCreate_v2(CUcontext* pCtx, unsigned int Flags, CUdevice device) {
  return gpufence::Create(
      pCtx, device, [&](CUcontext* made) { return real::cuGLCtxCreate_v2(made, Flags, device); });
}

CUresult cuVDPAUCtxCreate(CUcontext* pCtx, unsigned int flags, CUdevice device, VdpDevice vdpDevice,
                          VdpGetProcAddress* vdpGetProcAddress) {
  return gpufence::Create(pCtx, device, [&](CUcontext* made) {
    return real::cuVDPAUCtxCreate(made, flags, device, vdpDevice, vdpGetProcAddress);
  });
}

CUresult cuVDPAUCtxCreate_v2(CUcontext* pCtx, unsigned int flags, CUdevice device,
                             VdpDevice vdpDevice, VdpGetProcAddress* vdpGetProcAddress) {
  return gpufence::Create(pCtx, device, [&](CUcontext* made) {
    return real::cuVDPAUCtxCreate_v2(made, flags, device, vdpDevice, vdpGetProcAddress);
  });
}

CUresult cuCtxDestroy(CUcontext ctx) { return gpufence::Destroyed(ctx, real::cuCtxDestroy); }

CUresult cuCtxDestroy_v2(CUcontext ctx) { return gpufence::Destroyed(ctx, real::cuCtxDestroy_v2); }

CUresult cuCtxAttach(CUcontext* pctx, unsigned int flags) { return gpufence::Attach(pctx, flags); }

CUresult cuCtxDetach(CUcontext ctx) { return gpufence::Detach(ctx); }

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  return gpufence::RetainPrimary(pctx, dev);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
  return gpufence::ReleasedPrimary(dev, false, real::cuDevicePrimaryCtxRelease);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  return gpufence::ReleasedPrimary(dev, false, real::cuDevicePrimaryCtxRelease_v2);
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev) {
  return gpufence::ReleasedPrimary(dev, true, real::cuDevicePrimaryCtxReset);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  return gpufence::ReleasedPrimary(dev, true, real::cuDevicePrimaryCtxReset_v2);
}

CUresult cuGreenCtxCreate(CUgreenCtx* phCtx, CUdevResourceDesc desc, CUdevice dev,
                          unsigned int flags) {
  return gpufence::CreateGreen(phCtx, desc, dev, flags);
}

CUresult cuGreenCtxDestroy(CUgreenCtx hCtx) { return gpufence::DestroyGreen(hCtx); }

CUresult cuCtxFromGreenCtx(CUcontext* pContext, CUgreenCtx hCtx) {
  return gpufence::ViewGreen(pContext, hCtx);
}

}  // extern "C"
