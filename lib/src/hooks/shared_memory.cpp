#include "hooks/shared_memory.h"

#include "core/log.h"
#include "policy/charge.h"
#include "state/exported.h"

namespace gpufence {
namespace {

// A piece of a chunk that others hold keeps the chunk.
uint64_t SharedBytes(const Holding& holding) { return RoundUp(holding.bytes, kChunkBytes); }

// What a mark says of descriptors, in its `owner`: the place of their lock, or one of these.
constexpr uint64_t kNotLocked = 0;
constexpr uint64_t kCannotBeLocked = 1;

HoldingKind MarkOf(const Holding& holding) {
  return holding.kind == HoldingKind::kAddress ? HoldingKind::kExportedAddress
                                               : HoldingKind::kExported;
}

}  // namespace

void MarkExported(Fence* fence, const Holding& holding, int fd) {
  // An import is its owner's, and no driver exports it again.
  if (holding.bytes == 0) return;
  const Account& account = fence->devices[holding.device].account;
  Holding mark;
  const bool known = fence->holdings.Get(MarkOf(holding), holding.key, &mark);
  if (!known) {
    mark = {.key = holding.key,
            .owner = kNotLocked,
            .device = holding.device,
            .kind = MarkOf(holding),
            .family = Family::kImport};
    fence->any_exported.store(true, std::memory_order_relaxed);
    account.sharing().Exported(SharedBytes(holding), fd != kNoDescriptor);
  }
  if (fd != kNoDescriptor && mark.owner != kCannotBeLocked &&
      !LockExported(account.file(), account.row(), fd, SharedBytes(holding), &mark.owner)) {
    GPUFENCE_LOG(kWarn,
                 "an exported descriptor cannot be locked, so its memory stays charged after it is "
                 "freed. It is given back when the process ends");
    mark.owner = kCannotBeLocked;
  }
  fence->holdings.Put(mark);
}

bool EndMarked(Fence* fence, Holding holding) {
  Holding mark;
  if (!fence->holdings.Take(MarkOf(holding), holding.key, &mark)) return true;
  if (mark.owner == kCannotBeLocked) return false;
  FencedDevice* device = &fence->devices[holding.device];
  bool held = false;
  if (mark.owner != kNotLocked) {
    EndCharged(device->account.file(), mark.owner);
    held = IsHeldByDescriptor(mark.owner);
  }
  device->account.sharing().Unexported(SharedBytes(holding), held);
  OverheadChanged(device);
  return true;
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

void EndImports(FencedDevice* device, uint64_t imports) {
  if (imports == 0) return;
  device->account.sharing().Dropped(imports);
  OverheadChanged(device);
}

}  // namespace gpufence
