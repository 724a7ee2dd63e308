#include "device/gpu_clock.h"

#include <algorithm>

namespace gpufence {

void GpuClock::Observe(int64_t gpu_ns, uint64_t recorded_ns, uint64_t observed_ns) {
  const Bounds seen = {static_cast<int64_t>(recorded_ns) - gpu_ns,
                       static_cast<int64_t>(observed_ns) - gpu_ns};
  const uint64_t age_ns = observed_ns - window_began_ns_;
  if (window_began_ns_ == 0 || age_ns > kWindowNs) {
    const bool follows = window_began_ns_ != 0 && age_ns < 2 * kWindowNs;
    previous_ = follows ? current_ : seen;
    current_ = seen;
    window_began_ns_ = observed_ns;
  } else {
    current_.low_ns = std::max(current_.low_ns, seen.low_ns);
    current_.high_ns = std::min(current_.high_ns, seen.high_ns);
  }
  const int64_t low_ns = std::max(current_.low_ns, previous_.low_ns);
  const int64_t high_ns = std::min(current_.high_ns, previous_.high_ns);
  // Drift between the windows can make the bounds cross: then the newer word counts.
  offset_ns_ = low_ns <= high_ns ? std::max(low_ns, high_ns - kSeenSoonNs) : current_.high_ns;
}

uint64_t GpuClock::ToMonotonic(int64_t gpu_ns) const {
  const int64_t at_ns = gpu_ns + offset_ns_;
  return at_ns > 0 ? static_cast<uint64_t>(at_ns) : 0;
}

}  // namespace gpufence
