// The small grammars beside sizes: shares of GPU time, ratios, switches, counts. Pure functions.
// Source: tests/config/limits.vectors.json.
#pragma once

#include "config/number.h"

namespace gpufence {

inline constexpr uint64_t kThousand = 1000;

// number "%"?, 0 to 100, in thousandths of a percent, rounded down.
Fault ParsePercent(std::string_view text, uint64_t* thousandths);

// A decimal number without a unit, in thousandths, rounded down.
Fault ParseRatio(std::string_view text, uint64_t* thousandths);

// A whole number of MiB, in bytes.
Fault ParseMegabytes(std::string_view text, uint64_t* bytes);

// 1 true yes on, 0 false no off, in any case.
Fault ParseSwitch(std::string_view text, bool* on);

// Off, on or a ratio of at least 1 in thousandths; 1 is on without a ratio, 0 is off.
Fault ParseOversubscribe(std::string_view text, uint64_t* amount);

// Digits only, below 10000, no leading zero.
bool ParseIndex(std::string_view text, uint32_t* index);

}  // namespace gpufence
