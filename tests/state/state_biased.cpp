// link: state
// flags: -pthread
// A lock that its first thread takes without a locked instruction.
//
//   state_biased ROUNDS THREADS     in each round one thread owns a new lock and goes on taking it
//                                   while others come: nobody is inside beside another
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/forked.h"
#include "base/locks.h"
#include "support/state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

struct Guarded {
  gpufence::BiasedLock lock;
  volatile uint64_t inside;
  volatile uint64_t entries;
};

void Enter(Guarded* guarded, unsigned stays_us = 0) {
  gpufence::BiasedGuard guard(&guarded->lock);
  const uint64_t entries = guarded->entries;
  guarded->inside = guarded->inside + 1;
  if (stays_us != 0) usleep(stays_us);
  CHECK_EQ(guarded->inside, 1);
  guarded->inside = 0;
  guarded->entries = entries + 1;
}

void Round(int threads, uint64_t seed) {
  constexpr uint64_t kEntries = 2000;
  auto* guarded = static_cast<Guarded*>(gpufence::MapWipedOnFork(sizeof(Guarded)));
  CHECK(guarded != nullptr);
  Enter(guarded);  // this thread's from here on
  std::vector<std::thread> others;
  std::atomic<int> done{0};
  for (int i = 1; i < threads; ++i) {
    others.emplace_back([&, i] {
      Random random(seed + static_cast<uint64_t>(i));
      for (uint64_t spins = random.Below(2000); spins > 0; --spins) gpufence::Relax();
      for (uint64_t n = 0; n < kEntries; ++n) Enter(guarded);
      done.fetch_add(1);
    });
  }
  uint64_t entries = 2;
  // Now and then others come meanwhile; the kernel may take 20 ms to order what they see.
  Enter(guarded, seed % 5000 == 0 ? 100'000 : 0);
  for (; done.load(std::memory_order_relaxed) < threads - 1; ++entries) Enter(guarded);
  for (std::thread& other : others) other.join();
  CHECK_EQ(guarded->entries, entries + kEntries * static_cast<uint64_t>(threads - 1));
  gpufence::UnmapWipedOnFork(guarded, sizeof(Guarded));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  constexpr int kQuery = 0;
  constexpr int kQuick = 8;
  gpufence::BiasedLock::Prepare();
  const long offers = syscall(SYS_membarrier, kQuery, 0, 0);
  const bool offered = offers > 0 && (offers & kQuick) != 0;
  CHECK_EQ(syscall(SYS_membarrier, kQuick, 0, 0) == 0, offered);
  const uint64_t rounds = strtoull(argv[1], nullptr, 10);
  for (uint64_t round = 0; round < rounds; ++round) Round(atoi(argv[2]), round * 100);
  return 0;
}
