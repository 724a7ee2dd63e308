#include "device/markers/marker_pool.h"

#include "device/context_scope.h"
#include "real.h"

namespace gpufence {

uint32_t MarkerPool::Make(CUcontext context, CUevent events[kMadeAtOnce]) {
  const ContextScope scope(context);
  uint32_t count = 0;
  while (scope && count < kMadeAtOnce &&
         real::cuEventCreate(&events[count], CU_EVENT_DEFAULT) == CUDA_SUCCESS) {
    ++count;
  }
  return count;
}

uint32_t MarkerPool::Add(uint16_t context, CUevent events[kMadeAtOnce], uint32_t count) {
  while (count > 0) {
    uint16_t index = unused_;
    if (IsFull()) break;
    if (index != kNoMarker) {
      unused_ = markers_[index].next;
    } else {
      index = static_cast<uint16_t>(++made_);
    }
    markers_[index] = {};
    markers_[index].event = events[--count];
    markers_[index].next = free_[context];
    markers_[index].context = context;
    free_[context] = index;
  }
  return count;
}

uint16_t MarkerPool::Take(uint16_t context) {
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
