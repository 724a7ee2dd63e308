#include "hooks/memory/unified.h"

#include "hooks/memory/piece_reservation.h"
#include "hooks/refusal.h"
#include "real.h"

namespace gpufence {
namespace {

// Mapped, not migrated: pages that move to the device on demand would pass the share, and nobody is
// told. The form with a plain device number is the one that every driver has.
bool KeepOnHost(const FencedDevice* device, CUdeviceptr address, uint64_t bytes) {
  return real::cuMemAdvise(address, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU) ==
             CUDA_SUCCESS &&
         real::cuMemAdvise(address, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, device->ordinal) ==
             CUDA_SUCCESS;
}

// May read too high in a forked child, which costs it a search.
constinit std::atomic<bool> any_unified{false};

bool HasAttribute(CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  return real::cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

}  // namespace

CUresult AllocateUnified(FencedDevice* device, uint64_t context, uint64_t bytes, unsigned flags,
                         CUdeviceptr* address) {
  PieceReservation held(device, context, HeapKind::kManaged, bytes, Tier::kUnified);
  if (!held) return OverLimitInContext(device);
  CUdeviceptr made = 0;
  const CUresult rc = real::cuMemAllocManaged(&made, bytes, flags);
  if (rc != CUDA_SUCCESS) return rc;
  if (!KeepOnHost(device, made, bytes) || !held.Commit(made)) {
    real::cuMemFree_v2(made);
    return OverLimit(device);
  }
  NoteUnified();
  *address = made;
  return CUDA_SUCCESS;
}

void NoteUnified() {
  if (!any_unified.load(std::memory_order_relaxed)) {
    any_unified.store(true, std::memory_order_relaxed);
  }
}

bool HasUnified(const Fence* fence) {
  return fence != nullptr && any_unified.load(std::memory_order_relaxed);
}

bool StaysOnHost(Fence* fence, CUdeviceptr address) {
  if (!HasUnified(fence)) return false;
  CUdeviceptr base = 0;
  Holding holding;
  if (real::cuMemGetAddressRange_v2(&base, nullptr, address) != CUDA_SUCCESS ||
      !GetAddress(fence, base, &holding)) {
    return false;
  }
  return holding.family == Family::kUnified ||
         (holding.family == Family::kStreamOrdered &&
          reinterpret_cast<PoolAccount*>(holding.owner)->tier == Tier::kUnified);
}

bool CanOversell(CUdevice device) {
  return HasAttribute(device, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY) &&
         HasAttribute(device, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS);
}

}  // namespace gpufence
