// How a refused text is worded: what, why, how to fix, on one line. Must not know who reads it.
#pragma once

#include <stddef.h>

#include "config/number.h"

namespace gpufence {

inline constexpr size_t kQuoteBytes = 64;

// `text` for a message: printable ASCII, cut after 60 characters.
void Quote(std::string_view text, char quoted[kQuoteBytes]);

// What is wrong, and what to write instead: "is negative", "Unset it for no limit".
struct Wording {
  Fault fault;
  const char* clause;
  const char* fix;
};

const Wording& WordingOf(Fault fault);

// "NAME='TEXT' is negative. Unset it for no limit"
void DescribeFault(std::string_view name, std::string_view text, Fault fault, char* why,
                   size_t why_bytes);

}  // namespace gpufence
