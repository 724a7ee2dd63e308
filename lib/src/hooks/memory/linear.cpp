// Linear and pitched device memory, and the free that ends any kind of address.
//
// The 32-bit forms take addresses below 4 GiB, for which the driver shares no chunks, and where
// unified memory never lies.
#include <utility>

#include "hooks/charges.h"
#include "hooks/fence.h"
#include "hooks/memory/managed.h"
#include "hooks/pools/pool_account.h"
#include "hooks/pools/pools.h"
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

template <typename Pointer>
inline constexpr bool kSharesChunks = sizeof(Pointer) == sizeof(CUdeviceptr);

template <typename Pointer>
[[gnu::cold, gnu::noinline]] CUresult NoRoom(FencedDevice* device) {
  return kSharesChunks<Pointer> ? NoRoomInContext(device) : OverLimitInContext(device);
}

// What is reserved for `bytes`.
template <typename Pointer>
uint64_t ChargeOf(uint64_t bytes) {
  return kSharesChunks<Pointer> ? bytes : RoundUp(bytes, kChunkBytes);
}

template <typename Pointer>
[[gnu::cold, gnu::noinline]] CUresult Undo(FencedDevice* device, Pointer address,
                                           FreeCall<Pointer> undo) {
  undo(address);
  return NoRoom<Pointer>(device);
}

template <typename Pointer, typename Size>
CUresult AllocateOnDevice(FencedDevice* device, uint64_t context, Pointer* dptr, Size bytesize,
                          AllocateCall<Pointer, Size> call, FreeCall<Pointer> undo) {
  return WithReservation(device, context, HeapKind::kLinear, ChargeOf<Pointer>(bytesize),
                         [&](auto* held) {
                           if (!*held) [[unlikely]]
                             return NoRoom<Pointer>(device);
                           const Pointer before = *dptr;
                           const CUresult rc = call(dptr, bytesize);
                           if (rc != CUDA_SUCCESS) [[unlikely]]
                             return rc;
                           if (held->Commit(*dptr)) [[likely]]
                             return rc;
                           return Undo(device, std::exchange(*dptr, before), undo);
                         });
}

template <typename Pointer, typename Size>
[[gnu::flatten]] CUresult Allocate(Pointer* dptr, Size bytesize, AllocateCall<Pointer, Size> call,
                                   FreeCall<Pointer> undo) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  FencedDevice* device = hook.allocating_device();
  // What the driver refuses by itself, it refuses in its own words.
  if (device == nullptr || dptr == nullptr || bytesize == 0) [[unlikely]]
    return call(dptr, bytesize);
  const CUresult rc = AllocateOnDevice(device, hook.context(), dptr, bytesize, call, undo);
  if constexpr (kSharesChunks<Pointer>) {
    if (Overflows(device, rc)) [[unlikely]] {
      return AllocateUnified(device, hook.context(), bytesize, CU_MEM_ATTACH_GLOBAL, dptr);
    }
  }
  return rc;
}

uint64_t RowBytes(uint64_t row_bytes, uint64_t rows) {
  uint64_t bytes = 0;
  return __builtin_mul_overflow(row_bytes, rows, &bytes) ? UINT64_MAX : bytes;
}

bool IsElementSize(unsigned int bytes) { return bytes == 4 || bytes == 8 || bytes == 16; }

uint64_t UsualBytes(uint64_t width, uint64_t height) {
  return RowBytes(RoundUp(width, kUsualPitch), height);
}

template <typename Pointer, typename Size>
struct PitchRequest {
  Size width;
  Size height;
  unsigned int element;
  PitchCall<Pointer, Size> call;
  FreeCall<Pointer> undo;
};

template <typename Pointer, typename Size>
CUresult AllocatePitchOnDevice(FencedDevice* device, uint64_t context, Pointer* dptr, Size* pitch,
                               const PitchRequest<Pointer, Size>& asked) {
  const uint64_t expected = ChargeOf<Pointer>(UsualBytes(asked.width, asked.height));
  PieceReservation held(device, context, HeapKind::kLinear, expected);
  if (!held) return NoRoom<Pointer>(device);
  Pointer address = 0;
  Size real_pitch = 0;
  const CUresult rc = asked.call(&address, &real_pitch, asked.width, asked.height, asked.element);
  if (rc != CUDA_SUCCESS) return rc;
  const uint64_t bytes = ChargeOf<Pointer>(RowBytes(real_pitch, asked.height));
  if (bytes == expected) {
    if (!held.Commit(address)) return Undo(device, address, asked.undo);
  } else {
    PieceReservation exact(device, context, HeapKind::kLinear, bytes);
    if (!exact || !exact.Commit(address)) return Undo(device, address, asked.undo);
  }
  *dptr = address;
  *pitch = real_pitch;
  return CUDA_SUCCESS;
}

template <typename Pointer, typename Size>
CUresult AllocatePitch(Pointer* dptr, Size* pitch, const PitchRequest<Pointer, Size>& asked) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  FencedDevice* device = hook.allocating_device();
  if (device == nullptr || dptr == nullptr || pitch == nullptr || asked.width == 0 ||
      asked.height == 0 || !IsElementSize(asked.element)) {
    return asked.call(dptr, pitch, asked.width, asked.height, asked.element);
  }
  CUresult rc = AllocatePitchOnDevice(device, hook.context(), dptr, pitch, asked);
  if constexpr (kSharesChunks<Pointer>) {
    if (!Overflows(device, rc)) return rc;
    rc = AllocateUnified(device, hook.context(), UsualBytes(asked.width, asked.height),
                         CU_MEM_ATTACH_GLOBAL, dptr);
    if (rc == CUDA_SUCCESS) *pitch = RoundUp(asked.width, kUsualPitch);
  }
  return rc;
}

// Of a pool's memory, this form waits for the stream and lets it go at once.
template <typename Pointer>
[[gnu::noinline]] CUresult FreePooled(Fence* fence, Holding holding, bool was_exported,
                                      Pointer dptr, FreeCall<Pointer> call) {
  const PoolRelease release(fence);
  const CUresult rc = call(dptr);
  if (rc == CUDA_SUCCESS) {
    Discharge(fence, holding);
    GiveBackFreed(fence);
  } else {
    Restore(fence, holding, was_exported);
  }
  return rc;
}

template <typename Pointer>
[[gnu::flatten]] CUresult Free(Pointer dptr, FreeCall<Pointer> call) {
  const Hook hook;
  Freed freed(hook.fence(), dptr);
  if (freed.found() && freed.holding().family == Family::kStreamOrdered) [[unlikely]] {
    freed.Keep();
    return FreePooled(hook.fence(), CopyOf(freed.holding()), freed.was_exported(), dptr, call);
  }
  return freed.Settle(call(dptr));
}

}  // namespace
}  // namespace gpufence

extern "C" {

CUresult cuMemAlloc(CUdeviceptr_v1* dptr, unsigned int bytesize) {
  return gpufence::Allocate(dptr, bytesize, real::cuMemAlloc, real::cuMemFree);
}

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  return gpufence::Allocate(dptr, bytesize, real::cuMemAlloc_v2, real::cuMemFree_v2);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1* dptr, unsigned int* pPitch, unsigned int WidthInBytes,
                         unsigned int Height, unsigned int ElementSizeBytes) {
  return gpufence::AllocatePitch<CUdeviceptr_v1, unsigned int>(
      dptr, pPitch,
      {WidthInBytes, Height, ElementSizeBytes, real::cuMemAllocPitch, real::cuMemFree});
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
  return gpufence::AllocatePitch<CUdeviceptr, size_t>(
      dptr, pPitch,
      {WidthInBytes, Height, ElementSizeBytes, real::cuMemAllocPitch_v2, real::cuMemFree_v2});
}

CUresult cuMemFree(CUdeviceptr_v1 dptr) { return gpufence::Free(dptr, real::cuMemFree); }

CUresult cuMemFree_v2(CUdeviceptr dptr) { return gpufence::Free(dptr, real::cuMemFree_v2); }

}  // extern "C"
