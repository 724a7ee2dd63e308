// What a call returns that a memory limit refuses, and the one line that says so. Must not know
// which call it is.
#pragma once

#include "driver_abi.h"

namespace gpufence {

struct FencedDevice;

// What a call returns that the device's limit refuses for good: counts it. The container's first
// refusal on a device is logged, with what was asked, what is used and what the limit is.
[[gnu::cold, gnu::noinline]] CUresult OverLimit(FencedDevice* device);

// The same where memory would lie in the calling thread's context: who has none is told that.
[[gnu::cold, gnu::noinline]] CUresult OverLimitInContext(FencedDevice* device);

// The same for a context that takes `bytes`: a limit below that is named as such, since no program
// can use the device under it.
[[gnu::cold, gnu::noinline]] CUresult OverLimitOfContexts(FencedDevice* device, uint64_t bytes);

}  // namespace gpufence
