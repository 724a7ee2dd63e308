// The fence of this process: decided once, at the first driver call that needs it, and what every
// hook asks first. Without a limit every question costs one relaxed load.
#pragma once

#include <stdint.h>

#include <atomic>

#include "base/locks.h"
#include "config/limits.h"
#include "device/ids.h"
#include "driver_abi.h"
#include "hooks/contexts/sole_context.h"
#include "hooks/graphs/executables.h"
#include "hooks/ledger_move.h"
#include "hooks/pools/current_pool.h"
#include "hooks/pools/late_frees.h"
#include "hooks/pools/pool_account.h"
#include "policy/account.h"
#include "policy/array_places.h"
#include "policy/chunks.h"
#include "policy/free_reading.h"
#include "policy/unread_growth.h"
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
      unlisted_bytes;              // charged, and in no process list (hooks/pools/pool_exports.h)
  std::atomic<bool> listed;        // the process list knows us here
  std::atomic<uint32_t> contexts;  // living contexts of this process, primary included
  SpinLock channels_lock;          // guards the booking of channels, never a driver call
  std::atomic<uint64_t> primary;   // handle of the primary context, once it is known
  SpinLock contexts_lock;          // guards the booking of contexts, never a driver call
  GraphAccount graph;              // charged for graph memory
  std::atomic<PoolAccount*> overflow;  // see hooks/memory/overflow_pool.h
  std::atomic<bool> lacks_overflow;    // the driver has no such pool
  std::atomic<uint64_t> current_pool;  // handle; 0: not known (hooks/pools/current_pool.h)
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
  SpinLock exporting;  // guards the places of locks (hooks/sharing/shared_memory.cpp)
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

// A grant that goes back unless it is committed. Empty (true, nothing to give back) for a device
// without a limit.
class Reservation {
 public:
  // `bytes` as the driver takes them. For memory that shares chunks:
  // hooks/memory/piece_reservation.h.
  Reservation(FencedDevice* device, uint64_t bytes, Tier tier = Tier::kDevice);
  ~Reservation();
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  explicit operator bool() const { return granted_; }

  // Keeps the charge and books it under `holding.key`; fills its bytes, small and device.
  void Commit(Holding holding);

  // Keeps the charge without a holding; the caller gives it back.
  void Keep();

  // The device is not null.
  LedgerMove* move() { return &move_; }

 private:
  bool Forget();

  FencedDevice* device_;
  uint64_t bytes_;
  Tier tier_;
  bool granted_;
  bool keep_ = false;
  bool noted_ = false;  // as the thread's
  LedgerMove move_;
};

// Puts a holding into the table. What was there under its key is discharged: the driver gave the
// same number out again, so it ended by a door that was not seen. False: no memory; it stays
// charged for good rather than being lost, and the process's end gives it back.
[[gnu::cold, gnu::noinline]] bool HoldAgain(Fence* fence, Holding holding);
inline bool Hold(Fence* fence, const Holding& holding) {
  if (fence->holdings.PutNew(holding)) [[likely]]
    return true;
  return HoldAgain(fence, CopyOf(holding));
}

// Gives back what a holding was charged.
void Discharge(Fence* fence, const Holding& holding);

// The driver may hold more than was reserved (code loaded late, a first launch): read at the next
// request that comes near the limit, or at once.
void OverheadChanged(FencedDevice* device);
void ReadOverheadNow(FencedDevice* device);

}  // namespace gpufence
