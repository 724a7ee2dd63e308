// What every benchmark program measures with: a clock, a median, and a kernel that does nothing.
#pragma once

#include <time.h>

#include <algorithm>
#include <vector>

namespace bench {

inline constexpr char kEmptyKernel[] = R"(
.version 7.0
.target sm_50
.address_size 64
.visible .entry gpufence_empty() { ret; }
)";

inline double NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

inline double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace bench
