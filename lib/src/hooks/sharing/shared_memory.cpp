#include "hooks/sharing/shared_memory.h"

#include "base/futex.h"
#include "base/log.h"
#include "hooks/memory/unified.h"
#include "policy/charge.h"
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
  GPUFENCE_LOG(kWarn,
               "an exported descriptor cannot be locked, so its memory stays charged after it is "
               "freed. It is given back when the process ends");
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
      "%s fails: this memory lies on the host, because the container's share of the GPU "
      "was full, and only device memory can be exported. Raise the share, or allocate what "
      "is exported first",
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

}  // namespace gpufence
