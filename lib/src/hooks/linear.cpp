// Linear and pitched device memory, and the free that ends any kind of address.
//
// The 32-bit forms take addresses below 4 GiB, for which the driver shares no chunks.
#include "hooks/fence.h"
#include "hooks/freed.h"
#include "hooks/piece_reservation.h"
#include "hooks/pool_account.h"
#include "hooks/pool_release.h"
#include "policy/charge.h"
#include "real.h"

namespace gpufence {
namespace {

// The alignment of rows as all measured GPUs have it; what the driver answers decides.
constexpr uint64_t kUsualPitch = 512;

template <typename Pointer, typename Size>
using AllocateCall = CUresult (*)(Pointer*, Size);
template <typename Pointer, typename Size>
using PitchCall = CUresult (*)(Pointer*, Size*, Size, Size, unsigned int);
template <typename Pointer>
using FreeCall = CUresult (*)(Pointer);

Holding AtAddress(uint64_t address) { return {.key = address, .kind = HoldingKind::kAddress}; }

template <typename Pointer>
CUresult Undo(FencedDevice* device, Pointer address, FreeCall<Pointer> undo) {
  undo(address);
  return OverLimit(device);
}

template <typename Pointer, typename Size>
CUresult Allocate(Pointer* dptr, Size bytesize, bool shares_chunks,
                  AllocateCall<Pointer, Size> call, FreeCall<Pointer> undo) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  FencedDevice* device = hook.current_device();
  // What the driver refuses by itself, it refuses in its own words.
  if (device == nullptr || dptr == nullptr || bytesize == 0) return call(dptr, bytesize);

  PieceReservation held(device, hook.context(), HeapKind::kLinear,
                        shares_chunks ? bytesize : RoundUp(bytesize, kChunkBytes));
  if (!held) return OverLimit(device);

  Pointer address = *dptr;
  const CUresult rc = call(&address, bytesize);
  if (rc == CUDA_SUCCESS && !held.Commit(AtAddress(address))) return Undo(device, address, undo);
  *dptr = address;
  return rc;
}

uint64_t RowBytes(uint64_t row_bytes, uint64_t rows) {
  uint64_t bytes = 0;
  return __builtin_mul_overflow(row_bytes, rows, &bytes) ? UINT64_MAX : bytes;
}

bool IsElementSize(unsigned int bytes) { return bytes == 4 || bytes == 8 || bytes == 16; }

template <typename Pointer, typename Size>
CUresult AllocatePitch(Pointer* dptr, Size* pitch, Size width, Size height, unsigned int element,
                       bool shares_chunks, PitchCall<Pointer, Size> call, FreeCall<Pointer> undo) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  FencedDevice* device = hook.current_device();
  if (device == nullptr || dptr == nullptr || pitch == nullptr || width == 0 || height == 0 ||
      !IsElementSize(element)) {
    return call(dptr, pitch, width, height, element);
  }
  const auto charge_of = [&](uint64_t bytes) {
    return shares_chunks ? bytes : RoundUp(bytes, kChunkBytes);
  };
  const uint64_t expected = charge_of(RowBytes(RoundUp(width, kUsualPitch), height));
  Pointer address = 0;
  Size real_pitch = 0;
  {
    PieceReservation held(device, hook.context(), HeapKind::kLinear, expected);
    if (!held) return OverLimit(device);
    const CUresult rc = call(&address, &real_pitch, width, height, element);
    if (rc != CUDA_SUCCESS) return rc;
    const uint64_t bytes = charge_of(RowBytes(real_pitch, height));
    if (bytes == expected) {
      if (!held.Commit(AtAddress(address))) return Undo(device, address, undo);
    } else {
      PieceReservation exact(device, hook.context(), HeapKind::kLinear, bytes);
      if (!exact || !exact.Commit(AtAddress(address))) return Undo(device, address, undo);
    }
  }
  *dptr = address;
  *pitch = real_pitch;
  return CUDA_SUCCESS;
}

template <typename Pointer>
CUresult Free(Pointer dptr, FreeCall<Pointer> call) {
  const Hook hook;
  Freed freed(hook.fence(), HoldingKind::kAddress, dptr);
  // Of a pool's memory, this form waits for the stream and lets it go at once.
  const bool of_pool = freed.found() && freed.holding().family == Family::kStreamOrdered;
  const PoolRelease release(of_pool ? hook.fence() : nullptr);
  const CUresult rc = freed.Settle(call(dptr));
  if (rc == CUDA_SUCCESS && of_pool) {
    SettleFreed(hook.fence());
  }
  return rc;
}

}  // namespace
}  // namespace gpufence

extern "C" {

CUresult cuMemAlloc(CUdeviceptr_v1* dptr, unsigned int bytesize) {
  return gpufence::Allocate(dptr, bytesize, /*shares_chunks=*/false, real::cuMemAlloc,
                            real::cuMemFree);
}

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  return gpufence::Allocate(dptr, bytesize, /*shares_chunks=*/true, real::cuMemAlloc_v2,
                            real::cuMemFree_v2);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1* dptr, unsigned int* pPitch, unsigned int WidthInBytes,
                         unsigned int Height, unsigned int ElementSizeBytes) {
  return gpufence::AllocatePitch(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes,
                                 /*shares_chunks=*/false, real::cuMemAllocPitch, real::cuMemFree);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
  return gpufence::AllocatePitch(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes,
                                 /*shares_chunks=*/true, real::cuMemAllocPitch_v2,
                                 real::cuMemFree_v2);
}

CUresult cuMemFree(CUdeviceptr_v1 dptr) { return gpufence::Free(dptr, real::cuMemFree); }

CUresult cuMemFree_v2(CUdeviceptr dptr) { return gpufence::Free(dptr, real::cuMemFree_v2); }

}  // extern "C"
