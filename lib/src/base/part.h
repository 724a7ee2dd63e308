// Parts of times.
#pragma once

#include <stdint.h>

namespace gpufence {

// As large a part of `ns` as `part_ns` is of `whole_ns`, which is not 0. All may be seconds, and
// the product of two of them is none of 64 bits.
inline uint64_t PartOf(uint64_t ns, uint64_t part_ns, uint64_t whole_ns) {
  const double part = static_cast<double>(part_ns) / static_cast<double>(whole_ns);
  return static_cast<uint64_t>(static_cast<double>(ns) * part);
}

}  // namespace gpufence
