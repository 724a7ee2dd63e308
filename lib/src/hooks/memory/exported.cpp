#include "hooks/memory/exported.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/futex.h"
#include "base/log.h"
#include "hooks/charges.h"
#include "hooks/contexts/overhead.h"
#include "hooks/fence.h"
#include "hooks/memory/managed.h"
#include "hooks/memory/vmm.h"
#include "policy/charge.h"
#include "real.h"
#include "state/exported.h"

namespace gpufence {
namespace {

// A piece of a chunk, or of a pool's blocks, that others hold keeps all of them.
uint64_t AllBytes(const Holding& holding) {
  return holding.family == Family::kStreamOrdered ? BlockBytes(holding.key, holding.bytes)
                                                  : RoundUp(holding.bytes, kChunkBytes);
}

// What stands in the place of a lock's place.
constexpr uint64_t kNotLocked = 0;
constexpr uint64_t kCannotBeLocked = 1;

HoldingKind MarkOf(const Holding& holding) {
  return holding.kind == HoldingKind::kAddress ? HoldingKind::kExportedAddress
                                               : HoldingKind::kExported;
}

}  // namespace

void MarkExported(Fence* fence, const Holding& holding, int fd, uint64_t part_bytes) {
  // An import is its owner's, and no driver exports it again.
  if (holding.bytes == 0) return;
  const Account& account = fence->devices[holding.device].account;
  Holding mark;
  if (!fence->holdings.Get(MarkOf(holding), holding.key, &mark)) {
    mark = {.key = holding.key,
            .bytes = 0,
            .owner = kNotLocked,
            .device = holding.device,
            .kind = MarkOf(holding),
            .family = Family::kImport};
    fence->any_exported.store(true, std::memory_order_relaxed);
  }
  // Parts may be the same ones: all of it is the most that they can be.
  const uint64_t all_bytes = AllBytes(holding);
  const uint64_t more_bytes =
      all_bytes - mark.bytes < part_bytes ? all_bytes - mark.bytes : part_bytes;
  mark.bytes += more_bytes;
  account.sharing().Exported(more_bytes, fd != kNoDescriptor);
  if (fd != kNoDescriptor) LockDescriptor(fence, account, fd, mark.bytes, &mark.owner);
  fence->holdings.Put(mark);
}

// Under a lock of its own: two descriptors of one memory that are exported at once get one place.
void LockDescriptor(Fence* fence, const Account& account, int fd, uint64_t bytes, uint64_t* place) {
  const Uncancelled during;
  SpinGuard guard(&fence->exporting);
  if (*place == kCannotBeLocked || LockExported(account.file(), account.row(), fd, bytes, place)) {
    return;
  }
  GPUFENCE_LOG(
      kWarn,
      "memory that was exported as a file descriptor stays charged until this process ends, "
      "also after it is freed: the descriptor cannot be locked");
  *place = kCannotBeLocked;
}

bool EndLocked(FencedDevice* device, uint64_t place, uint64_t bytes) {
  if (place == kCannotBeLocked) return false;
  const Uncancelled during;
  bool held = false;
  if (place != kNotLocked) {
    EndCharged(device->account.file(), place);
    held = IsHeldByDescriptor(place);
  }
  device->account.sharing().Unexported(bytes, held);
  OverheadChanged(device);
  return true;
}

bool EndMarked(Fence* fence, Holding holding) {
  Holding mark;
  if (!fence->holdings.Take(MarkOf(holding), holding.key, &mark)) return true;
  FencedDevice* device = &fence->devices[holding.device];
  if (EndLocked(device, mark.owner, mark.bytes)) return true;
  // A pool gives its charge back without asking.
  if (holding.family == Family::kStreamOrdered) device->account.Book(mark.bytes);
  return false;
}

Importing::Importing(Fence* fence) : fence_(fence) {
  for (uint32_t i = 0; fence != nullptr && i < fence->device_count; ++i) {
    fence->devices[i].account.sharing().Imported();
  }
}

Importing::~Importing() {
  for (uint32_t i = 0; fence_ != nullptr && i < fence_->device_count; ++i) {
    FencedDevice* device = &fence_->devices[i];
    if (device != kept_) device->account.sharing().Dropped(1);
  }
  // Its owner may have let go before: then the driver counts it as ours.
  if (kept_ != nullptr) ReadOverheadNow(kept_);
}

void SayIfOnHost(Fence* fence, CUdeviceptr address, const char* call) {
  if (!StaysOnHost(fence, address)) return;
  GPUFENCE_LOG(
      kWarn,
      "%s fails: this memory lies on the host, because the part of the memory limit that may "
      "lie on the GPU was full, and only device memory can be exported. Raise the limit, or "
      "allocate what is exported first",
      call);
}

void ReadOwnImports(FencedDevice* device) {
  if (device->account.HasAdopted()) ReadOverheadNow(device);
}

void EndImports(FencedDevice* device, uint64_t imports) {
  if (imports == 0) return;
  device->account.sharing().Dropped(imports);
  OverheadChanged(device);
}

// ---- pools ----

namespace {

// A block's holding counts its living exported pieces, and one for itself.
constexpr uint32_t kItself = 1;

PoolAccount* PoolOf(const Holding& piece) { return reinterpret_cast<PoolAccount*>(piece.owner); }

template <typename Use>
void ForEachBlock(const Holding& piece, Use use) {
  const uint64_t end = piece.key + piece.bytes;
  for (uint64_t block = piece.key & ~(kPoolBlockBytes - 1); block < end; block += kPoolBlockBytes) {
    use(block);
  }
}

// What a pointer's export changed.
struct FileChange {
  uint64_t fresh_bytes;     // blocks at addresses of which the file had none
  uint64_t replaced_bytes;  // lost blocks that others took the place of
};

// Lock held. Puts a piece's blocks into the file.
FileChange EnterBlocks(Fence* fence, PoolExports* exports, const Holding& piece) {
  FileChange change = {};
  ForEachBlock(piece, [&](uint64_t block) {
    Holding known;
    const int64_t count =
        fence->holdings.AddReference(HoldingKind::kExportedBlock, block, 1, &known);
    if (count < 0) {
      fence->holdings.Put({.key = block,
                           .owner = piece.owner,
                           .count = kItself + 1,
                           .device = piece.device,
                           .kind = HoldingKind::kExportedBlock});
      change.fresh_bytes += kPoolBlockBytes;
    } else if (count == kItself + 1) {
      exports->idle_bytes -= kPoolBlockBytes;
    }
  });
  exports->bytes += change.fresh_bytes;
  if (exports->lost_bytes > exports->idle_bytes) {
    change.replaced_bytes = exports->lost_bytes - exports->idle_bytes;
    exports->lost_bytes = exports->idle_bytes;
  }
  return change;
}

// Every descriptor of a pool is one of the same open file.
int OpenFileOf(const PoolAccount* account) {
  const uint64_t handle = account->handle.load(std::memory_order_acquire);
  int fd = kNoDescriptor;
  if (real::cuMemPoolExportToShareableHandle(&fd, reinterpret_cast<CUmemoryPool>(handle),
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                             0) != CUDA_SUCCESS) {
    return kNoDescriptor;
  }
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return fd;
}

void ExportBlocks(Fence* fence, const Holding& piece) {
  PoolAccount* account = PoolOf(piece);
  FencedDevice* payer = &fence->devices[piece.device];
  FileChange change = {};
  uint64_t bytes = 0;
  {
    SpinGuard guard(&account->lock);
    Holding mark;
    // Exported again, it is in the same blocks.
    if (fence->holdings.Get(HoldingKind::kExportedPointer, piece.key, &mark)) return;
    fence->any_exported.store(true, std::memory_order_relaxed);
    mark = {.key = piece.key, .device = piece.device, .kind = HoldingKind::kExportedPointer};
    fence->holdings.Put(mark);
    change = EnterBlocks(fence, &account->exports, piece);
    bytes = account->exports.bytes;
  }
  if (change.replaced_bytes != 0) {
    payer->unlisted_bytes.fetch_sub(change.replaced_bytes);
    payer->account.Release(change.replaced_bytes, account->tier);
  }
  if (change.fresh_bytes == 0) return;
  payer->account.sharing().Exported(change.fresh_bytes, /*by_descriptor=*/true);
  const int fd = OpenFileOf(account);
  LockDescriptor(fence, payer->account, fd, bytes, &account->exports.place);
  if (fd != kNoDescriptor) close(fd);
}

}  // namespace

bool BeginFreeOfExported(Fence* fence, Holding piece) {
  // What a dma-buf holds of it is counted by that from here on, be it still the pool's for a while.
  EndExported(fence, piece);
  PoolExports* exports = &PoolOf(piece)->exports;
  SpinGuard guard(&PoolOf(piece)->lock);
  Holding mark;
  if (!fence->holdings.Take(HoldingKind::kExportedPointer, piece.key, &mark)) return false;
  ForEachBlock(piece, [&](uint64_t block) {
    Holding known;
    if (fence->holdings.AddReference(HoldingKind::kExportedBlock, block, -1, &known) == kItself) {
      exports->idle_bytes += kPoolBlockBytes;
    }
  });
  return true;
}

void Unfreed(Fence* fence, Holding piece) { ExportBlocks(fence, piece); }

uint64_t EndPoolExports(Fence* fence, FencedDevice* payer, PoolAccount* account,
                        uint64_t charged_bytes) {
  account->lock.Lock();
  const PoolExports exports = account->exports;
  account->exports = {};
  account->lock.Unlock();
  if (exports.bytes == 0) return charged_bytes;
  const auto owner = reinterpret_cast<uint64_t>(account);
  fence->holdings.TakeWhere(
      [owner](const Holding& holding) {
        return holding.kind == HoldingKind::kExportedBlock && holding.owner == owner;
      },
      [](const Holding&) {});
  payer->unlisted_bytes.fetch_sub(exports.lost_bytes);
  const uint64_t all_bytes = charged_bytes + exports.lost_bytes;
  if (EndLocked(payer, exports.place, exports.bytes)) return all_bytes;
  return all_bytes > exports.bytes ? all_bytes - exports.bytes : 0;
}

// ---- the calls by which memory leaves and enters ----

namespace {

// A dma-buf, as network cards read it, holds every allocation that its addresses lie in, whole but
// for a pool's, until the last duplicate of its descriptor is closed (seen on an H200).
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

template <typename Call>
CUresult OpenImport(CUdeviceptr* address, Call call) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  FencedDevice* device = hook.current_device();
  if (device == nullptr || address == nullptr) return call();
  Fence* fence = hook.fence();
  Importing importing(fence);
  const CUresult rc = call();
  if (rc != CUDA_SUCCESS) return rc;
  importing.Keep(device);
  // Opened again, it is at the same address, and closed as often.
  Holding known;
  if (fence->holdings.AddReference(HoldingKind::kAddress, *address, 1, &known) > 0) return rc;
  fence->holdings.Put({.key = *address,
                       .context = hook.context(),
                       .count = 1,
                       .device = device->account.device(),
                       .kind = HoldingKind::kAddress,
                       .family = Family::kImport});
  return rc;
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

CUresult cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  const Hook hook;
  const CUresult rc = real::cuIpcGetMemHandle(pHandle, dptr);
  if (hook.fence() == nullptr) return rc;
  if (rc != CUDA_SUCCESS) {
    SayIfOnHost(hook.fence(), dptr, "cuIpcGetMemHandle");
    return rc;
  }
  // The handle leads to the whole allocation, whatever address in it was given.
  CUdeviceptr base = 0;
  Holding holding;
  if (real::cuMemGetAddressRange_v2(&base, nullptr, dptr) == CUDA_SUCCESS &&
      GetAddress(hook.fence(), base, &holding)) {
    MarkExported(hook.fence(), holding);
  }
  return rc;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  return OpenImport(pdptr, [&] { return real::cuIpcOpenMemHandle(pdptr, handle, Flags); });
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  return OpenImport(pdptr, [&] { return real::cuIpcOpenMemHandle_v2(pdptr, handle, Flags); });
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
  const Hook hook;
  Fence* fence = hook.fence();
  Holding import;
  const bool known = fence != nullptr &&
                     fence->holdings.AddReference(HoldingKind::kAddress, dptr, -1, &import) >= 0;
  const CUresult rc = real::cuIpcCloseMemHandle(dptr);
  if (!known) return rc;
  if (rc == CUDA_SUCCESS) {
    EndImports(&fence->devices[import.device], 1);
    ReadOwnImports(&fence->devices[import.device]);
  } else if (fence->holdings.AddReference(HoldingKind::kAddress, dptr, 1, &import) < 0) {
    import.count = 1;
    fence->holdings.Put(import);
  }
  return rc;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* shareData_out, CUdeviceptr ptr) {
  const Hook hook;
  const CUresult rc = real::cuMemPoolExportPointer(shareData_out, ptr);
  Holding piece;
  if (rc == CUDA_SUCCESS && hook.fence() != nullptr && GetAddress(hook.fence(), ptr, &piece) &&
      piece.family == Family::kStreamOrdered) {
    ExportBlocks(hook.fence(), piece);
  }
  return rc;
}

}  // extern "C"
