// link: cuda
// flags: -pthread
// What the limits are while they change, until it is ended. A line for each change, of an object:
//   {"total": BYTES}         cuMemGetInfo says that the GPU is so large
//   {"held": 1, "for": MS}   a launch does not return; the one before it returned so long ago
//   {"held": 0, "for": 0}    launches return again
#include <pthread.h>

#include <atomic>
#include <cstdio>

#include "support/time_program.h"

using namespace timing;

namespace {

constexpr int64_t kNsOfMs = 1'000'000;
constexpr int64_t kHeldMs = 250;  // no launch of a kernel of 1 ms takes as long by itself

std::atomic<int64_t> returned{0};

int64_t Now() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 * kNsOfMs + now.tv_nsec;
}

void* Launch(void* argument) {
  auto* gpu = static_cast<Gpu*>(argument);
  MUST(cuCtxSetCurrent(gpu->context));
  CUstream stream = NewStream();
  for (;;) {
    MUST(gpu->Spin(stream, 1000 * kUs));
    MUST(cuStreamSynchronize(stream));
    returned.store(Now());
  }
}

}  // namespace

int main() {
  Gpu gpu(0, 0);
  setvbuf(stdout, nullptr, _IOLBF, 0);
  pthread_t launches = {};
  returned.store(Now());
  if (pthread_create(&launches, nullptr, Launch, &gpu) != 0) return 1;
  size_t seen = 0;
  bool held = false;
  for (const timespec pause = {0, 2 * kNsOfMs};; nanosleep(&pause, nullptr)) {
    size_t free_bytes = 0;
    size_t total = 0;
    MUST(cuMemGetInfo_v2(&free_bytes, &total));
    if (total != seen) printf("{\"total\": %zu}\n", seen = total);
    const int64_t ago_ms = (Now() - returned.load()) / kNsOfMs;
    if (held != (ago_ms > kHeldMs)) {
      held = !held;
      printf("{\"held\": %d, \"for\": %lld}\n", held, held ? static_cast<long long>(ago_ms) : 0LL);
    }
  }
}
