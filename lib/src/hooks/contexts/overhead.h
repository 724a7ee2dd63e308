// What the driver holds for this process although no request asked for it: contexts, code, stacks,
// heaps. Reserved as far as it can be foreseen, then measured around the call that caused it.
// Must not know which call that is.
#pragma once

#include <stdint.h>

#include "device/usage.h"
#include "driver_abi.h"
#include "hooks/fence.h"
#include "hooks/ledger_move.h"

namespace gpufence {

// What driver and ledger say about a device at one moment.
struct Look {
  UsageSource source;  // of used_bytes
  bool knows_free;
  uint64_t used_bytes;     // by this process
  uint64_t free_bytes;     // of the device
  uint64_t charged_bytes;  // to this process, without overhead
  uint64_t moves;
};

// The driver may hold more than was reserved (code loaded late, a first launch): read at the next
// request that comes near the limit, or at once.
void OverheadChanged(FencedDevice* device);
void ReadOverheadNow(FencedDevice* device);

// True when this process has a context on the device, also one that came to life without our
// hearing of it.
bool HasContext(FencedDevice* device);

// By how much a call changes what the driver holds for us, apart from what the ledger knows.
class Change {
 public:
  // `reserved_bytes`: of what is charged, those that wait for the call and are not held yet.
  Change(FencedDevice* device, uint64_t reserved_bytes);

  // After the call. `has_context`: the process has a context on the device now, whatever was
  // counted. False: nothing can be said, or other threads moved memory at the same time. `lesson`:
  // see OwnUsage; it may be open still.
  bool Measure(bool has_context, int64_t* bytes, NumberLesson* lesson = nullptr) const;

 private:
  FencedDevice* device_;
  Look before_;
};

// A call that may make the driver hold `foreseen_bytes` more, or something else.
class Growth {
 public:
  // Reserves what is foreseen, beside `charged_bytes` that it takes and that are charged already. A
  // null device has no limit: everything is granted.
  Growth(FencedDevice* device, uint64_t foreseen_bytes, uint64_t charged_bytes = 0);
  ~Growth();
  Growth(const Growth&) = delete;
  Growth& operator=(const Growth&) = delete;

  explicit operator bool() const { return granted_; }

  // After the driver succeeded: books what it took, or what was foreseen where that cannot be
  // measured. False: it took more than was foreseen, and the container stands above its limit.
  bool Settle();

 private:
  FencedDevice* device_;
  uint64_t foreseen_bytes_;
  uint64_t charged_bytes_;
  bool granted_;
  bool settled_ = false;
  LedgerMove move_;
  Change change_;
};

// Makes such a call: CUDA_ERROR_OUT_OF_MEMORY when what is foreseen does not fit.
template <typename Call>
CUresult CallThatGrows(FencedDevice* device, uint64_t foreseen_bytes, Call call) {
  if (device == nullptr) return call();
  Growth growth(device, foreseen_bytes);
  if (!growth) return OverLimit(device);
  const CUresult rc = call();
  if (rc == CUDA_SUCCESS) growth.Settle();
  return rc;
}

// The same for what can be undone: when it brought the container above its limit, undo() is called
// and CUDA_ERROR_OUT_OF_MEMORY returned.
template <typename Call, typename Undo>
CUresult CallThatGrows(FencedDevice* device, uint64_t foreseen_bytes, Call call, Undo undo) {
  if (device == nullptr) return call();
  {
    Growth growth(device, foreseen_bytes);
    if (!growth) return OverLimit(device);
    const CUresult rc = call();
    if (rc != CUDA_SUCCESS || growth.Settle()) return rc;
  }
  CallThatGrows(device, 0, undo);
  return OverLimit(device);
}

// The sum of UnreadGrowth in policy/view.h now; 0: not known. The device is the current context's.
uint64_t FreeAndCharged(FencedDevice* device);

// True when calls that were not measured brought so much, together since the overhead was read or
// since `before_bytes`, that it has to be read now. A request that comes near the limit reads it in
// any case, but only what its own process holds.
bool HasGrownUnread(FencedDevice* device, uint64_t before_bytes);

// Reads it then.
void ReadIfGrownUnread(FencedDevice* device);

// A library's variables, of any size, come into a context with the first function, module or
// variable of the library that is asked for there (H200: to the byte, and with nothing else).
// Free memory tells for some microseconds whether they came; only then it is measured what did.
// CUDA_ERROR_OUT_OF_MEMORY when the container stands above its limit then: the caller is to be
// given nothing, but what came stays until the library goes.
template <typename Call>
CUresult CallThatPlaces(FencedDevice* device, Call call) {
  if (!device->listed.load(std::memory_order_relaxed)) {
    return CallThatGrows(device, 0, call, [] { return CUDA_SUCCESS; });
  }
  const uint64_t before_bytes = device->unread.HighestWith(FreeAndCharged(device));
  const CUresult rc = call();
  OverheadChanged(device);
  if (rc != CUDA_SUCCESS || !HasGrownUnread(device, before_bytes)) return rc;
  ReadOverheadNow(device);
  return device->account.IsWithinLimit() ? rc : OverLimit(device);
}

// ---- first launches ----
//
// A kernel's first launch makes the driver take a stack for every thread that the device can hold
// at once. Asked once for each function in each context; a launch seen before costs one load, and
// one question more in a process that had several contexts.

// True when the function was launched before in the calling thread's context: a CUkernel in its
// place serves in all of them, and each takes a stack of its own. Direct-mapped: two functions may
// push each other out, which costs another look and nothing else.
enum class Launched : uint8_t { kNever, kBefore, kCollective };
Launched WasLaunched(CUfunction function);
void RememberLaunch(CUfunction function, bool is_collective);

// Whether the function's kernel meets others on other devices (policy/gang.h), by its name: asked
// of the driver where it was not launched before. False where the driver tells no names (before
// CUDA 12.3).
bool IsCollective(CUfunction function);

// The same for a kernel whose function was asked for, and for a function that was.
bool WasLookedUp(const void* handle);
void RememberLookUp(const void* handle);

// From now on contexts are told apart: this process has, or had, more than one.
void TellContextsApart();

// After anything that lets a handle be used again or a context shrink its stack.
void ForgetLaunches();

// Bytes by which a context grows when its threads get `stack_bytes` each instead of what they have:
// the difference times the most threads that the device can hold.
uint64_t StackGrowthBytes(Fence* fence, FencedDevice* device, uint64_t context,
                          uint64_t stack_bytes);

// What a function wants of it, in bytes per thread; 0 when the driver will not say. The handle may
// be a CUkernel in a CUfunction's place.
uint64_t StackOf(CUfunction function);

}  // namespace gpufence
