// Managed memory: charged in full and at once, whatever it is attached to, because all of it may
// move to the device.
//
// Where memory is oversold, what the share has no room for stays on the host, and so do pieces that
// share pages with such: all small ones. Advice and prefetches that would move or copy it to the
// device are answered as the driver answers the same about the host. As copies in streams,
// prefetches let kernels end first.
#include "hooks/memory/managed.h"

#include <stdint.h>

#include <initializer_list>
#include <utility>

#include "base/forked.h"
#include "hooks/charges.h"
#include "hooks/cores/cores.h"
#include "hooks/cores/streams.h"
#include "hooks/fence.h"
#include "policy/charge.h"
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

// ---- allocating ----

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

// ---- where it is to lie ----

constexpr CUmemLocation kHost = {.type = CU_MEM_LOCATION_TYPE_HOST, .id = 0};

// Whether any allocation in the range stays on the host.
bool AnyStaysOnHost(CUdeviceptr address, size_t bytes) {
  Fence* fence = DecidedFence();
  const CUdeviceptr end = bytes > UINT64_MAX - address ? UINT64_MAX : address + bytes;
  while (HasUnified(fence) && address < end) {
    if (StaysOnHost(fence, address)) return true;
    CUdeviceptr base = 0;
    size_t size = 0;
    if (real::cuMemGetAddressRange_v2(&base, &size, address) != CUDA_SUCCESS) return false;
    address = base + size;
  }
  return false;
}

bool KeepsPlace(CUmem_advise advice) {
  return advice == CU_MEM_ADVISE_SET_ACCESSED_BY || advice == CU_MEM_ADVISE_UNSET_READ_MOSTLY;
}

template <typename Call>
CUresult Advise(CUdeviceptr address, size_t bytes, CUmem_advise advice, Call call) {
  if (KeepsPlace(advice) || !AnyStaysOnHost(address, bytes)) return call();
  return real::cuMemAdvise(address, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU);
}

// One list of places for a whole batch, as the driver takes it: a place for each range from its
// index on.
struct Batch {
  CUdeviceptr* addresses;
  size_t* sizes;
  size_t count;
  CUmemLocation* places;
  size_t* starts;
  size_t place_count;
};

bool AnyStaysOnHost(const Batch& batch) {
  if (!HasUnified(DecidedFence()) || batch.addresses == nullptr || batch.sizes == nullptr) {
    return false;
  }
  for (size_t i = 0; i < batch.count; ++i) {
    if (AnyStaysOnHost(batch.addresses[i], batch.sizes[i])) return true;
  }
  return false;
}

using BatchCall = CUresult (*)(CUdeviceptr*, size_t*, size_t, CUmemLocation*, size_t*, size_t,
                               unsigned long long, CUstream);

// A place of its own for each range, the host for those that stay.
CUresult PrefetchEach(BatchCall call, const Batch& batch, unsigned long long flags,
                      CUstream stream) {
  const auto prefetch = [&](CUmemLocation* places, size_t* starts, size_t place_count) {
    return call(batch.addresses, batch.sizes, batch.count, places, starts, place_count, flags,
                stream);
  };
  const bool is_readable =
      batch.places != nullptr && batch.starts != nullptr && batch.place_count != 0;
  if (!is_readable || !AnyStaysOnHost(batch)) {
    return prefetch(batch.places, batch.starts, batch.place_count);
  }
  const size_t bytes = batch.count * (sizeof(CUmemLocation) + sizeof(size_t));
  void* memory = MapWipedOnFork(bytes);
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  auto* starts = static_cast<size_t*>(memory);
  auto* places = reinterpret_cast<CUmemLocation*>(starts + batch.count);
  for (size_t i = 0, place = 0; i < batch.count; ++i) {
    while (place + 1 < batch.place_count && batch.starts[place + 1] <= i) ++place;
    starts[i] = i;
    places[i] = AnyStaysOnHost(batch.addresses[i], batch.sizes[i]) ? kHost : batch.places[place];
  }
  const CUresult rc = prefetch(places, starts, batch.count);
  UnmapWipedOnFork(memory, bytes);
  return rc;
}

}  // namespace
}  // namespace gpufence

using namespace gpufence;

extern "C" {

[[gnu::flatten]] CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize,
                                            unsigned int flags) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  FencedDevice* device = hook.allocating_device();
  if (device == nullptr || dptr == nullptr || bytesize == 0) [[unlikely]] {
    return real::cuMemAllocManaged(dptr, bytesize, flags);
  }
  return Allocate(device, hook.context(), dptr, bytesize, flags);
}

CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device) {
  return Advise(devPtr, count, advice,
                [&] { return real::cuMemAdvise(devPtr, count, advice, device); });
}

CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                        CUmemLocation location) {
  return Advise(devPtr, count, advice,
                [&] { return real::cuMemAdvise_v2(devPtr, count, advice, location); });
}

CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
                            CUstream hStream) {
  LeaveKernels(hStream);
  const CUdevice place = AnyStaysOnHost(devPtr, count) ? CU_DEVICE_CPU : dstDevice;
  return real::cuMemPrefetchAsync(devPtr, count, place, hStream);
}

CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
                                 CUstream hStream) {
  LeaveKernels(PerThread(hStream));
  const CUdevice place = AnyStaysOnHost(devPtr, count) ? CU_DEVICE_CPU : dstDevice;
  return real::cuMemPrefetchAsync_ptsz(devPtr, count, place, hStream);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                               unsigned int flags, CUstream hStream) {
  LeaveKernels(hStream);
  const CUmemLocation place = AnyStaysOnHost(devPtr, count) ? kHost : location;
  return real::cuMemPrefetchAsync_v2(devPtr, count, place, flags, hStream);
}

CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                                    unsigned int flags, CUstream hStream) {
  LeaveKernels(PerThread(hStream));
  const CUmemLocation place = AnyStaysOnHost(devPtr, count) ? kHost : location;
  return real::cuMemPrefetchAsync_v2_ptsz(devPtr, count, place, flags, hStream);
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                 CUmemLocation* prefetchLocs, size_t* prefetchLocIdxs,
                                 size_t numPrefetchLocs, unsigned long long flags,
                                 CUstream hStream) {
  LeaveKernels(hStream);
  return PrefetchEach(real::cuMemPrefetchBatchAsync,
                      {dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs}, flags,
                      hStream);
}

CUresult cuMemPrefetchBatchAsync_ptsz(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                      CUmemLocation* prefetchLocs, size_t* prefetchLocIdxs,
                                      size_t numPrefetchLocs, unsigned long long flags,
                                      CUstream hStream) {
  LeaveKernels(PerThread(hStream));
  return PrefetchEach(real::cuMemPrefetchBatchAsync_ptsz,
                      {dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs}, flags,
                      hStream);
}

CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                           CUmemLocation* prefetchLocs, size_t* prefetchLocIdxs,
                                           size_t numPrefetchLocs, unsigned long long flags,
                                           CUstream hStream) {
  LeaveKernels(hStream);
  return PrefetchEach(real::cuMemDiscardAndPrefetchBatchAsync,
                      {dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs}, flags,
                      hStream);
}

CUresult cuMemDiscardAndPrefetchBatchAsync_ptsz(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                                CUmemLocation* prefetchLocs,
                                                size_t* prefetchLocIdxs, size_t numPrefetchLocs,
                                                unsigned long long flags, CUstream hStream) {
  LeaveKernels(PerThread(hStream));
  return PrefetchEach(real::cuMemDiscardAndPrefetchBatchAsync_ptsz,
                      {dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs}, flags,
                      hStream);
}

}  // extern "C"
