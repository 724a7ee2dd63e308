// Multicast objects: addresses through which several GPUs write at once. They hold no memory of
// their own; what is bound to one stays alive, and charged where it was created, until it is
// unbound or the object ends. Must not know how physical memory is counted (physical.h).
#include "hooks/memory/physical.h"
#include "real.h"

namespace gpufence {
namespace {

uint64_t BindingKey(uint64_t object, uint64_t ordinal, uint64_t offset) {
  const uint64_t words[] = {object, ordinal, offset};
  return PlaceKey(words, 3);
}

// Binds by calling the driver, with one more reference to the memory while and after.
template <typename Call>
CUresult Bind(uint64_t object, uint64_t memory, const CUdevice* dev, size_t offset, Call call) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  AddedReference bound(hook.fence(), memory);
  const CUresult rc = call();
  if (rc != CUDA_SUCCESS || !bound.added()) return rc;
  // The form without a device means the one that holds the memory.
  const CUdevice own = hook.fence()->devices[bound.physical().device].ordinal;
  const auto ordinal = static_cast<uint64_t>(dev != nullptr ? *dev : own);
  AddLink(hook.fence(), object, BindingKey(object, ordinal, offset), memory);
  bound.Keep();
  return rc;
}

// The handle behind a mapped address; 0 when there is none. The reference that asking takes is
// given back at once: the mapping keeps the memory.
uint64_t HandleAt(CUdeviceptr address) {
  const Hook hook;
  if (hook.fence() == nullptr) return 0;
  CUmemGenericAllocationHandle handle = 0;
  void* pointer = reinterpret_cast<void*>(address);
  if (real::cuMemRetainAllocationHandle(&handle, pointer) != CUDA_SUCCESS) return 0;
  real::cuMemRelease(handle);
  return handle;
}

}  // namespace
}  // namespace gpufence

using namespace gpufence;

extern "C" {

CUresult cuMulticastCreate(CUmemGenericAllocationHandle* mcHandle,
                           const CUmulticastObjectProp* prop) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  const CUresult rc = real::cuMulticastCreate(mcHandle, prop);
  if (rc == CUDA_SUCCESS && hook.fence() != nullptr) {
    hook.fence()->holdings.Put({.key = *mcHandle,
                                .owner = static_cast<uint64_t>(PhysicalKind::kMulticast),
                                .count = 1,
                                .kind = HoldingKind::kPhysical,
                                .family = Family::kImport});
  }
  return rc;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                            CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
                            unsigned long long flags) {
  return Bind(mcHandle, memHandle, nullptr, mcOffset, [&] {
    return real::cuMulticastBindMem(mcHandle, mcOffset, memHandle, memOffset, size, flags);
  });
}

CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset,
                               CUmemGenericAllocationHandle memHandle, size_t memOffset,
                               size_t size, unsigned long long flags) {
  return Bind(mcHandle, memHandle, &dev, mcOffset, [&] {
    return real::cuMulticastBindMem_v2(mcHandle, dev, mcOffset, memHandle, memOffset, size, flags);
  });
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                             CUdeviceptr memptr, size_t size, unsigned long long flags) {
  return Bind(mcHandle, HandleAt(memptr), nullptr, mcOffset,
              [&] { return real::cuMulticastBindAddr(mcHandle, mcOffset, memptr, size, flags); });
}

CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle mcHandle, CUdevice dev,
                                size_t mcOffset, CUdeviceptr memptr, size_t size,
                                unsigned long long flags) {
  return Bind(mcHandle, HandleAt(memptr), &dev, mcOffset, [&] {
    return real::cuMulticastBindAddr_v2(mcHandle, dev, mcOffset, memptr, size, flags);
  });
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset,
                           size_t size) {
  const Hook hook;
  DroppedLink unbound(hook.fence(), BindingKey(mcHandle, static_cast<uint64_t>(dev), mcOffset));
  return unbound.Settle(real::cuMulticastUnbind(mcHandle, dev, mcOffset, size));
}

}  // extern "C"
