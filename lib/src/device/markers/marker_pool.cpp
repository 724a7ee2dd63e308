#include "device/markers/marker_pool.h"

#include "device/context_scope.h"
#include "real.h"

namespace gpufence {
namespace {

constexpr int kMadeAtOnce = 8;

}  // namespace

// In the current context.
void MarkerPool::Make(uint16_t context) {
  for (int made = 0; made < kMadeAtOnce; ++made) {
    uint16_t index = unused_;
    if (index == kNoMarker && made_ + 1 >= kMostMarkers) break;
    CUevent event = nullptr;
    if (real::cuEventCreate(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) break;
    if (index != kNoMarker) {
      unused_ = markers_[index].next;
    } else {
      index = static_cast<uint16_t>(++made_);
    }
    markers_[index] = {};
    markers_[index].event = event;
    markers_[index].next = free_[context];
    markers_[index].context = context;
    free_[context] = index;
  }
}

uint16_t MarkerPool::Take(uint16_t context, CUcontext handle) {
  if (free_[context] == kNoMarker) {
    const ContextScope scope(handle);
    if (!scope) return kNoMarker;
    Make(context);
  }
  const uint16_t taken = free_[context];
  if (taken != kNoMarker) free_[context] = markers_[taken].next;
  return taken;
}

void MarkerPool::Return(uint16_t marker) {
  const uint16_t context = markers_[marker].context;
  markers_[marker].next = free_[context];
  free_[context] = marker;
}

// The event is gone; its place is not.
void MarkerPool::Discard(uint16_t marker) {
  markers_[marker].event = nullptr;
  markers_[marker].next = unused_;
  unused_ = marker;
}

void MarkerPool::Drop(uint16_t context) {
  for (uint16_t i = 1; i <= made_; ++i) {
    if (markers_[i].event != nullptr && markers_[i].context == context) Discard(i);
  }
  free_[context] = kNoMarker;
}

}  // namespace gpufence
