#include "device/gpu_clock.h"

#include <algorithm>

namespace gpufence {

void GpuClock::Observe(int64_t gpu_ns, uint64_t recorded_ns, uint64_t observed_ns, bool prompt) {
  const Bounds seen = {static_cast<int64_t>(recorded_ns) - gpu_ns,
                       static_cast<int64_t>(observed_ns) - gpu_ns, prompt};
  const uint64_t age_ns = observed_ns - window_began_ns_;
  const int64_t drift_ns = static_cast<int64_t>(observed_ns - observed_ns_) / kDriftPart;
  observed_ns_ = observed_ns;
  current_.Loosen(drift_ns);
  previous_.Loosen(drift_ns);
  if (window_began_ns_ == 0 || age_ns > kWindowNs) {
    const bool follows = window_began_ns_ != 0 && age_ns < 2 * kWindowNs;
    previous_ = follows ? current_ : seen;
    current_ = seen;
    window_began_ns_ = observed_ns;
  } else {
    current_.low_ns = std::max(current_.low_ns, seen.low_ns);
    current_.high_ns = std::min(current_.high_ns, seen.high_ns);
    current_.has_prompt |= prompt;
  }
  const int64_t low_ns = std::max(current_.low_ns, previous_.low_ns);
  const int64_t high_ns = std::min(current_.high_ns, previous_.high_ns);
  if (low_ns > high_ns) {
    offset_ns_ = current_.high_ns;  // the clocks drifted between the windows: the newer word counts
  } else if (IsSharp()) {
    offset_ns_ = low_ns;
  } else {
    offset_ns_ = std::max(low_ns, high_ns - kSeenSoonNs);
  }
}

uint64_t GpuClock::ToMonotonic(int64_t gpu_ns) const {
  const int64_t at_ns = gpu_ns + offset_ns_;
  return at_ns > 0 ? static_cast<uint64_t>(at_ns) : 0;
}

}  // namespace gpufence
