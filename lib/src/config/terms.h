// The grammars of a core limit's terms: priority, weight, burst and floor. Pure functions.
// Source: tests/config/limits.vectors.json.
#pragma once

#include "config/limits.h"
#include "config/number.h"

namespace gpufence {

// low, normal or high, in any case.
Fault ParsePriority(std::string_view text, CorePriority* priority);

// A whole number, 1 to kMostWeight.
Fault ParseWeight(std::string_view text, uint32_t* weight);

// number ("us" | "ms" | "s"), in any case, or 0; up to ten seconds, in nanoseconds, cut.
Fault ParseBurst(std::string_view text, uint64_t* ns);

// number "%"?, 0 to 100, in thousandths of a percent, cut.
Fault ParseFloor(std::string_view text, uint32_t* thousandths);

}  // namespace gpufence
