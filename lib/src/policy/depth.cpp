#include "policy/depth.h"

#include <algorithm>

#include "policy/moment.h"

namespace gpufence {

bool IsDeep(const Depth& depth, uint64_t now_ns) {
  const bool is_long = depth.run_ns >= (depth.was_deep ? kShallowRunNs : kDeepRunNs) &&
                       depth.density >= kDenseEnough;
  const bool has_backlog = depth.backlog_ns != 0 && depth.backlog_ns < now_ns &&
                           now_ns - depth.backlog_ns >= kSaturatesAfterNs;
  return is_long && (has_backlog || IsRecent(depth.pressed_ns, now_ns, kSaturatesAfterNs));
}

uint64_t MeanRunNs(uint64_t mean_ns, uint64_t run_ns, uint64_t busy_ns) {
  mean_ns = std::min(mean_ns, kMostRunNs);  // a word that went wrong
  const uint64_t part_ns = std::min(busy_ns, kRunMeanNs);
  const uint64_t towards_ns = std::min(run_ns, kMostRunNs);
  return (mean_ns * (kRunMeanNs - part_ns) + towards_ns * part_ns) / kRunMeanNs;
}

uint64_t MeanDensity(uint64_t mean, uint64_t busy_ns, uint64_t ran_ns) {
  mean = std::min(mean, kWholeDensity);  // a word that went wrong
  const uint64_t part_ns = std::min(ran_ns, kDensityMeanNs);
  if (part_ns == 0) return mean;
  const uint64_t now = std::min(busy_ns * kWholeDensity / ran_ns, kWholeDensity);
  // Rounded up: it would sink with every step.
  return (mean * (kDensityMeanNs - part_ns) + now * part_ns + kDensityMeanNs - 1) / kDensityMeanNs;
}

}  // namespace gpufence
