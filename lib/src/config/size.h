// The grammar of memory limits, one pure function:
//
//   size := blank* number blank* unit? blank*
//   unit := "b" | "byte" | "bytes" | [kmgt] "i"? "b"? | "%"      any case; always 1024-based
//
// Source: tests/config/limits.vectors.json.
#pragma once

#include "config/number.h"

namespace gpufence {

// Bytes, or a part of a device's memory in billionths of a percent.
struct Size {
  uint64_t amount;
  bool percent_of_device;
};

inline constexpr uint64_t kPercentSteps = 1'000'000'000;  // billionths in one percent

// kNone and *size, or why not. Zero is kNone: what "no limit" means is the caller's to say.
Fault ParseSize(std::string_view text, Size* size);

// floor(total_bytes x percent / 100), saturated at 2^64 - 1.
uint64_t PartOf(uint64_t total_bytes, uint64_t percent_steps);

}  // namespace gpufence
