// A training program that launches kernel by kernel, from a recording: how long its thread takes
// from one launch to the next, and how long each kernel runs. Ten steps, then it waits for all.
// link: cuda
// flags: -pthread
//
//   cores_replay FILE MS
//
// FILE: lines "HOST_NS NS KIND", one step; KIND is k for a kernel, m for a memset or a copy, and w
// for a wait for the stream. It goes on for MS, the first quarter of which does not count, and
// prints {"share": percent of the rest during which kernels ran, "whole": percent until the last
// wait was over, "least", "most": of a single second}.
#include <time.h>

#include <algorithm>
#include <vector>

#include "cores_ways.h"

using namespace timing;

namespace {

constexpr int kStepsAtOnce = 10;
constexpr size_t kBytes = 64;
// Kernels of different lengths have different grids: in a real program they are other functions.
constexpr unsigned kGrids = 1'000;

unsigned long long NowNs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<unsigned long long>(now.tv_sec) * 1'000'000'000u +
         static_cast<unsigned long long>(now.tv_nsec);
}

double NowUs() { return static_cast<double>(NowNs()) / 1e3; }

struct Launch {
  unsigned long long host_ns;
  unsigned long long ns;
  char kind;
};

std::vector<Launch> Read(const char* path) {
  std::vector<Launch> launches;
  FILE* file = fopen(path, "re");
  if (file == nullptr) exit(2);
  Launch launch = {};
  while (fscanf(file, "%llu %llu %c", &launch.host_ns, &launch.ns, &launch.kind) == 3) {
    launches.push_back(launch);
  }
  fclose(file);
  return launches;
}

// What was launched until when; it ran a little later, always about as much.
struct Done {
  unsigned long long at_ns;
  unsigned long long busy_ns;
};

unsigned long long BusyUntil(const std::vector<Done>& done, unsigned long long at_ns) {
  const auto after = std::upper_bound(
      done.begin(), done.end(), at_ns,
      [](unsigned long long moment, const Done& each) { return moment < each.at_ns; });
  return after == done.begin() ? 0 : std::prev(after)->busy_ns;
}

double Percent(const std::vector<Done>& done, unsigned long long from_ns,
               unsigned long long to_ns) {
  return 100 * static_cast<double>(BusyUntil(done, to_ns) - BusyUntil(done, from_ns)) /
         static_cast<double>(to_ns - from_ns);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::vector<Launch> step = Read(argv[1]);
  const unsigned long long run_ns = strtoull(argv[2], nullptr, 10) * kMs;
  const Gpu gpu;
  Work work = {gpu, 0, nullptr};
  CUdeviceptr memory = 0;
  MUST(cuMemAlloc_v2(&memory, kBytes));
  std::vector<Done> done;

  const unsigned long long begin_ns = NowNs();
  unsigned long long busy_ns = 0;
  unsigned long long ended_ns = begin_ns;
  while (NowNs() < begin_ns + run_ns) {
    for (int i = 0; i < kStepsAtOnce; ++i) {
      for (const Launch& launch : step) {
        BusyUntil(NowUs, NowUs() + static_cast<double>(launch.host_ns) / 1e3);
        if (launch.kind == 'w') {
          MUST(cuStreamSynchronize(nullptr));
          continue;
        }
        if (launch.kind == 'm') {
          MUST(cuMemsetD8Async(memory, 0, kBytes, nullptr));
          continue;
        }
        work.ns = launch.ns;
        work.blocks = kWholeGpu + static_cast<unsigned>(launch.ns / kUs % kGrids);
        MUST(Kernel(work, nullptr));
        busy_ns += launch.ns;
        done.push_back({NowNs(), busy_ns});
      }
    }
    MUST(cuCtxSynchronize());
    ended_ns = NowNs();
  }

  const unsigned long long from_ns = begin_ns + run_ns / 4;
  const unsigned long long to_ns = begin_ns + run_ns;
  double least = 100;
  double most = 0;
  constexpr unsigned long long kSecond = 1'000 * kMs;
  for (unsigned long long at_ns = from_ns; at_ns + kSecond <= to_ns; at_ns += kSecond) {
    const double percent = Percent(done, at_ns, at_ns + kSecond);
    least = std::min(least, percent);
    most = std::max(most, percent);
  }
  Facts facts;
  facts.Say("share", Percent(done, from_ns, to_ns));
  facts.Say("whole", 100 * static_cast<double>(busy_ns) / static_cast<double>(ended_ns - begin_ns));
  facts.Say("least", least);
  facts.Say("most", most);
  return 0;
}
