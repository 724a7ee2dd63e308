// link: state
// A GPU's clock that drifts against the monotonic clock: how far off the moments are that GpuClock
// makes of it. Prints the largest error in nanoseconds, once the first markers were seen.
//
//   gpu_clock DRIFT_PPM [SLEW_PPM]    of the unslewed clock against the GPU's, and of the monotonic
//                                     one against that, behind its first two seconds
#include "device/gpu_clock.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

namespace {

constexpr int64_t kGpuBeginNs = 7'000'000'000;
constexpr int64_t kHostBeginNs = 1'000'000'000'000;
constexpr int64_t kStepNs = 10'000'000;  // from one marker to the next
constexpr int64_t kSeconds = 10;
constexpr int64_t kUnslewedNs = 2'000'000'000;
constexpr int64_t kReachedNs = 1'000;  // from being recorded to being reached, in an idle stream
constexpr int64_t kSeenNs = 500'000;   // from being reached to a look

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) return 2;
  const int64_t drift_ppm = strtoll(argv[1], nullptr, 10);
  const int64_t slew_ppm = argc == 3 ? strtoll(argv[2], nullptr, 10) : 0;
  const auto raw_at = [drift_ppm](int64_t gpu_ns) {
    const int64_t passed_ns = gpu_ns - kGpuBeginNs;
    return passed_ns + passed_ns / 1'000'000 * drift_ppm;
  };
  const auto host_at = [&](int64_t gpu_ns) {
    const int64_t raw_ns = raw_at(gpu_ns);
    const int64_t slewed_ns = raw_ns > kUnslewedNs ? raw_ns - kUnslewedNs : 0;
    return kHostBeginNs + raw_ns + slewed_ns / 1'000'000 * slew_ppm;
  };
  static gpufence::GpuClock clock;
  int64_t worst_ns = 0;
  for (int64_t gpu_ns = kGpuBeginNs; gpu_ns < kGpuBeginNs + kSeconds * 1'000'000'000;
       gpu_ns += kStepNs) {
    const int64_t host_ns = host_at(gpu_ns);
    // The kernel between two markers ends just before the next one begins.
    if (gpu_ns > kGpuBeginNs) {
      const int64_t told_ns = static_cast<int64_t>(clock.ToMonotonic(gpu_ns));
      worst_ns = llabs(told_ns - host_ns) > worst_ns ? llabs(told_ns - host_ns) : worst_ns;
    }
    const auto seen_ns = static_cast<uint64_t>(host_ns + kSeenNs);
    clock.NoteSlew(seen_ns, static_cast<uint64_t>(raw_at(gpu_ns) + kSeenNs), seen_ns);
    clock.Observe(gpu_ns, static_cast<uint64_t>(host_ns - kReachedNs),
                  static_cast<uint64_t>(host_ns + kSeenNs), /*prompt=*/true);
  }
  printf("%lld\n", static_cast<long long>(worst_ns));
  return 0;
}
