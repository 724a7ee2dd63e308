// Arrays and mipmapped arrays by what their layout takes, and the physical memory that is mapped to
// arrays without memory of their own. Planes and levels are views and cost nothing.
#include "device/usage.h"
#include "hooks/charges.h"
#include "hooks/contexts/context_cost.h"
#include "hooks/fence.h"
#include "hooks/memory/array_cost.h"
#include "hooks/memory/vmm.h"
#include "policy/arrays.h"
#include "real.h"

namespace gpufence {
namespace {

CUDA_ARRAY3D_DESCRIPTOR Widen(const CUDA_ARRAY3D_DESCRIPTOR& wanted) { return wanted; }

CUDA_ARRAY3D_DESCRIPTOR Widen(const CUDA_ARRAY3D_DESCRIPTOR_v1& wanted) {
  return {.Width = wanted.Width,
          .Height = wanted.Height,
          .Depth = wanted.Depth,
          .Format = wanted.Format,
          .NumChannels = wanted.NumChannels,
          .Flags = wanted.Flags};
}

template <typename Flat>
CUDA_ARRAY3D_DESCRIPTOR Widen(const Flat& wanted) {
  return {.Width = wanted.Width,
          .Height = wanted.Height,
          .Depth = 0,
          .Format = wanted.Format,
          .NumChannels = wanted.NumChannels,
          .Flags = 0};
}

// A format of unknown layout (packed, planar, compressed): what it took shows in the device's free
// memory. Others' allocations meanwhile show there, too; the next reading of overhead corrects it.
template <typename Handle, typename Call, typename Undo>
[[gnu::cold, gnu::noinline]] CUresult CreateMeasured(FencedDevice* device, Holding holding,
                                                     Handle* out, Call call, Undo undo) {
  Handle made = nullptr;
  const uint64_t before = DriverFreeBytes();
  const CUresult rc = call(&made);
  if (rc != CUDA_SUCCESS) return rc;
  const uint64_t after = DriverFreeBytes();
  Reservation held(device, before > after ? before - after : 0);
  if (!held) {
    undo(made);
    return OverLimit(device);
  }
  holding.key = reinterpret_cast<uint64_t>(made);
  held.Commit(holding);
  *out = made;
  return rc;
}

// It shares chunks with others of its context.
template <typename Handle, typename Call>
CUresult CreateSmall(const Hook& hook, FencedDevice* device, const Holding& wanted, Handle* out,
                     Call call) {
  LedgerMove move(&device->moves);
  ArrayGrant held(&device->account, &device->array_places,
                  ArrayHeapOf(wanted.context, wanted.count), wanted.bytes);
  if (!held) return OverLimitInContext(device);
  move.Granted();
  const CUresult rc = call(out);
  if (rc != CUDA_SUCCESS) return rc;
  AddHolding(hook.fence(), {.key = reinterpret_cast<uint64_t>(*out),
                            .bytes = wanted.bytes,
                            .context = wanted.context,
                            .owner = held.place(),
                            .count = wanted.count,
                            .device = device->account.device(),
                            .kind = wanted.kind,
                            .family = Family::kSmallArray});
  held.Keep();
  if (move.SawEnd()) [[unlikely]] {
    EndArrayIfGone(device, wanted.kind, reinterpret_cast<uint64_t>(*out), move.SawPrimaryEnd());
  }
  return rc;
}

// `undo` destroys what an array of unknown layout turned out to be too large for.
template <typename Handle, typename Descriptor, typename Call, typename Undo>
CUresult Create(HoldingKind kind, Handle* out, const Descriptor* wanted, unsigned levels, Call call,
                Undo undo) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  FencedDevice* device = hook.allocating_device();
  if (device == nullptr || out == nullptr || wanted == nullptr) return call(out);

  Holding holding = {
      .context = hook.context(), .count = ElementBytes(Widen(*wanted)), .kind = kind};
  if (!ArrayBytes(Widen(*wanted), holding.count, levels, &holding.bytes)) [[unlikely]] {
    return CreateMeasured(device, holding, out, call, undo);
  }
  if (IsSmall(holding.bytes)) return CreateSmall(hook, device, holding, out, call);
  Reservation held(device, RoundUp(holding.bytes, kChunkBytes));
  if (!held) return OverLimitInContext(device);

  const CUresult rc = call(out);
  if (rc == CUDA_SUCCESS) {
    holding.key = reinterpret_cast<uint64_t>(*out);
    held.Commit(holding);
    if (held.move()->SawEnd()) [[unlikely]] {
      EndArrayIfGone(device, kind, holding.key, held.move()->SawPrimaryEnd());
    }
  }
  return rc;
}

template <typename Descriptor, typename Call>
CUresult CreateArray(CUarray* out, const Descriptor* wanted, Call call) {
  return Create(
      HoldingKind::kArray, out, wanted, 1, [=](CUarray* result) { return call(result, wanted); },
      real::cuArrayDestroy);
}

// The end of an array, in the order of every free (Freed); of a small one in its turn.
class EndedArray {
 public:
  // A null fence, or an array nobody charged, does nothing.
  EndedArray(Fence* fence, HoldingKind kind, uint64_t key) : fence_(fence) {
    if (fence == nullptr || !fence->holdings.Take(kind, key, &holding_)) return;
    device_ = &fence->devices[holding_.device];
    move_.BeginCounted(&device_->moves);
    if (IsSmallArray()) turn_.Begin(&device_->array_places);
  }

  // Gives its bytes back, or the holding when the driver refused.
  void Settle(CUresult rc) {
    if (device_ == nullptr) return;
    if (rc != CUDA_SUCCESS) [[unlikely]] {
      AddHolding(fence_, holding_);
    } else if (IsSmallArray()) {
      turn_.EndFreeing(&device_->account, ArrayHeapOf(holding_.context, holding_.count),
                       holding_.owner, holding_.bytes);
    } else {
      device_->account.Release(holding_.bytes);
    }
  }

 private:
  bool IsSmallArray() const { return holding_.family == Family::kSmallArray; }

  Fence* fence_;
  FencedDevice* device_ = nullptr;  // null: nothing was found
  Holding holding_;
  LedgerMove move_;  // ends after the turn
  ArrayTurn turn_;
};

// Physical memory that is mapped to it lives until the array ends at the latest.
template <typename Handle, typename Call>
CUresult Destroy(HoldingKind kind, Handle handle, Call call) {
  const Hook hook;
  const auto key = reinterpret_cast<uint64_t>(handle);
  EndedArray ended(hook.fence(), kind, key);
  const CUresult rc = call(handle);
  ended.Settle(rc);
  if (rc == CUDA_SUCCESS && hook.fence() != nullptr) DropLinksOf(hook.fence(), key);
  return rc;
}

uint64_t ArrayOf(const CUarrayMapInfo& info) {
  return info.resourceType == CU_RESOURCE_TYPE_ARRAY
             ? reinterpret_cast<uint64_t>(info.resource.array)
             : reinterpret_cast<uint64_t>(info.resource.mipmap);
}

// The place by where it begins: unmapped as it was mapped, it is found again. What is unmapped in
// other pieces stays charged until the array ends.
uint64_t PlaceOf(const CUarrayMapInfo& info) {
  const auto& level = info.subresource.sparseLevel;
  const auto& tail = info.subresource.miptail;
  if (info.subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL) {
    const uint64_t words[] = {ArrayOf(info), level.level,   level.layer,
                              level.offsetX, level.offsetY, level.offsetZ};
    return PlaceKey(words, 6);
  }
  const uint64_t words[] = {ArrayOf(info), UINT64_MAX, tail.layer, tail.offset};
  return PlaceKey(words, 4);
}

bool Maps(const CUarrayMapInfo& info) { return info.memOperationType == CU_MEM_OPERATION_TYPE_MAP; }

// References first, so that nothing ends under the driver's hands.
void AddReferences(Fence* fence, const CUarrayMapInfo* list, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    if (!Maps(list[i])) continue;
    AddedReference held(fence, list[i].memHandle.memHandle);
    held.Keep();
  }
}

void DropReferences(Fence* fence, const CUarrayMapInfo* list, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    if (Maps(list[i]))
      SettleDropped(fence, DropReference(fence, list[i].memHandle.memHandle), true);
  }
}

void Remember(Fence* fence, const CUarrayMapInfo* list, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    const uint64_t key = PlaceOf(list[i]);
    if (Maps(list[i])) {
      AddLink(fence, ArrayOf(list[i]), key, list[i].memHandle.memHandle);
    } else {
      DroppedLink(fence, key).Settle(CUDA_SUCCESS);
    }
  }
}

template <typename Call>
CUresult MapArrays(const CUarrayMapInfo* list, unsigned count, Call call) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  if (hook.fence() == nullptr || list == nullptr) return call();
  AddReferences(hook.fence(), list, count);
  const CUresult rc = call();
  if (rc == CUDA_SUCCESS) {
    Remember(hook.fence(), list, count);
  } else {
    DropReferences(hook.fence(), list, count);
  }
  return rc;
}

}  // namespace
}  // namespace gpufence

using namespace gpufence;

extern "C" {

CUresult cuArrayCreate(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR_v1* pAllocateArray) {
  return CreateArray(pHandle, pAllocateArray, real::cuArrayCreate);
}

[[gnu::flatten]] CUresult cuArrayCreate_v2(CUarray* pHandle,
                                           const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) {
  return CreateArray(pHandle, pAllocateArray, real::cuArrayCreate_v2);
}

CUresult cuArray3DCreate(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1* pAllocateArray) {
  return CreateArray(pHandle, pAllocateArray, real::cuArray3DCreate);
}

[[gnu::flatten]] CUresult cuArray3DCreate_v2(CUarray* pHandle,
                                             const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
  return CreateArray(pHandle, pAllocateArray, real::cuArray3DCreate_v2);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* pHandle,
                                const CUDA_ARRAY3D_DESCRIPTOR* pMipmappedArrayDesc,
                                unsigned int numMipmapLevels) {
  return Create(
      HoldingKind::kMipmap, pHandle, pMipmappedArrayDesc, numMipmapLevels,
      [=](CUmipmappedArray* result) {
        return real::cuMipmappedArrayCreate(result, pMipmappedArrayDesc, numMipmapLevels);
      },
      real::cuMipmappedArrayDestroy);
}

[[gnu::flatten]] CUresult cuArrayDestroy(CUarray hArray) {
  return Destroy(HoldingKind::kArray, hArray, real::cuArrayDestroy);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  return Destroy(HoldingKind::kMipmap, hMipmappedArray, real::cuMipmappedArrayDestroy);
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo* mapInfoList, unsigned int count, CUstream hStream) {
  return MapArrays(mapInfoList, count,
                   [&] { return real::cuMemMapArrayAsync(mapInfoList, count, hStream); });
}

CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo* mapInfoList, unsigned int count,
                                 CUstream hStream) {
  return MapArrays(mapInfoList, count,
                   [&] { return real::cuMemMapArrayAsync_ptsz(mapInfoList, count, hStream); });
}

}  // extern "C"
