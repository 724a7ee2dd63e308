// Plain memory that was freed in the order of a stream: the driver holds it until the stream got
// there and somebody waits for it afterwards, and so does its charge. An event behind the free
// tells the former, and waiting for it then, which takes no time, does the latter. Which context is
// current, and which the memory is from, makes no difference: the event is one of the stream's
// context.
//
// Managed memory the driver does not free in this order at all: then it is ours to free, by the
// call that waits for the device, where waiting is what the program asked for or memory is short.
// Rare, so it may cost driver calls; must not know pools.
#pragma once

#include <stdint.h>

#include <atomic>

#include "base/locks.h"
#include "driver_abi.h"
#include "state/holdings.h"

namespace gpufence {

struct Fence;

struct LateFree {
  Holding holding;
  CUevent event;      // behind the free; null: the stream is gone, with all that was in it
  CUcontext context;  // of the event, as of the stream; of the memory where the event is gone
  bool is_ours;       // to free: the driver would not
  LateFree* next;
};

// All that wait, the oldest first; in memory that is wiped on fork.
struct LateFrees {
  std::atomic<uint32_t> count;  // those that somebody looks at just now, too
  // Of these, what the driver may let go of before anybody here hears of it: all but what is ours
  // to free. A figure of the driver's may lack them already while they are charged.
  std::atomic<uint32_t> of_driver;
  SpinLock lock;  // guards the lists, never a driver call
  LateFree* first;
  LateFree* last;
  LateFree* unused;
};

// A stream as the driver's free was told it: of two default streams one handle may mean either.
struct FreeingStream {
  CUstream handle;
  CUresult (*context)(CUstream, CUcontext*);
  CUresult (*record)(CUevent, CUstream);
};

// Discharges `holding`, which the driver has agreed to free, once the stream got so far. `is_ours`:
// it did not, and we do then. False: nobody can say when that is, and the memory is as it was.
bool FreeLater(Fence* fence, const Holding& holding, const FreeingStream& stream, bool is_ours);

// Discharges what was reached by now. Calls the driver only when something waits. What is ours to
// free is left alone unless the call may wait for the device.
void DischargeLateFrees(Fence* fence, bool may_wait);

// Before the driver ends a context: what was freed in its streams and reached is discharged, since
// nobody can make the driver let go of it afterwards (H200: it stays as long as its owner lives).
// `waits`: the driver is going to wait for those streams, and so may we.
void DischargeBeforeEnd(Fence* fence, CUcontext context, bool waits);

// After it: what lay in the context is gone. What else was freed in its streams becomes overhead,
// which the next reading sets right, or is still ours to free.
void ForgetLateFrees(Fence* fence, CUcontext context);

}  // namespace gpufence
