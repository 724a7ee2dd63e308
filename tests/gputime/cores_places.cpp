// A launch that the driver keeps while its stream is idle: its place in the table of streams goes
// to another one, which runs when the launch returns.
// link: cuda
// flags: -pthread
//
//   GPUFENCE_SIM_FAULTS="cuLaunchKernel@9=block:50" cores_places
//
// Prints {"us": from the end of all that runs until the next launch may go}. It knows how the table
// places streams (lib/src/device/markers/stream_table.cpp).
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <vector>

#include "support/time_program.h"

using namespace timing;

namespace {

constexpr unsigned kWays = 8;
constexpr unsigned long long kKeptNs = 200 * kMs;
constexpr unsigned long long kOtherNs = 60 * kMs;

double NowUs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

// Of 256 sets of eight places.
unsigned SetOf(CUstream stream) {
  return static_cast<unsigned>((reinterpret_cast<uintptr_t>(stream) * 0x9e3779b97f4a7c15u) >> 40) %
         256;
}

// So many streams of one set.
std::vector<CUstream> StreamsOfOneSet(size_t count) {
  std::vector<std::vector<CUstream>> sets(256);
  for (;;) {
    CUstream stream = NewStream();
    std::vector<CUstream>* set = &sets[SetOf(stream)];
    set->push_back(stream);
    if (set->size() == count) return *set;
  }
}

struct Kept {
  const Gpu* gpu;
  CUstream stream;
  std::atomic<bool> is_over{false};
};

void* LaunchKept(void* argument) {
  auto* kept = static_cast<Kept*>(argument);
  MUST(cuCtxSetCurrent(kept->gpu->context));
  MUST(kept->gpu->Spin(kept->stream, kKeptNs));
  kept->is_over.store(true);
  return nullptr;
}

}  // namespace

int main() {
  const Gpu gpu;
  const std::vector<CUstream> streams = StreamsOfOneSet(kWays + 1);
  // The last one of those that fill the set has the first place, which is given away first.
  for (unsigned i = 0; i < kWays; ++i) MUST(gpu.Spin(streams[i], kUs));
  MUST(cuCtxSynchronize());
  usleep(30'000);

  Kept kept = {&gpu, streams[kWays - 1], {}};
  pthread_t thread;
  if (pthread_create(&thread, nullptr, LaunchKept, &kept) != 0) return 1;
  usleep(40'000);
  MUST(gpu.Spin(streams[kWays], kOtherNs));
  while (!kept.is_over.load()) usleep(1'000);
  MUST(cuCtxSynchronize());

  const double begin_us = NowUs();
  MUST(gpu.Spin(streams[0], kUs));
  Facts().Say("us", NowUs() - begin_us);
  return 0;
}
