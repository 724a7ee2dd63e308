// Managed memory: charged in full and at once, whatever it is attached to, because all of it may
// move to the device.
#include "hooks/fence.h"
#include "real.h"

extern "C" CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  using gpufence::Reservation;
  const gpufence::Hook hook;
  if (hook.refused()) return gpufence::kRefusalCode;
  gpufence::FencedDevice* device = hook.current_device();
  if (device == nullptr || dptr == nullptr || bytesize == 0) {
    return real::cuMemAllocManaged(dptr, bytesize, flags);
  }

  Reservation held(device, bytesize, /*linear=*/true);
  if (!held) return CUDA_ERROR_OUT_OF_MEMORY;

  const CUresult rc = real::cuMemAllocManaged(dptr, bytesize, flags);
  if (rc == CUDA_SUCCESS) {
    held.Commit({.key = *dptr,
                 .context = hook.context(),
                 .kind = gpufence::HoldingKind::kAddress,
                 .family = gpufence::Family::kManaged});
  }
  return rc;
}
