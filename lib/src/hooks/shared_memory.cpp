#include "hooks/shared_memory.h"

#include "policy/charge.h"

namespace gpufence {
namespace {

// Exports are rare: most processes never make one, and then no free looks for a mark.
// May read too high in a forked child, which costs it a look.
constinit std::atomic<bool> any_exported{false};

// A piece of a chunk that others hold keeps the chunk.
uint64_t SharedBytes(const Holding& holding) { return RoundUp(holding.bytes, kChunkBytes); }

HoldingKind MarkOf(const Holding& holding) {
  return holding.kind == HoldingKind::kAddress ? HoldingKind::kExportedAddress
                                               : HoldingKind::kExported;
}

}  // namespace

void MarkExported(Fence* fence, const Holding& holding) {
  Holding mark;
  if (fence->holdings.Get(MarkOf(holding), holding.key, &mark)) return;
  any_exported.store(true, std::memory_order_relaxed);
  fence->devices[holding.device].account.sharing().Exported(SharedBytes(holding));
  fence->holdings.Put({.key = holding.key,
                       .device = holding.device,
                       .kind = MarkOf(holding),
                       .family = Family::kImport});
}

void EndExported(Fence* fence, const Holding& holding) {
  Holding mark;
  if (!any_exported.load(std::memory_order_relaxed) ||
      !fence->holdings.Take(MarkOf(holding), holding.key, &mark)) {
    return;
  }
  FencedDevice* device = &fence->devices[holding.device];
  device->account.sharing().Unexported(SharedBytes(holding));
  OverheadChanged(device);
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
