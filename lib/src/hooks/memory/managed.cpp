// Managed memory: charged in full and at once, whatever it is attached to, because all of it may
// move to the device.
//
// Where memory is oversold, what the share has no room for stays on the host, and so do pieces that
// share pages with such: all small ones.
#include <utility>

#include "hooks/memory/piece_reservation.h"
#include "hooks/memory/unified.h"
#include "policy/charge.h"
#include "real.h"

namespace gpufence {
namespace {

CUresult AllocateMovable(FencedDevice* device, uint64_t context, CUdeviceptr* dptr, size_t bytesize,
                         unsigned flags) {
  return WithReservation(device, context, HeapKind::kManaged, bytesize, [&](auto* held) {
    if (!*held) [[unlikely]]
      return NoRoomInContext(device);
    const CUdeviceptr before = *dptr;
    const CUresult rc = real::cuMemAllocManaged(dptr, bytesize, flags);
    if (rc != CUDA_SUCCESS) [[unlikely]]
      return rc;
    if (held->Commit(*dptr)) [[likely]]
      return rc;
    real::cuMemFree_v2(std::exchange(*dptr, before));
    return NoRoomInContext(device);
  });
}

CUresult Allocate(FencedDevice* device, uint64_t context, CUdeviceptr* dptr, size_t bytesize,
                  unsigned flags) {
  if (!device->account.oversold() || !IsSmall(bytesize)) [[likely]] {
    const CUresult rc = AllocateMovable(device, context, dptr, bytesize, flags);
    if (!Overflows(device, rc)) [[likely]]
      return rc;
  }
  return AllocateUnified(device, context, bytesize, flags, dptr);
}

}  // namespace
}  // namespace gpufence

extern "C" [[gnu::flatten]] CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize,
                                                       unsigned int flags) {
  const gpufence::Hook hook;
  if (hook.refused()) return gpufence::kRefusalCode;
  gpufence::FencedDevice* device = hook.allocating_device();
  if (device == nullptr || dptr == nullptr || bytesize == 0) [[unlikely]] {
    return real::cuMemAllocManaged(dptr, bytesize, flags);
  }
  return gpufence::Allocate(device, hook.context(), dptr, bytesize, flags);
}
