// dma-bufs of device memory, as network cards read it. One holds every allocation that its
// addresses lie in, whole but for a pool's, until the last duplicate of its descriptor is closed
// (seen on an H200).
// Must not know how that is found out (state/exported.h).
#include "hooks/memory/physical.h"
#include "hooks/memory/piece_reservation.h"
#include "hooks/sharing/shared_memory.h"
#include "policy/charge.h"
#include "real.h"

namespace gpufence {
namespace {

void MarkPhysical(Fence* fence, uint64_t handle, int fd) {
  const AddedReference exported(fence, handle);
  if (exported.added()) MarkExported(fence, exported.physical(), fd);
}

// A pool's piece is held by the blocks that the range touches, everything else whole.
void MarkPiece(Fence* fence, const Holding& piece, uint64_t from, uint64_t to, int fd) {
  const uint64_t end = piece.key + piece.bytes;
  const bool in_part = piece.family == Family::kStreamOrdered;
  MarkExported(fence, piece, fd,
               in_part ? BlockBytes(from, (to < end ? to : end) - from) : UINT64_MAX);
}

// Marks what lies at an address of a range. Returns where something else may begin.
uint64_t MarkAt(Fence* fence, uint64_t address, uint64_t to, int fd) {
  Holding holding;
  if (fence->holdings.Get(HoldingKind::kMapping, address, &holding)) {
    MarkPhysical(fence, holding.owner, fd);
    return address + holding.bytes;
  }
  CUdeviceptr base = 0;
  size_t bytes = 0;
  if (real::cuMemGetAddressRange_v2(&base, &bytes, address) == CUDA_SUCCESS &&
      GetAddress(fence, base, &holding)) {
    MarkPiece(fence, holding, address, to, fd);
    return base + bytes;
  }
  // Within a mapping that began before the range.
  CUmemGenericAllocationHandle handle = 0;
  if (real::cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(address)) ==
      CUDA_SUCCESS) {
    MarkPhysical(fence, handle, fd);
    real::cuMemRelease(handle);
  }
  return (address & ~(kChunkBytes - 1)) + kChunkBytes;
}

}  // namespace
}  // namespace gpufence

using namespace gpufence;

extern "C" {

CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr dptr, size_t size,
                                       CUmemRangeHandleType handleType, unsigned long long flags) {
  const Hook hook;
  const CUresult rc = real::cuMemGetHandleForAddressRange(handle, dptr, size, handleType, flags);
  Fence* fence = hook.fence();
  if (fence == nullptr) return rc;
  if (rc != CUDA_SUCCESS) {
    SayIfOnHost(fence, dptr, "cuMemGetHandleForAddressRange");
  } else if (handleType == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD) {
    const int fd = *static_cast<int*>(handle);
    for (uint64_t at = dptr; at < dptr + size;) at = MarkAt(fence, at, dptr + size, fd);
  }
  return rc;
}

}  // extern "C"
