// Plain memory that was freed in the order of a stream: the driver holds it until the stream got
// there and somebody waits for it afterwards, and so does its charge. An event behind the free
// tells the former, and waiting for it then, which takes no time, does the latter. Managed memory
// the driver does not free in this order at all: then it is ours to free, by the call that waits
// for the device, where waiting is what the program asked for or memory is short. Rare, so it may
// cost driver calls; must not know pools.
#pragma once

#include <stdint.h>

#include <atomic>

#include "driver_abi.h"
#include "state/holdings.h"

namespace gpufence {

struct Fence;

struct LateFrees {
  Holdings waiting;  // key: the event
  std::atomic<uint32_t> count;
};

// Discharges `holding` once `record(event)` says that the stream got so far; at once when no event
// can be had.
using RecordCall = CUresult (*)(CUevent, CUstream);
void FreeLater(Fence* fence, Holding holding, CUstream stream, RecordCall record);

// Discharges what was reached by now. Calls the driver only when something waits. What is ours to
// free is left alone unless the call may wait for the device.
void SettleLateFrees(Fence* fence, bool may_wait);

// Discharges what waits in a context that is gone, and its events with it.
void ForgetLateFrees(Fence* fence, uint64_t context);

}  // namespace gpufence
