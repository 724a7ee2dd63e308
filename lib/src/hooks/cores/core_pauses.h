// What is known of a device's pauses: what somebody kept, or what is measured before the first code
// comes into a context of it; bounds until then. Must not know how they are measured, nor what is
// reckoned with them.
#pragma once

#include "hooks/cores/cores.h"

namespace gpufence {

// Before the program has code put into the calling thread's context, which waits for all that runs
// there: then the same can be done for what measures, which at a launch might wait for ever.
// Whoever comes first measures, if nobody kept it; others wait for that, for a moment only. Holds
// no lock.
void FindPausesBeforeCode();

// Before a launch that is the first one of its run: what somebody kept, if nobody looked yet.
[[gnu::cold, gnu::noinline]] void FindKeptPauses(Cores* cores, CoreDevice* device);

// Whether that would find out nothing more.
inline bool SoughtPauses(const CoreDevice& device) {
  return device.finding.load(std::memory_order_acquire) >= CoreDevice::kNotKept;
}

}  // namespace gpufence
