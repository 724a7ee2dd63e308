// What contexts cost, and what ends with them. Must not know through which call a context was made.
#pragma once

#include <stdint.h>

#include "device/usage.h"
#include "driver_abi.h"
#include "hooks/contexts/overhead.h"
#include "hooks/fence.h"
#include "hooks/ledger_move.h"

namespace gpufence {

// A context that is about to be made: its last known cost is reserved, then the measured one kept.
class NewContext {
 public:
  // Null device: no limit there.
  explicit NewContext(FencedDevice* device);
  ~NewContext();
  NewContext(const NewContext&) = delete;
  NewContext& operator=(const NewContext&) = delete;

  // False: it does not fit.
  explicit operator bool() const { return granted_; }

  // After the driver made it. False: it costs more than is left, and the caller must undo it. A
  // context that another thread booked meanwhile (the primary) is not booked twice. `stale`: the
  // booking under this handle, if it is there, of a context that is known to have ended.
  bool Settle(Fence* fence, CUcontext made, uint64_t stale);

  // What the call returns where it does not fit.
  CUresult Refused() const;

  // A context ended since: this one, perhaps, before it was booked.
  bool SawEnd() const { return device_ != nullptr && move_.SawEnd(); }

 private:
  uint64_t MeasuredBytes(CUcontext made);

  FencedDevice* device_;
  uint64_t reserved_bytes_ = 0;
  bool known_ = false;  // reserved at a cost that was measured once
  bool granted_ = true;
  bool settled_ = false;
  LedgerMove move_;
  NumberLesson lesson_;
  Change change_;
};

// What a context is booked under: 0 when it is not. Asked before the driver ends the context, or
// before it says that it did: whatever is booked afterwards is another context, perhaps under the
// same handle.
uint64_t BookingOf(Fence* fence, uint64_t context);
inline constexpr uint64_t kFreshHandle = UINT64_MAX;  // any booking under it is stale

// After the driver ended a context: its cost and every holding that ended with it go back, unless
// the handle's next owner has seen to it.
void ContextEnded(Fence* fence, uint64_t context, uint64_t booking);

// The driver knows it, and it has not ended.
bool IsAlive(uint64_t context);

// What the driver granted while a context ended, and what was booked behind that, may have gone
// with it: then it goes back here. Linear and managed memory the driver is asked about; of an array
// only its context, since a handle that is gone may not be.
[[gnu::cold, gnu::noinline]] void EndAddressIfGone(FencedDevice* device, uint64_t address);
[[gnu::cold, gnu::noinline]] void EndArrayIfGone(FencedDevice* device, HoldingKind kind,
                                                 uint64_t key, bool primary_ended);

// The stack, in bytes per thread, that a context's launches have made the driver provide so far.
uint64_t LaunchedStack(Fence* fence, uint64_t context);
void SetLaunchedStack(Fence* fence, FencedDevice* device, uint64_t context, uint64_t stack_bytes);

}  // namespace gpufence
