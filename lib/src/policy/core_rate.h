// How much of a GPU's time a container was charged lately, by its words. Must not know whose they
// are.
#pragma once

#include <stdint.h>

#include "shared_layouts.h"

namespace gpufence {

// Looks at what was charged in all. `at_least`: what it counts as from now on, if that is more;
// what comes later decides.
void NoteRate(CoreTenant* tenant, uint32_t at_least, uint64_t now_ns);

// Thousandths of a percent of the last tenth of a second or so.
inline uint32_t RateOf(const CoreTenant& tenant) {
  return static_cast<uint32_t>(tenant.rate.load(std::memory_order_relaxed));
}

// The same, or what was charged since the last look would be of a tenth of a second, if that is
// more: whoever uses it up stops in time.
uint32_t RateSoFar(const CoreTenant& tenant);

}  // namespace gpufence
