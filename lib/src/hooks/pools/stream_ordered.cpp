// Stream-ordered memory: taken from a pool, which carries the charge, and given back to it. Where
// memory is oversold and the pool's device has no room, the device's overflow pool serves.
//
// While a stream is captured, an allocation is a node of the graph and costs nothing yet.
#include <initializer_list>

#include "device/ids.h"
#include "hooks/charges.h"
#include "hooks/fence.h"
#include "hooks/graphs/capture.h"
#include "hooks/memory/managed.h"
#include "hooks/pools/late_frees.h"
#include "hooks/pools/pool_account.h"
#include "hooks/pools/pools.h"
#include "policy/charge.h"
#include "real.h"

namespace gpufence {
namespace {

// How the driver rounds inside a pool.
constexpr uint64_t kPoolStep = 512;

// The two default streams that one handle may mean.
struct LegacyStream {
  static CUresult IsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
    return real::cuStreamIsCapturing(stream, status);
  }
  static CUresult Device(CUstream stream, CUdevice* device) {
    return real::cuStreamGetDevice(stream, device);
  }
  static CUresult Free(CUdeviceptr address, CUstream stream) {
    return real::cuMemFreeAsync(address, stream);
  }
  static CUresult AllocateFrom(CUdeviceptr* address, size_t bytes, CUmemoryPool pool,
                               CUstream stream) {
    return real::cuMemAllocFromPoolAsync(address, bytes, pool, stream);
  }
  static FreeingStream Freeing(CUstream stream) {
    return {stream, real::cuStreamGetCtx, real::cuEventRecord};
  }
};

struct PerThreadStream {
  static CUresult IsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
    return real::cuStreamIsCapturing_ptsz(stream, status);
  }
  static CUresult Device(CUstream stream, CUdevice* device) {
    return real::cuStreamGetDevice_ptsz(stream, device);
  }
  static CUresult Free(CUdeviceptr address, CUstream stream) {
    return real::cuMemFreeAsync_ptsz(address, stream);
  }
  static CUresult AllocateFrom(CUdeviceptr* address, size_t bytes, CUmemoryPool pool,
                               CUstream stream) {
    return real::cuMemAllocFromPoolAsync_ptsz(address, bytes, pool, stream);
  }
  static FreeingStream Freeing(CUstream stream) {
    return {stream, real::cuStreamGetCtx_ptsz, real::cuEventRecord_ptsz};
  }
};

// The device whose pool serves the stream. Drivers before 580 cannot be asked, and programs make a
// stream's context current there to use it.
template <typename Stream>
[[gnu::noinline]] uint32_t AskDeviceOfStream(CUstream stream) {
  CUdevice device = 0;
  if (Stream::Device(stream, &device) == CUDA_SUCCESS) return static_cast<uint32_t>(device);
  return CurrentDevice();
}

template <typename Stream>
[[gnu::noinline]] bool AskWhetherCaptured(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return Stream::IsCapturing(stream, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

template <typename Stream>
bool IsCaptured(CUstream stream) {
  return MayCapture() && AskWhetherCaptured<Stream>(stream);
}

// The account that pays for an allocation on the stream; null when nobody does. `pool` is null for
// the device's current one. With one device there is little to ask.
template <typename Stream>
bool FindAccount(Fence* fence, CUmemoryPool pool, CUstream stream, PoolAccount** account) {
  *account = nullptr;
  const bool is_only = fence->device_count == 1;
  const uint32_t ordinal = is_only ? static_cast<uint32_t>(fence->devices[0].ordinal)
                                   : AskDeviceOfStream<Stream>(stream);
  if (ordinal == kNoDevice) return true;
  if (pool == nullptr && is_only) {
    const uint64_t known = fence->devices[0].current_pool.load(std::memory_order_acquire);
    pool = reinterpret_cast<CUmemoryPool>(known);
  }
  if (pool == nullptr) pool = AskCurrentPool(fence, ordinal);
  if (pool == nullptr) return true;
  *account = AccountOf(fence, pool, static_cast<int32_t>(ordinal));
  return *account != nullptr;
}

// The pool grew beyond what it may: the allocation goes back.
template <typename Stream>
[[gnu::cold, gnu::noinline]] CUresult Undo(Fence* fence, PoolAccount* account, CUdeviceptr address,
                                           uint64_t bytes, CUstream stream) {
  Stream::Free(address, stream);
  ReturnToPool(account, bytes);
  TrimPools(fence, account->payer);
  RechargePool(account->payer, account);  // what it does not let go of yet
  return NoRoomOnDevice(account->payer);
}

// It failed; the pool may have grown all the same, as far as there was memory.
[[gnu::cold, gnu::noinline]] void NotTaken(PoolAccount* account, PoolRequest request) {
  if (!LandedInPool(account->payer, account, request, 0)) RechargePool(account->payer, account);
}

// Memory from the pool of `account`, as far as the limits allow. Call: CUresult(CUdeviceptr*), the
// driver's function. CUDA_ERROR_OUT_OF_MEMORY: there is no room, here or with the driver.
template <typename Stream, typename Call>
CUresult TakeFrom(Fence* fence, PoolAccount* account, uint64_t bytes, CUstream stream,
                  Effort effort, CUdeviceptr* dptr, Call call) {
  FencedDevice* payer = account->payer;
  PoolRequest request = {.bytes = bytes,
                         .stream = reinterpret_cast<uint64_t>(stream),
                         .growth_bytes = 0,
                         .hole = PoolHoles::kUnsure};
  LedgerMove move;
  if (!ClaimFromPool(payer, account, effort, &request, &move)) return NoRoomOnDevice(payer);
  CUdeviceptr address = 0;
  const CUresult rc = call(&address);
  if (rc != CUDA_SUCCESS) [[unlikely]] {
    NotTaken(account, request);
    return rc;
  }
  if (!LandedInPool(payer, account, request, address)) [[unlikely]] {
    return Undo<Stream>(fence, account, address, bytes, stream);
  }
  *dptr = address;
  if (address == 0) return rc;  // nothing was asked for
  AddHolding(fence, {.key = address,
                     .bytes = bytes,
                     .context = CurrentContext(),
                     .owner = reinterpret_cast<uint64_t>(account),
                     .device = payer->account.device(),
                     .kind = HoldingKind::kAddress,
                     .family = Family::kStreamOrdered});
  return CUDA_SUCCESS;
}

// From the pool or, where that has no room, from the overflow pool. What may be had without a
// driver call of ours is tried in both first: making room lets go of what they keep.
template <typename Stream, typename Call>
CUresult TakeFromEither(Fence* fence, PoolAccount* account, uint64_t bytes, CUstream stream,
                        CUdeviceptr* dptr, Call call) {
  FencedDevice* payer = account->payer;
  const bool may_overflow = !account->stays;
  for (const Effort effort : {Effort::kQuick, Effort::kThorough}) {
    if (effort == Effort::kQuick && !may_overflow) continue;
    CUresult rc = TakeFrom<Stream>(fence, account, bytes, stream, effort, dptr, call);
    if (!may_overflow || rc != CUDA_ERROR_OUT_OF_MEMORY) return rc;
    PoolAccount* overflow = OverflowPoolOf(fence, payer);
    if (overflow == nullptr) continue;
    rc = TakeFrom<Stream>(fence, overflow, bytes, stream, effort, dptr, [&](CUdeviceptr* out) {
      return Stream::AllocateFrom(out, bytes, HandleOf(overflow), stream);
    });
    if (rc != CUDA_ERROR_OUT_OF_MEMORY) return rc;
  }
  return CUDA_ERROR_OUT_OF_MEMORY;
}

template <typename Stream, typename Call>
[[gnu::noinline]] CUresult TakeOversold(Fence* fence, PoolAccount* account, uint64_t bytes,
                                        CUstream stream, CUdeviceptr* dptr, Call call) {
  const CUresult rc = TakeFromEither<Stream>(fence, account, bytes, stream, dptr, call);
  return Overflows(account->payer, rc) ? OverLimit(account->payer) : rc;
}

template <typename Stream, typename Call>
[[gnu::flatten]] CUresult Allocate(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                   CUstream stream, Call call) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  Fence* fence = hook.fence();
  if (fence == nullptr || dptr == nullptr || IsCaptured<Stream>(stream)) return call(dptr);
  PoolAccount* account = nullptr;
  if (!FindAccount<Stream>(fence, pool, stream, &account)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (account == nullptr || account->payer == nullptr) return call(dptr);
  const uint64_t bytes = RoundUp(bytesize, kPoolStep);
  if (account->payer->account.oversold()) [[unlikely]] {
    return TakeOversold<Stream>(fence, account, bytes, stream, dptr, call);
  }
  return TakeFrom<Stream>(fence, account, bytes, stream, Effort::kThorough, dptr, call);
}

// Frees what no pool that is known gave: nobody's memory, or plain memory in a stream's order. A
// capture takes the memory of its own graph alone, which is nobody's here.
template <typename Stream>
[[gnu::noinline]] CUresult FreeOther(Fence* fence, CUdeviceptr dptr, CUstream stream) {
  if (IsCaptured<Stream>(stream)) return Stream::Free(dptr, stream);
  Freed freed(fence, dptr);
  const Holding& holding = freed.holding();
  const CUresult rc = Stream::Free(dptr, stream);
  const bool is_ours = rc == CUDA_ERROR_NOT_SUPPORTED && holding.family == Family::kUnified;
  if ((rc != CUDA_SUCCESS && !is_ours) || !freed.found()) return freed.Settle(rc);
  if (!FreeLater(fence, holding, Stream::Freeing(stream), is_ours)) return freed.Settle(rc);
  freed.Keep();
  return CUDA_SUCCESS;
}

// As with every free (Freed), the holding leaves the table first. The pool carries the
// charge, which stays.
template <typename Stream>
[[gnu::flatten]] CUresult Free(CUdeviceptr dptr, CUstream stream) {
  const Hook hook;
  Fence* fence = hook.fence();
  if (fence == nullptr) return Stream::Free(dptr, stream);
  Holding holding;
  if (!fence->holdings.TakeAddressOf(Family::kStreamOrdered, dptr, &holding)) [[unlikely]] {
    return FreeOther<Stream>(fence, dptr, stream);
  }
  const bool was_exported = BeginFreeOfPool(fence, holding);
  auto* account = reinterpret_cast<PoolAccount*>(holding.owner);
  const uint64_t before = account->holes.BeforeFree();
  const CUresult rc = Stream::Free(dptr, stream);
  if (rc != CUDA_SUCCESS) [[unlikely]] {
    Restore(fence, holding, was_exported);
    return rc;
  }
  FreedInPool(account, before, dptr, holding.bytes, reinterpret_cast<uint64_t>(stream));
  return rc;
}

}  // namespace
}  // namespace gpufence

using gpufence::LegacyStream;
using gpufence::PerThreadStream;

extern "C" {

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return gpufence::Allocate<LegacyStream>(dptr, bytesize, nullptr, hStream, [=](CUdeviceptr* out) {
    return real::cuMemAllocAsync(out, bytesize, hStream);
  });
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return gpufence::Allocate<PerThreadStream>(
      dptr, bytesize, nullptr, hStream,
      [=](CUdeviceptr* out) { return real::cuMemAllocAsync_ptsz(out, bytesize, hStream); });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream hStream) {
  if (pool == nullptr) return real::cuMemAllocFromPoolAsync(dptr, bytesize, pool, hStream);
  return gpufence::Allocate<LegacyStream>(dptr, bytesize, pool, hStream, [=](CUdeviceptr* out) {
    return real::cuMemAllocFromPoolAsync(out, bytesize, pool, hStream);
  });
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                      CUstream hStream) {
  if (pool == nullptr) return real::cuMemAllocFromPoolAsync_ptsz(dptr, bytesize, pool, hStream);
  return gpufence::Allocate<PerThreadStream>(dptr, bytesize, pool, hStream, [=](CUdeviceptr* out) {
    return real::cuMemAllocFromPoolAsync_ptsz(out, bytesize, pool, hStream);
  });
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  return gpufence::Free<LegacyStream>(dptr, hStream);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream) {
  return gpufence::Free<PerThreadStream>(dptr, hStream);
}

}  // extern "C"
