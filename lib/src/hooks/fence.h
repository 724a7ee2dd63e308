// The fence of this process: decided once, at the first driver call that needs it, and what every
// hook asks first. Without a limit every question costs one relaxed load. And what a call returns
// that a limit refuses, with the one line that says so.
#pragma once

#include <stdint.h>

#include <atomic>

#include "base/locks.h"
#include "config/limits.h"
#include "device/ids.h"
#include "driver_abi.h"
#include "hooks/graphs/executables.h"
#include "hooks/ledger_move.h"
#include "hooks/pools/late_frees.h"
#include "hooks/pools/pool_account.h"
#include "policy/account.h"
#include "policy/arrays.h"
#include "policy/chunks.h"
#include "policy/view.h"
#include "real.h"
#include "state/holdings.h"
#include "state/limits_file.h"

namespace gpufence {

enum class FenceState : uint32_t {
  kUnread = 0,
  kOpen,     // no limit: every hook is a jump
  kFenced,   // a limit holds on at least one device
  kRefused,  // a limit was set and cannot be held: enforced calls fail with RefusalCode()
};

// The context that every thread of the process has that has any: known as long as it is the only
// one that was made. Then nobody asks the driver for it on the way to an allocation.
class SoleContext {
 public:
  // One is about to be made, or there may be one that was not seen.
  void Another() {
    uint64_t none = kNone;
    if (!word_.compare_exchange_strong(none, kFirst, std::memory_order_acq_rel)) {
      word_.store(kSeveral, std::memory_order_release);
    }
  }

  // It is there, and nobody was given it yet. Nothing happens when another one is about to be.
  void Made(uint64_t handle) {
    uint64_t first = kFirst;
    word_.compare_exchange_strong(first, handle, std::memory_order_acq_rel);
  }

  // 0: not known, for good after the second. Whoever has another one current was given it after it
  // was announced here.
  uint64_t handle() const {
    const uint64_t seen = word_.load(std::memory_order_relaxed);
    return seen > kSeveral ? seen : 0;
  }

 private:
  static constexpr uint64_t kNone = 0;
  static constexpr uint64_t kFirst = 1;
  static constexpr uint64_t kSeveral = 2;  // no handle is as small

  std::atomic<uint64_t> word_;
};

struct FencedDevice {
  uint8_t uuid[16];
  CUdevice ordinal;
  uint64_t total_bytes;
  FreeReading free_reading;
  UnreadGrowth unread;  // code and variables that nobody measured
  Account account;
  ChunkTable chunks;          // where this process's small pieces lie
  ArrayPlaces array_places;   // the same for those without an address
  ChunkTable unified_chunks;  // the same of those that stay on the host
  Moves moves;                // see LedgerMove
  std::atomic<uint64_t>
      unlisted_bytes;                  // charged, and in no process list (hooks/memory/exported.h)
  std::atomic<bool> listed;            // the process list knows us here
  std::atomic<uint32_t> contexts;      // living contexts of this process, primary included
  SpinLock channels_lock;              // guards the booking of channels, never a driver call
  std::atomic<uint64_t> primary;       // handle of the primary context, once it is known
  SpinLock contexts_lock;              // guards the booking of contexts, never a driver call
  GraphAccount graph;                  // charged for graph memory
  std::atomic<PoolAccount*> overflow;  // see OverflowPoolOf
  std::atomic<bool> lacks_overflow;    // the driver has no such pool
  std::atomic<uint64_t> current_pool;  // handle; 0: not known (PoolChoice)
};

// All that is the process's own; wiped on fork.
struct Fence {
  std::atomic<FenceState> state;
  FutexLock deciding;              // guards what is decided, never a driver call
  std::atomic<bool> any_exported;  // most processes never export: no free looks for a mark then
  std::atomic<bool> any_links;     // the same of links, for the ends of arrays
  uint32_t device_count;
  SoleContext sole_context;
  FencedDevice devices[kMaxDevices];
  LimitsFile set_limits;
  Holdings holdings;
  PoolTable pools;
  PoolChoices pool_choices;
  LateFrees late_frees;
  SpinLock exporting;  // guards the places of locks (LockDescriptor)
};

// This process's fence, decided or not; null before the first driver call.
extern constinit std::atomic<Fence*> the_fence;

// Decides, if nobody has: the program reached the driver's cuInit around us, or this is a forked
// child. Null unless a limit holds.
[[gnu::cold, gnu::noinline]] Fence* FenceAfterDeciding();

// Null unless a limit holds. Decides first, if nobody has.
inline Fence* ActiveFence() {
  Fence* fence = the_fence.load(std::memory_order_acquire);
  if (fence != nullptr) [[likely]] {
    const FenceState state = fence->state.load(std::memory_order_acquire);
    if (state == FenceState::kFenced) [[likely]]
      return fence;
    if (state != FenceState::kUnread) return nullptr;
  }
  return FenceAfterDeciding();
}

// The same without deciding: for those who must not wake CUDA.
Fence* DecidedFence();

// Whether the driver can be asked: cuInit was not called yet, nobody knows, or it has just worked.
enum class DriverIs : uint8_t { kDown, kUnknown, kUp };

// Decides, if nobody has. Called by cuInit and by any hook that finds kUnread.
// CUDA_SUCCESS, or the code that enforced calls return from now on.
CUresult OpenFence(DriverIs driver);

// True when enforced calls must fail: a limit was asked for and cannot be held.
bool IsRefused();
inline constexpr CUresult kRefusalCode = CUDA_ERROR_INVALID_VALUE;

// What a call returns that the device's limit refuses for good: counts it. The container's first
// refusal on a device is logged, with what was asked, what is used and what the limit is.
[[gnu::cold, gnu::noinline]] CUresult OverLimit(FencedDevice* device);

// The same where memory would lie in the calling thread's context: who has none is told that.
[[gnu::cold, gnu::noinline]] CUresult OverLimitInContext(FencedDevice* device);

// The same for a context that takes `bytes`: a limit below that is named as such, since no program
// can use the device under it.
[[gnu::cold, gnu::noinline]] CUresult OverLimitOfContexts(FencedDevice* device, uint64_t bytes);

// The answer to a request for memory at a place that cannot be charged to anybody. The code is the
// one of drivers that do not know such places either.
CUresult RefuseUnknownPlace(const char* function, const CUmemLocation& location);

// A call comes while the thread is inside a hook, or seems to be: true when it is the program's.
// `caller` is its return address, perhaps one of ours: a hook's own function may stand between.
// `frame`: where the call is on the stack. Ends what a jump left behind, where that is certain.
[[gnu::cold, gnu::noinline]] bool IsProgramsCall(const void* caller, uintptr_t frame);

// Counts a hook; true when the program called it.
[[gnu::always_inline]] inline bool EnterHook() {
  const char here = 0;
  const auto frame = reinterpret_cast<uintptr_t>(&here);
  if (this_thread.hooks++ != 0) [[unlikely]]
    return IsProgramsCall(__builtin_return_address(0), frame);
  this_thread.frame = frame;
  return true;
}

// What every hook makes first: who is asking, and does a limit hold for it.
// The hooks that a pair of calls goes through are one function each (gnu::flatten), and what seldom
// runs stands apart (gnu::cold, gnu::noinline) and takes copies, so that what it would point to
// stays in registers: beside a driver call every line of code and every jump is cold.
// Also counts the depth of our own hooks on this thread. Calls that a driver library makes into our
// exports meanwhile go straight to the driver. All others are the program's: a callback that the
// driver makes may allocate as well, and a jump out of one leaves the depth behind.
class Hook {
 public:
  [[gnu::always_inline]] Hook() : fence_(nullptr), refused_(false) {
    if (!EnterHook()) [[unlikely]]
      return;
    fence_ = ActiveFence();
    if (fence_ == nullptr) [[unlikely]]
      refused_ = IsRefused();
  }
  ~Hook() { --this_thread.hooks; }
  Hook(const Hook&) = delete;
  Hook& operator=(const Hook&) = delete;

  // Null: nothing to do, call the driver.
  Fence* fence() const { return fence_; }

  // A limit was asked for and cannot be held: enforced calls return kRefusalCode.
  bool refused() const { return refused_; }

  // The fenced device of the calling thread's context; null when there is none. With one device
  // there is nothing to ask but whether there is a context.
  FencedDevice* current_device() const {
    if (fence_ == nullptr) return nullptr;
    if (fence_->device_count != 1) [[unlikely]]
      return CurrentOfSeveral(fence_);
    return context() != 0 ? &fence_->devices[0] : nullptr;
  }

  // The same for a call that allocates in the thread's context, which context() is then asked for.
  // With one device and one context ever nobody is asked: a thread without a context is taken for
  // one that has it, and is refused by the driver, or by OverLimitInContext.
  FencedDevice* allocating_device() const {
    if (fence_ == nullptr) return nullptr;
    context_ = fence_->sole_context.handle();
    knows_context_ = context_ != 0;
    return current_device();
  }

  // The same for a call of the driver's that succeeds only where there is a context: with one
  // device nobody needs to be asked.
  FencedDevice* answering_device() const {
    if (fence_ == nullptr || fence_->device_count != 1) return current_device();
    return &fence_->devices[0];
  }

  // The same, asked once.
  uint64_t context() const {
    if (!knows_context_) {
      context_ = CurrentContext();
      knows_context_ = true;
    }
    return context_;
  }

 private:
  static FencedDevice* CurrentOfSeveral(Fence* fence);

  Fence* fence_;
  bool refused_;
  mutable bool knows_context_ = false;
  mutable uint64_t context_ = 0;
};

// Counts the depth like a hook and asks for nothing: around calls of ours into NVML, which calls
// its own exports and so enters our hooks, and in the hooks of NVML, which also serve without CUDA.
class InsideHook {
 public:
  [[gnu::always_inline]] InsideHook() : is_outermost_(EnterHook()) {}
  ~InsideHook() { --this_thread.hooks; }
  InsideHook(const InsideHook&) = delete;
  InsideHook& operator=(const InsideHook&) = delete;

  // False when called from inside another hook: the answer is adjusted there.
  bool is_outermost() const { return is_outermost_; }

 private:
  bool is_outermost_;
};

// The fenced device of an ordinal; null when it is none of ours.
FencedDevice* FencedOrdinal(Fence* fence, uint32_t ordinal);

}  // namespace gpufence
