// The fence as the hooks ask for it, and the end of what a jump left behind.
#include "hooks/fence.h"

#include "base/resolve.h"

namespace gpufence {

constinit std::atomic<Fence*> the_fence{nullptr};
constinit thread_local ThisThread this_thread = {};

Fence* FenceAfterDeciding() {
  OpenFence(DriverIs::kUnknown);
  Fence* fence = DecidedFence();
  if (fence != nullptr) {
    // Whoever reached the driver's cuInit around us may have made a context the same way.
    fence->sole_context.Another();
    fence->sole_context.Another();
  }
  return fence;
}

Fence* DecidedFence() {
  Fence* fence = the_fence.load(std::memory_order_acquire);
  if (fence == nullptr) return nullptr;
  return fence->state.load(std::memory_order_acquire) == FenceState::kFenced ? fence : nullptr;
}

bool IsRefused() {
  Fence* fence = the_fence.load(std::memory_order_acquire);
  return fence != nullptr && fence->state.load(std::memory_order_acquire) == FenceState::kRefused;
}

namespace {

// A hook that is under way lies higher on the stack than whatever it called. Further away it may be
// another stack.
constexpr uintptr_t kNearBytes = uintptr_t{1} << 20;

// What the thread was in the middle of never ends. The driver may have done its part or not: what
// it holds more than is charged is found by the next reading. Of what shares chunks or lies in
// pools nobody could say whose bytes those are, so that its charge stays.
void Abandon() {
  Fence* fence = the_fence.load(std::memory_order_acquire);
  if (this_thread.reservation != nullptr) {
    this_thread.reservation = nullptr;
    this_thread.device->account.Release(this_thread.bytes, static_cast<Tier>(this_thread.tier));
  }
  for (uint32_t i = 0; this_thread.moves != 0 && fence != nullptr && i < fence->device_count; ++i) {
    fence->devices[i].moves.Abandon();
    OverheadChanged(&fence->devices[i]);
  }
  this_thread.moves = 0;
  this_thread.asking = 0;
  this_thread.making_room = 0;
}

}  // namespace

bool IsProgramsCall(const void* caller, uintptr_t frame) {
  if (IsDriverCode(caller)) return false;
  if (frame >= this_thread.frame && frame - this_thread.frame < kNearBytes) {
    Abandon();
    this_thread.hooks = 1;
    this_thread.frame = frame;
  }
  return true;
}

FencedDevice* Hook::CurrentOfSeveral(Fence* fence) {
  const uint32_t ordinal = CurrentDevice();
  return ordinal == kNoDevice ? nullptr : FencedOrdinal(fence, ordinal);
}

FencedDevice* FencedOrdinal(Fence* fence, uint32_t ordinal) {
  for (uint32_t i = 0; i < fence->device_count; ++i) {
    FencedDevice* device = &fence->devices[i];
    if (static_cast<uint32_t>(device->ordinal) == ordinal) return device;
  }
  return nullptr;
}

}  // namespace gpufence
