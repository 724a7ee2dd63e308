// From a GPU's clock to the monotonic clock. Nobody can read both at once; but a marker is reached
// after it was recorded and before it was seen, so each one bounds the difference from both sides.
// Pure: must not know CUDA.
#pragma once

#include <stdint.h>

#include <algorithm>

#include "base/tuning.h"

namespace gpufence {

// Zero-initialised state is ready for use.
class GpuClock {
 public:
  // A marker of GPU time `gpu_ns` was recorded at `recorded_ns` and seen at `observed_ns`.
  // `prompt`: nothing was before it, so that it was reached within microseconds.
  void Observe(int64_t gpu_ns, uint64_t recorded_ns, uint64_t observed_ns, bool prompt,
               const Tuning& tuning = kTuning);

  // The monotonic clock was read before and behind one that nobody slews (`raw_ns`). By as much as
  // it was slewed since the last time, all that is known moves.
  void NoteSlew(uint64_t before_ns, uint64_t raw_ns, uint64_t behind_ns,
                const Tuning& tuning = kTuning);

  // The moment of the monotonic clock at which the GPU's clock said `gpu_ns`.
  uint64_t ToMonotonic(int64_t gpu_ns) const;

  // Whether that is known to about a microsecond.
  bool IsSharp() const { return current_.has_prompt || previous_.has_prompt; }

 private:
  struct Bounds {
    int64_t low_ns;
    int64_t high_ns;
    bool has_prompt;

    void Loosen(int64_t by_ns) {
      low_ns -= by_ns;
      high_ns += by_ns;
    }
    void Move(int64_t by_ns) {
      low_ns += by_ns;
      high_ns += by_ns;
    }
  };
  Bounds current_;
  Bounds previous_;
  uint64_t window_began_ns_;  // 0: nothing was observed
  uint64_t observed_ns_;      // the last time
  int64_t offset_ns_;
  int64_t slew_ns_;  // of the monotonic clock against the unslewed one
  bool knows_slew_;
};

inline void GpuClock::Observe(int64_t gpu_ns, uint64_t recorded_ns, uint64_t observed_ns,
                              bool prompt, const Tuning& tuning) {
  const Bounds seen = {static_cast<int64_t>(recorded_ns) - gpu_ns,
                       static_cast<int64_t>(observed_ns) - gpu_ns, prompt};
  const uint64_t age_ns = observed_ns - window_began_ns_;
  const int64_t drift_ns = static_cast<int64_t>(observed_ns - observed_ns_) / tuning.drift_part;
  observed_ns_ = observed_ns;
  current_.Loosen(drift_ns);
  previous_.Loosen(drift_ns);
  if (window_began_ns_ == 0 || age_ns > tuning.clock_window_ns) {
    const bool follows = window_began_ns_ != 0 && age_ns < 2 * tuning.clock_window_ns;
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
    offset_ns_ = std::max(low_ns, high_ns - static_cast<int64_t>(2 * tuning.close_look_ns));
  }
}

inline void GpuClock::NoteSlew(uint64_t before_ns, uint64_t raw_ns, uint64_t behind_ns,
                               const Tuning& tuning) {
  if (behind_ns - before_ns > tuning.most_record_ns) return;  // the thread had to wait between
  const uint64_t middle_ns = before_ns + (behind_ns - before_ns) / 2;
  const auto slew_ns = static_cast<int64_t>(middle_ns - raw_ns);
  if (knows_slew_) {
    current_.Move(slew_ns - slew_ns_);
    previous_.Move(slew_ns - slew_ns_);
    offset_ns_ += slew_ns - slew_ns_;
  }
  slew_ns_ = slew_ns;
  knows_slew_ = true;
}

inline uint64_t GpuClock::ToMonotonic(int64_t gpu_ns) const {
  const int64_t at_ns = gpu_ns + offset_ns_;
  return at_ns > 0 ? static_cast<uint64_t>(at_ns) : 0;
}

}  // namespace gpufence
