// Managed memory: charged in full and at once, whatever it is attached to, because all of it may
// move to the device.
#include "hooks/piece_reservation.h"
#include "real.h"

extern "C" CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  using gpufence::PieceReservation;
  const gpufence::Hook hook;
  if (hook.refused()) return gpufence::kRefusalCode;
  gpufence::FencedDevice* device = hook.current_device();
  if (device == nullptr || dptr == nullptr || bytesize == 0) {
    return real::cuMemAllocManaged(dptr, bytesize, flags);
  }

  PieceReservation held(device, hook.context(), gpufence::HeapKind::kManaged, bytesize);
  if (!held) return gpufence::OverLimit(device);

  CUdeviceptr address = *dptr;
  const CUresult rc = real::cuMemAllocManaged(&address, bytesize, flags);
  if (rc == CUDA_SUCCESS &&
      !held.Commit({.key = address, .kind = gpufence::HoldingKind::kAddress})) {
    real::cuMemFree_v2(address);
    return gpufence::OverLimit(device);
  }
  *dptr = address;
  return rc;
}
