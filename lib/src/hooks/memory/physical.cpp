#include "hooks/memory/physical.h"

namespace gpufence {
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

}  // namespace gpufence
