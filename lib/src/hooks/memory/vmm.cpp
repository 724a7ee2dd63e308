// The virtual memory API: physical memory, which is created, mapped, shared and let go; addresses
// alone cost nothing. The device is the one that prop names, not the current context's: these calls
// work on threads without a context. And multicast objects, through which several GPUs write at
// once: they hold no memory of their own, but what is bound to one stays alive, and charged where
// it was created, until it is unbound or the object ends. Must not know arrays.
#include "hooks/memory/vmm.h"

#include "base/forked.h"
#include "base/log.h"
#include "hooks/charges.h"
#include "hooks/fence.h"
#include "hooks/memory/exported.h"
#include "hooks/memory/managed.h"
#include "policy/charge.h"
#include "real.h"

namespace gpufence {

// ---- references ----

namespace {

void EndPhysical(Fence* fence, const Holding& physical) {
  if (physical.owner == static_cast<uint64_t>(PhysicalKind::kMulticast)) {
    DropLinksOf(fence, physical.key);
  } else {
    Discharge(fence, physical);
  }
}

}  // namespace

AddedReference::AddedReference(Fence* fence, uint64_t handle) : fence_(fence) {
  added_ = fence != nullptr &&
           fence->holdings.AddReference(HoldingKind::kPhysical, handle, 1, &physical_) > 0;
}

AddedReference::~AddedReference() {
  if (!added_) return;
  // Everybody else may have let go meanwhile, with the driver's consent.
  SettleDropped(fence_, DropReference(fence_, physical_.key), true);
}

DroppedReference DropReference(Fence* fence, uint64_t handle) {
  DroppedReference dropped;
  if (fence == nullptr) return dropped;
  const int64_t left =
      fence->holdings.AddReference(HoldingKind::kPhysical, handle, -1, &dropped.physical);
  dropped.known = left >= 0;
  dropped.last = left == 0;
  return dropped;
}

void SettleDropped(Fence* fence, const DroppedReference& dropped, bool succeeded) {
  if (!dropped.known) return;
  if (succeeded) {
    if (dropped.last) EndPhysical(fence, dropped.physical);
    return;
  }
  Holding restored = dropped.physical;
  if (!dropped.last &&
      fence->holdings.AddReference(HoldingKind::kPhysical, restored.key, 1, &restored) > 0) {
    return;
  }
  restored.count = 1;
  fence->holdings.Put(restored);
}

void AddLink(Fence* fence, uint64_t group, uint64_t key, uint64_t handle) {
  DroppedLink(fence, key).Settle(CUDA_SUCCESS);
  fence->any_links.store(true, std::memory_order_relaxed);
  fence->holdings.Put({.key = key, .context = group, .owner = handle, .kind = HoldingKind::kLink});
}

DroppedLink::DroppedLink(Fence* fence, uint64_t key) : fence_(fence) {
  if (fence == nullptr || !fence->any_links.load(std::memory_order_relaxed)) return;
  if (!fence->holdings.Take(HoldingKind::kLink, key, &link_)) return;
  dropped_ = DropReference(fence, link_.owner);
}

CUresult DroppedLink::Settle(CUresult rc) {
  if (link_.kind == HoldingKind::kNone) return rc;
  SettleDropped(fence_, dropped_, rc == CUDA_SUCCESS);
  if (rc != CUDA_SUCCESS) fence_->holdings.Put(link_);
  return rc;
}

void DropLinksOf(Fence* fence, uint64_t group) {
  if (!fence->any_links.load(std::memory_order_relaxed)) [[likely]]
    return;
  fence->holdings.TakeWhere(
      [group](const Holding& holding) {
        return holding.kind == HoldingKind::kLink && holding.context == group;
      },
      [fence](const Holding& link) {
        SettleDropped(fence, DropReference(fence, link.owner), true);
      });
}

uint64_t PlaceKey(const uint64_t* words, int count) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a by words, mixed so that neighbours differ
  for (int i = 0; i < count; ++i) {
    hash = (hash ^ words[i]) * 1099511628211u;
    hash ^= hash >> 29;
  }
  return hash;
}

// ---- physical memory ----

namespace {

FencedDevice* DeviceOf(Fence* fence, const CUmemAllocationProp* prop) {
  if (fence == nullptr || prop == nullptr) return nullptr;
  return FencedOrdinal(fence, DeviceOfLocation(prop->location));
}

// One mapping that goes, and the reference it held.
struct Piece {
  Holding mapping;
  DroppedReference dropped;
};

// The mappings in a range, taken out before the driver unmaps them. A range may hold many, and
// stretches without any; where it starts inside one, the driver refuses it as a whole.
class Unmapping {
 public:
  Unmapping(Fence* fence, uint64_t address, uint64_t bytes);
  ~Unmapping();
  Unmapping(const Unmapping&) = delete;
  Unmapping& operator=(const Unmapping&) = delete;

  CUresult Settle(CUresult rc);

 private:
  static constexpr size_t kInline = 8;

  void Walk(uint64_t address, uint64_t bytes);
  void Search(uint64_t address, uint64_t bytes);
  void Add(const Holding& mapping);
  bool HasRoom();

  Fence* fence_;
  size_t room_ = kInline;
  size_t used_ = 0;
  Piece* pieces_ = inline_;
  Piece inline_[kInline];
  LedgerMove move_;
};

// Addresses are asked one after the other in a range of up to this many bytes; beyond it the table
// is searched, since a range may be as long as a program likes, whatever the driver says to it.
constexpr uint64_t kMostWalkedBytes = uint64_t{1} << 36;

Unmapping::Unmapping(Fence* fence, uint64_t address, uint64_t bytes) : fence_(fence) {
  if (fence == nullptr || bytes > UINT64_MAX - address) return;
  if (bytes <= kMostWalkedBytes) {
    Walk(address, bytes);
  } else {
    Search(address, bytes);
  }
}

Unmapping::~Unmapping() {
  if (pieces_ != inline_) UnmapWipedOnFork(pieces_, room_ * sizeof(Piece));
}

void Unmapping::Walk(uint64_t address, uint64_t bytes) {
  for (uint64_t passed = 0; passed < bytes;) {
    Holding mapping;
    if (fence_->holdings.Take(HoldingKind::kMapping, address + passed, &mapping)) Add(mapping);
    // The next place where a mapping can begin.
    passed += mapping.bytes != 0 ? mapping.bytes : kChunkBytes;
  }
}

void Unmapping::Search(uint64_t address, uint64_t bytes) {
  fence_->holdings.TakeWhere(
      [&](const Holding& holding) {
        return holding.kind == HoldingKind::kMapping && holding.key - address < bytes;
      },
      [&](const Holding& mapping) { Add(mapping); });
}

void Unmapping::Add(const Holding& mapping) {
  if (!HasRoom()) {
    GPUFENCE_LOG(kError,
                 "the host has no memory left to unmap more than %zu mappings: the others stay "
                 "charged until "
                 "the process ends. Free host memory",
                 used_);
    return;
  }
  if (used_ == 0) {
    move_.BeginCounted(&fence_->devices[mapping.device].moves);
  }
  pieces_[used_++] = {.mapping = mapping, .dropped = DropReference(fence_, mapping.owner)};
}

bool Unmapping::HasRoom() {
  if (used_ < room_) return true;
  const size_t room = room_ * kInline;
  void* memory = MapWipedOnFork(room * sizeof(Piece));
  if (memory == nullptr) return false;
  auto* pieces = static_cast<Piece*>(memory);
  for (size_t i = 0; i < used_; ++i) pieces[i] = pieces_[i];
  if (pieces_ != inline_) UnmapWipedOnFork(pieces_, room_ * sizeof(Piece));
  pieces_ = pieces;
  room_ = room;
  return true;
}

CUresult Unmapping::Settle(CUresult rc) {
  const bool succeeded = rc == CUDA_SUCCESS;
  const Holding* ended = nullptr;
  // Backwards: of two mappings of one handle the later one was the last reference.
  while (used_ > 0) {
    const Piece& piece = pieces_[--used_];
    SettleDropped(fence_, piece.dropped, succeeded);
    if (!succeeded) fence_->holdings.Put(piece.mapping);
    if (piece.dropped.last) ended = &piece.dropped.physical;
  }
  move_.End();
  if (ended != nullptr) ReadOwnImportsAfter(fence_, *ended);
  return rc;
}

// An imported handle: its owner pays, here or in another process. It is known so that its end can
// be seen. The driver may give a handle that the process has already, which then merely has one
// more reference. The device of its memory, or null when no limit holds there.
FencedDevice* RememberImport(Fence* fence, uint64_t handle) {
  AddedReference again(fence, handle);
  if (again.added()) {
    again.Keep();
    return nullptr;
  }
  CUmemAllocationProp prop = {};
  if (real::cuMemGetAllocationPropertiesFromHandle(&prop, handle) != CUDA_SUCCESS) return nullptr;
  FencedDevice* device = DeviceOf(fence, &prop);
  if (device == nullptr) return nullptr;
  fence->holdings.Put({.key = handle,
                       .count = 1,
                       .device = device->account.device(),
                       .kind = HoldingKind::kPhysical,
                       .family = Family::kImport});
  return device;
}

CUresult Create(FencedDevice* device, CUmemGenericAllocationHandle* handle, size_t size,
                const CUmemAllocationProp* prop, unsigned long long flags, Tier tier) {
  const bool is_last = tier == Tier::kUnified || !device->account.oversold();
  Reservation held(device, RoundUp(size, kChunkBytes), tier);
  if (!held) return is_last ? OverLimit(device) : CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult rc = real::cuMemCreate(handle, size, prop, flags);
  if (rc == CUDA_SUCCESS) {
    held.Commit({.key = *handle,
                 .count = 1,
                 .kind = HoldingKind::kPhysical,
                 .family = tier == Tier::kUnified ? Family::kHosted : Family::kPlain});
  }
  return rc;
}

// Memory that other processes or devices are to reach, or that the device compresses, is the
// device's own.
bool MayLieOnHost(const CUmemAllocationProp& prop) {
  return prop.type == CU_MEM_ALLOCATION_TYPE_PINNED &&
         prop.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE &&
         prop.allocFlags.compressionType == 0 && prop.allocFlags.gpuDirectRDMACapable == 0 &&
         prop.allocFlags.usage == 0;
}

// Memory that is nobody's: the host's is, and what no fence has to do with.
[[gnu::noinline]] CUresult CreateElsewhere(const Fence* fence, CUmemGenericAllocationHandle* handle,
                                           size_t size, const CUmemAllocationProp* prop,
                                           unsigned long long flags) {
  if (fence != nullptr && prop != nullptr) {
    const Place place = LocationOf(prop->location).place;
    const bool has_payer = place == Place::kDevice || place == Place::kHost;
    if (!has_payer) return RefuseUnknownPlace("cuMemCreate", prop->location);
  }
  return real::cuMemCreate(handle, size, prop, flags);
}

// What the device has no room for.
[[gnu::noinline]] CUresult CreateOnHost(FencedDevice* device, CUmemGenericAllocationHandle* handle,
                                        size_t size, const CUmemAllocationProp& prop,
                                        unsigned long long flags) {
  if (!MayLieOnHost(prop)) return OverLimit(device);
  CUmemAllocationProp hosted = prop;
  hosted.location.type = CU_MEM_LOCATION_TYPE_HOST;
  hosted.location.id = 0;
  return Create(device, handle, size, &hosted, flags, Tier::kUnified);
}

// ---- multicast objects ----

uint64_t BindingKey(uint64_t object, uint64_t ordinal, uint64_t offset) {
  const uint64_t words[] = {object, ordinal, offset};
  return PlaceKey(words, 3);
}

// Binds by calling the driver, with one more reference to the memory while and after.
template <typename Call>
CUresult Bind(uint64_t object, uint64_t memory, const CUdevice* dev, size_t offset, Call call) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  AddedReference bound(hook.fence(), memory);
  const CUresult rc = call();
  if (rc != CUDA_SUCCESS || !bound.added()) return rc;
  // The form without a device means the one that holds the memory.
  const CUdevice own = hook.fence()->devices[bound.physical().device].ordinal;
  const auto ordinal = static_cast<uint64_t>(dev != nullptr ? *dev : own);
  AddLink(hook.fence(), object, BindingKey(object, ordinal, offset), memory);
  bound.Keep();
  return rc;
}

// The handle behind a mapped address; 0 when there is none. The reference that asking takes is
// given back at once: the mapping keeps the memory.
uint64_t HandleAt(CUdeviceptr address) {
  const Hook hook;
  if (hook.fence() == nullptr) return 0;
  CUmemGenericAllocationHandle handle = 0;
  void* pointer = reinterpret_cast<void*>(address);
  if (real::cuMemRetainAllocationHandle(&handle, pointer) != CUDA_SUCCESS) return 0;
  real::cuMemRelease(handle);
  return handle;
}

}  // namespace
}  // namespace gpufence

using namespace gpufence;

extern "C" {

[[gnu::flatten]] CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                                      const CUmemAllocationProp* prop, unsigned long long flags) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  FencedDevice* device = DeviceOf(hook.fence(), prop);
  if (device == nullptr || handle == nullptr) {
    return CreateElsewhere(hook.fence(), handle, size, prop, flags);
  }

  const CUresult rc = Create(device, handle, size, prop, flags, Tier::kDevice);
  return Overflows(device, rc) ? CreateOnHost(device, handle, size, *prop, flags) : rc;
}

[[gnu::flatten]] CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const Hook hook;
  const DroppedReference dropped = DropReference(hook.fence(), handle);
  LedgerMove move;
  if (dropped.last) {
    move.BeginCounted(&hook.fence()->devices[dropped.physical.device].moves);
  }
  const CUresult rc = real::cuMemRelease(handle);
  SettleDropped(hook.fence(), dropped, rc == CUDA_SUCCESS);
  move.End();
  if (dropped.last) ReadOwnImportsAfter(hook.fence(), dropped.physical);
  return rc;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  AddedReference mapped(hook.fence(), handle);
  const CUresult rc = real::cuMemMap(ptr, size, offset, handle, flags);
  if (rc != CUDA_SUCCESS || !mapped.added()) return rc;
  Holding replaced;
  if (!hook.fence()->holdings.Put({.key = ptr,
                                   .bytes = size,
                                   .owner = handle,
                                   .device = mapped.physical().device,
                                   .kind = HoldingKind::kMapping},
                                  &replaced)) {
    GPUFENCE_LOG(
        kError,
        "the host has no memory left to record a mapping of %zu bytes: it stays charged until the "
        "process ends. Free host memory",
        size);
  }
  mapped.Keep();
  // What was mapped here ended by a door that was not seen.
  if (replaced.kind != HoldingKind::kNone) {
    SettleDropped(hook.fence(), DropReference(hook.fence(), replaced.owner), true);
  }
  return rc;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  const Hook hook;
  Unmapping unmapping(hook.fence(), ptr, size);
  return unmapping.Settle(real::cuMemUnmap(ptr, size));
}

// The handle that the driver gives is the one that was mapped.
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  const CUresult rc = real::cuMemRetainAllocationHandle(handle, addr);
  if (rc != CUDA_SUCCESS || hook.fence() == nullptr) return rc;
  AddedReference retained(hook.fence(), *handle);
  retained.Keep();
  return rc;
}

CUresult cuMemExportToShareableHandle(void* shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType,
                                      unsigned long long flags) {
  const Hook hook;
  // Until it is marked: another thread may let go of the handle meanwhile.
  const AddedReference exported(hook.fence(), handle);
  const CUresult rc =
      real::cuMemExportToShareableHandle(shareableHandle, handle, handleType, flags);
  if (rc == CUDA_SUCCESS && exported.added()) {
    const bool is_descriptor = handleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    MarkExported(hook.fence(), exported.physical(),
                 is_descriptor ? *static_cast<int*>(shareableHandle) : kNoDescriptor);
  }
  return rc;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* osHandle,
                                        CUmemAllocationHandleType shHandleType) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  Importing importing(hook.fence());
  const CUresult rc = real::cuMemImportFromShareableHandle(handle, osHandle, shHandleType);
  if (rc == CUDA_SUCCESS && hook.fence() != nullptr) {
    importing.Keep(RememberImport(hook.fence(), *handle));
  }
  return rc;
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle* mcHandle,
                           const CUmulticastObjectProp* prop) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  const CUresult rc = real::cuMulticastCreate(mcHandle, prop);
  if (rc == CUDA_SUCCESS && hook.fence() != nullptr) {
    hook.fence()->holdings.Put({.key = *mcHandle,
                                .owner = static_cast<uint64_t>(PhysicalKind::kMulticast),
                                .count = 1,
                                .kind = HoldingKind::kPhysical,
                                .family = Family::kImport});
  }
  return rc;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                            CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
                            unsigned long long flags) {
  return Bind(mcHandle, memHandle, nullptr, mcOffset, [&] {
    return real::cuMulticastBindMem(mcHandle, mcOffset, memHandle, memOffset, size, flags);
  });
}

CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset,
                               CUmemGenericAllocationHandle memHandle, size_t memOffset,
                               size_t size, unsigned long long flags) {
  return Bind(mcHandle, memHandle, &dev, mcOffset, [&] {
    return real::cuMulticastBindMem_v2(mcHandle, dev, mcOffset, memHandle, memOffset, size, flags);
  });
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                             CUdeviceptr memptr, size_t size, unsigned long long flags) {
  return Bind(mcHandle, HandleAt(memptr), nullptr, mcOffset,
              [&] { return real::cuMulticastBindAddr(mcHandle, mcOffset, memptr, size, flags); });
}

CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle mcHandle, CUdevice dev,
                                size_t mcOffset, CUdeviceptr memptr, size_t size,
                                unsigned long long flags) {
  return Bind(mcHandle, HandleAt(memptr), &dev, mcOffset, [&] {
    return real::cuMulticastBindAddr_v2(mcHandle, dev, mcOffset, memptr, size, flags);
  });
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset,
                           size_t size) {
  const Hook hook;
  DroppedLink unbound(hook.fence(), BindingKey(mcHandle, static_cast<uint64_t>(dev), mcOffset));
  return unbound.Settle(real::cuMulticastUnbind(mcHandle, dev, mcOffset, size));
}

}  // extern "C"
