// A program that waits for each piece of its work, as one does that makes a token at a time: how
// long the pieces take.
// link: cuda
//
//   cores_even KERNEL_US COUNT       so many kernels a piece
//
// For two seconds, of which the first is to use up what was saved. Prints {"mean_us", "longest_us",
// "share": percent of that time in kernels}.
#include <time.h>

#include <algorithm>

#include "support/time_program.h"

using namespace timing;

namespace {

double NowUs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const unsigned long long kernel_ns = strtoull(argv[1], nullptr, 10) * kUs;
  const int count = atoi(argv[2]);
  const Gpu gpu;
  CUstream stream = NewStream();
  const double begin_us = NowUs();
  double measured_us = 0;
  double longest_us = 0;
  int pieces = 0;
  for (double now_us = begin_us; now_us < begin_us + 2e6;) {
    const double before_us = now_us;
    for (int i = 0; i < count; ++i) MUST(gpu.Spin(stream, kernel_ns, kWholeGpu));
    MUST(cuStreamSynchronize(stream));
    now_us = NowUs();
    if (before_us < begin_us + 1e6) continue;
    measured_us += now_us - before_us;
    longest_us = std::max(longest_us, now_us - before_us);
    ++pieces;
  }
  const double busy_us = static_cast<double>(kernel_ns) / 1e3 * count * pieces;
  Facts facts;
  facts.Say("mean_us", measured_us / pieces);
  facts.Say("longest_us", longest_us);
  facts.Say("share", 100 * busy_us / measured_us);
  return 0;
}
