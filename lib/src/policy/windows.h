// Windows: when each of several containers that meet in collectives on the same GPUs has them. A
// collective stands still while one of its GPUs is another container's, so all GPUs of a job have
// to be its own at the same time. Nobody arranges that: windows follow from the clock, which is one
// for all GPUs of a host, and from who is there (docs/core-limiter.md, "Jobs that share several
// GPUs"). Pure; time is a parameter. Must not know the shared file, processes or CUDA.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/tuning.h"

namespace gpufence {

// A container that met others in collectives lately, on one GPU.
struct WindowTenant {
  uint64_t job;  // the same on all its GPUs; windows are in the order of these
  uint32_t share;
  uint64_t idle_since_ns;  // since when nothing of it is outstanding; 0: something is
};

struct Window {
  uint64_t wait_ns;  // until it may launch; 0: now
  uint64_t left_ns;  // then until it may no more; UINT64_MAX: nobody else is there
};

// The window of `own` beside `others`. Each has its part of a period, by its share; one that leaves
// the GPU alone in its own for a while leaves it to all others. O(count) in the own window, else
// O(count squared).
Window WindowOf(const WindowTenant& own, const WindowTenant* others, size_t count, uint64_t now_ns,
                const Tuning& tuning = kTuning);

}  // namespace gpufence
