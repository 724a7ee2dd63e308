// Linear and pitched device memory, and the free that ends any kind of address.
#include "hooks/fence.h"
#include "hooks/freed.h"
#include "real.h"

using gpufence::FencedDevice;
using gpufence::Freed;
using gpufence::Holding;
using gpufence::HoldingKind;
using gpufence::Hook;
using gpufence::kRefusalCode;
using gpufence::Reservation;

extern "C" {

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  FencedDevice* device = hook.current_device();
  if (device == nullptr) return real::cuMemAlloc_v2(dptr, bytesize);

  Reservation held(device, bytesize, /*linear=*/true);
  if (!held) return CUDA_ERROR_OUT_OF_MEMORY;

  const CUresult rc = real::cuMemAlloc_v2(dptr, bytesize);
  if (rc == CUDA_SUCCESS) {
    held.Commit({.key = *dptr, .context = hook.context(), .kind = HoldingKind::kAddress});
  }
  return rc;
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
  const Hook hook;
  Freed freed(hook.fence(), HoldingKind::kAddress, dptr);
  return freed.Settle(real::cuMemFree_v2(dptr));
}

}  // extern "C"
