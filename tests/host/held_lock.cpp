// A lock between threads whose holder keeps it until the one that waits for it has slept, as one
// does that gets no processor: a thread that goes before all others and only yields keeps the
// holder from it.
// link: state
// flags: -pthread
//
// Prints {"slept": 1}, or 0 where that did not happen within twenty seconds.
#include <stdio.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/locks.h"

namespace {

constexpr int kSleeps = 5;
constexpr int kPatienceMs = 20'000;

// How often a thread left the processor by itself; a yield is none of these.
long SleepsOf(pid_t thread) {
  char path[64];
  char line[128];
  long sleeps = 0;
  snprintf(path, sizeof path, "/proc/self/task/%d/status", thread);
  FILE* file = fopen(path, "r");
  if (file == nullptr) return 0;
  while (fgets(line, sizeof line, file) != nullptr) {
    if (sscanf(line, "voluntary_ctxt_switches: %ld", &sleeps) == 1) break;
  }
  fclose(file);
  return sleeps;
}

}  // namespace

int main() {
  static constinit gpufence::SpinLock lock;
  static constinit std::atomic<bool> waits{false};
  const pid_t waiter = getpid();  // the first thread's number
  bool slept = false;
  lock.Lock();
  std::thread holder([waiter, &slept] {
    while (!waits.load()) usleep(1'000);
    const long before = SleepsOf(waiter);
    for (int ms = 0; ms < kPatienceMs && !slept; ++ms) {
      usleep(1'000);
      slept = SleepsOf(waiter) >= before + kSleeps;
    }
    lock.Unlock();
  });
  waits.store(true);
  lock.Lock();
  lock.Unlock();
  holder.join();
  printf("{\"slept\": %d}\n", slept ? 1 : 0);
  return 0;
}
