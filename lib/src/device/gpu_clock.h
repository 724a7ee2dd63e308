// From a GPU's clock to the monotonic clock. Nobody can read both at once; but a marker is reached
// after it was recorded and before it was seen, so each one bounds the difference from both sides.
// Pure: must not know CUDA.
#pragma once

#include <stdint.h>

namespace gpufence {

// Zero-initialised state is ready for use.
class GpuClock {
 public:
  // A marker of GPU time `gpu_ns` was recorded at `recorded_ns` and seen at `observed_ns`.
  // `prompt`: nothing was before it, so that it was reached within microseconds.
  void Observe(int64_t gpu_ns, uint64_t recorded_ns, uint64_t observed_ns, bool prompt);

  // The moment of the monotonic clock at which the GPU's clock said `gpu_ns`.
  uint64_t ToMonotonic(int64_t gpu_ns) const;

 private:
  // The clocks drift apart by microseconds a second, so bounds are forgotten after two windows.
  static constexpr uint64_t kWindowNs = 1'000'000'000;
  // Without a prompt one: of the many markers of a window one was seen this soon after it was
  // reached.
  static constexpr int64_t kSeenSoonNs = 100'000;

  struct Bounds {
    int64_t low_ns;
    int64_t high_ns;
    bool has_prompt;
  };
  Bounds current_;
  Bounds previous_;
  uint64_t window_began_ns_;  // 0: nothing was observed
  int64_t offset_ns_;
};

}  // namespace gpufence
