// The union of what several processes saw running: every moment of a container is charged once,
// whoever reports it first and in whatever order. Pure arithmetic on shared words; must not know
// whose they are.
#pragma once

#include <stdint.h>

#include "shared_layouts.h"

namespace gpufence {

// Adds [begin_ns, end_ns) to what the tenant was busy; returns how much of it was new. What lies in
// the future counts up to `now_ns`. Lock-free; a process killed inside loses what it was adding,
// and at most one gap.
//
// Everything before charged_until_ns is charged, except the gaps: the latest kCoreGaps intervals
// that it jumped over, each at most kLongestGapNs, in steps of kGapStepNs (gaps lose up to two
// steps).
uint64_t AddBusy(CoreTenant* tenant, uint64_t begin_ns, uint64_t end_ns, uint64_t now_ns);

inline constexpr uint64_t kGapStepNs = 4;
inline constexpr uint64_t kLongestGapNs = (uint64_t{1} << 24) * kGapStepNs - kGapStepNs;

}  // namespace gpufence
