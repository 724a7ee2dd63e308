// The fence as the hooks ask for it, what refused calls return, and the end of what a jump left
// behind.
#include "hooks/fence.h"

#include <stdio.h>

#include "base/log.h"
#include "base/resolve.h"
#include "hooks/contexts/overhead.h"

namespace gpufence {

constinit std::atomic<Fence*> the_fence{nullptr};
constinit thread_local ThisThread this_thread = {};

namespace {

// Never wiped: a forked child goes on counting, so that its threads share no cell either.
constinit std::atomic<uint32_t> moves_cells_claimed{0};

}  // namespace

uint32_t ClaimMovesCell() {
  uint32_t claimed = moves_cells_claimed.load(std::memory_order_relaxed);
  while (claimed < Moves::kCells - 1 && !moves_cells_claimed.compare_exchange_weak(
                                            claimed, claimed + 1, std::memory_order_relaxed)) {
  }
  this_thread.moves_cell = claimed + 1;
  return this_thread.moves_cell;
}

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

// ---- refusals ----

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// For people: whole MiB, as limits are written, or bytes where that would be none.
struct AmountText {
  explicit AmountText(uint64_t bytes) {
    const bool whole = bytes >= kMiB || bytes == 0;
    snprintf(text, sizeof text, "%llu %s",
             static_cast<unsigned long long>(whole ? bytes / kMiB : bytes),
             whole ? "MiB" : "bytes");
  }
  char text[32];
};

CUresult Refuse(FencedDevice* device, uint64_t bytes) {
  if (!device->account.CountRefusal()) return CUDA_ERROR_OUT_OF_MEMORY;
  GPUFENCE_LOG(
      kWarn,
      "refused %s on device %d: %s of its memory limit of %s are used. Free memory or raise "
      "the limit; later refusals of this container are counted (gpufence status), not "
      "logged",
      AmountText(bytes).text, device->ordinal, AmountText(device->account.UsedBytes()).text,
      AmountText(device->account.LimitBytes()).text);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace

CUresult OverLimit(FencedDevice* device) { return Refuse(device, device->account.refused_bytes()); }

CUresult OverLimitInContext(FencedDevice* device) {
  return CurrentContext() == 0 ? CUDA_ERROR_INVALID_CONTEXT : OverLimit(device);
}

CUresult OverLimitOfContexts(FencedDevice* device, uint64_t bytes) {
  const uint64_t limit_bytes = device->account.LimitBytes();
  if (limit_bytes >= bytes) return Refuse(device, bytes);
  device->account.CountRefusal();
  GPUFENCE_LOG(kError, "the memory limit of device %d is %s, less than a context takes (%s). %s",
               device->ordinal, AmountText(limit_bytes).text, AmountText(bytes).text,
               limit_bytes < kMiB ? "A limit without a unit is in bytes: write 4GiB for 4 GiB"
                                  : "Raise the limit");
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult RefuseUnknownPlace(const char* function, const CUmemLocation& location) {
  GPUFENCE_LOG(
      kWarn,
      "%s refused: it asks for memory at a location of type %d, which this gpufence cannot "
      "charge to a GPU. Update gpufence, or allocate on a device (type 1)",
      function, static_cast<int>(location.type));
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace gpufence
