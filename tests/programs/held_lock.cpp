// A lock between threads that its holder keeps for half a second, as one does that gets no
// processor: who waits for it must leave the processor meanwhile, or a thread that goes before all
// others keeps the holder from it.
// link: state
// flags: -pthread
//
// Prints {"slept": times that the waiting thread left the processor for nobody in particular}.
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "core/spin.h"

namespace {

long Slept() {
  rusage used = {};
  getrusage(RUSAGE_THREAD, &used);
  return used.ru_nvcsw;  // a yield is none of these
}

}  // namespace

int main() {
  static constinit gpufence::SpinLock lock;
  static constinit std::atomic<bool> held{false};
  std::thread holder([] {
    const gpufence::SpinGuard guard(&lock);
    held.store(true);
    usleep(500'000);
  });
  while (!held.load()) usleep(1'000);
  const long before = Slept();
  lock.Lock();
  printf("{\"slept\": %ld}\n", Slept() - before);
  lock.Unlock();
  holder.join();
  return 0;
}
