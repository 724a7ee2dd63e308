// link: state
// What neighbours tell each other, whatever else a container's threads do meanwhile: whoever is of
// lower priority hears of work at once, and time that was shared is given back once.
//
//   core_tells CASE
#include <pthread.h>

#include <atomic>

#include "base/locks.h"
#include "core_world.h"

namespace {

using namespace coretest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint64_t kUs = 1'000;
constexpr uint64_t kPause = 300 * kUs;  // behind it work is told at once

// A container of high priority, one of low, and the time at which both were seen last.
class Pair {
 public:
  Pair() : world_(1) {
    for (const uint32_t rank : {kHighestRank, 0u}) {
      const uint32_t tenant = world_.AddTenant(50);
      world_.AddProcess(tenant, {.kernel_ns = kMs});
      world_.process(tenant).seat.Follow({rank, 0, 0, 0});
    }
    now_ns_ = world_.now_ns() + kSecond;
    for (int i = 0; i < 60; ++i) Rest();
    CHECK(high().HasInferior(now_ns_));
  }

  CoreSeat& high() { return world_.process(0).seat; }
  CoreSeat& low() { return world_.process(1).seat; }
  uint64_t now_ns() const { return now_ns_; }

  // A look of both, while the one of high priority has no work.
  void Rest() {
    now_ns_ += kMs;
    high().Beat(now_ns_, false);
    high().MoveTurn(now_ns_);
    low().MoveTurn(now_ns_);
  }
  bool LowYields(uint64_t at_ns) {
    low().MoveTurn(at_ns);
    return low().Yields(at_ns);
  }

 private:
  World world_;
  uint64_t now_ns_ = 0;
};

// A look that began before a launch told of its work ends behind that, and saw no work.
void LateLook() {
  Pair pair;
  pair.Rest();
  const uint64_t look_ns = pair.now_ns() + kPause;
  pair.high().TellInferiors(look_ns + 10 * kUs);
  pair.high().Beat(look_ns, false);
  pair.high().MoveTurn(look_ns);
  CHECK(pair.LowYields(look_ns + kPause));
  // The next one sees that it is over.
  pair.high().Beat(look_ns + kMs, false);
  pair.high().MoveTurn(look_ns + kMs);
  CHECK(!pair.LowYields(look_ns + 2 * kMs));
}

// Of what the program waited for it knew the end before the look that it asked for.
void WaitTellsTheEnd() {
  Pair pair;
  pair.Rest();
  const uint64_t begin_ns = pair.now_ns() + kPause;
  const uint64_t waited_ns = begin_ns + kMs;
  pair.high().TellInferiors(begin_ns);
  pair.high().NoteWait(waited_ns);
  pair.high().Beat(waited_ns + 60 * kUs, false);
  pair.high().MoveTurn(waited_ns + 60 * kUs);
  CHECK(pair.LowYields(waited_ns + kSwitchNs - kUs));
  CHECK(!pair.LowYields(waited_ns + kSwitchNs + kUs));
}

// One that was over before this work began tells nothing of it.
void EarlierWait() {
  Pair pair;
  pair.Rest();
  const uint64_t begin_ns = pair.now_ns() + kPause;
  const uint64_t look_ns = begin_ns + kMs;
  pair.high().NoteWait(begin_ns - kUs);
  pair.high().TellInferiors(begin_ns);
  pair.high().Beat(look_ns, false);
  pair.high().MoveTurn(look_ns);
  CHECK(pair.LowYields(look_ns + kSwitchNs - kUs));
  CHECK(!pair.LowYields(look_ns + kSwitchNs + kUs));
}

// Whether the other one may have run at some moment, from what it has told.
void WhoRan() {
  Pair pair;
  const uint64_t begin_ns = pair.now_ns() + kMs;
  const uint64_t end_ns = begin_ns + 300 * kUs;
  const uint64_t told_ns = end_ns + 60 * kMs;
  const auto ran = [&](uint64_t from_ns, uint64_t to_ns) {
    return pair.high().OthersMayHaveRun(from_ns, to_ns, told_ns);
  };
  const auto tell = [&](uint64_t from_ns, uint64_t to_ns) {
    pair.low().Charge({from_ns, from_ns, to_ns, false, 0}, to_ns);
    pair.low().Beat(told_ns - kMs, true);
    pair.low().MoveTurn(told_ns - kMs);
    pair.high().MoveTurn(told_ns);
  };
  CHECK(!ran(begin_ns, end_ns));
  CHECK(ran(told_ns - kTuning.lately_ns, told_ns));  // nobody remembers
  CHECK(!ran(told_ns - kTuning.lately_ns + kUs, told_ns));
  tell(begin_ns, end_ns);
  CHECK(ran(begin_ns, end_ns));
  CHECK(ran(begin_ns - kMs, begin_ns + kUs) && ran(end_ns - kUs, end_ns + kMs));
  CHECK(!ran(begin_ns - kMs, begin_ns - kUs) && !ran(end_ns + kUs, end_ns + kMs));
  // Only the latest runs are kept: what lies before these is not known.
  for (uint32_t i = 1; i <= kCoreRuns; ++i) {
    tell(end_ns + i * kMs, end_ns + i * kMs + 20 * kUs);
  }
  CHECK(ran(begin_ns - kMs, begin_ns - kUs));
}

struct Looker {
  Pair* pair;
  void (*look)(Pair* pair, uint64_t now_ns);
  std::atomic<uint64_t> wanted{0};  // looks
  std::atomic<uint64_t> done{0};
};

void* Look(void* given) {
  auto* looker = static_cast<Looker*>(given);
  for (uint64_t looks = 1;; ++looks) {
    while (looker->wanted.load() < looks) {
    }
    if (looker->wanted.load() == UINT64_MAX) return nullptr;
    looker->look(looker->pair, looker->pair->now_ns() + kPause - kUs);
    looker->done.store(looks);
  }
}

// Another thread's look meets work that begins, at whatever moment.
void Meet(void (*look)(Pair* pair, uint64_t now_ns)) {
  constexpr uint64_t kRounds = 3'000;
  Pair pair;
  Looker looker = {&pair, look};
  pthread_t thread;
  CHECK_EQ(pthread_create(&thread, nullptr, Look, &looker), 0);
  for (uint64_t round = 1; round <= kRounds; ++round) {
    pair.Rest();
    looker.wanted.store(round);
    for (uint64_t i = 0; i < round % 256; ++i) Relax();
    pair.high().TellInferiors(pair.now_ns() + kPause);
    while (looker.done.load() < round) {
    }
    CHECK(pair.LowYields(pair.now_ns() + kPause + kUs));
    pair.high().MoveTurn(pair.now_ns() + kPause + 2 * kUs);
    CHECK(pair.LowYields(pair.now_ns() + kPause + 3 * kUs));
  }
  looker.wanted.store(UINT64_MAX);
  CHECK_EQ(pthread_join(thread, nullptr), 0);
}

// The watcher writes the notice just then, and has read that there is no work.
void WhileAnotherThreadLooks() {
  Meet([](Pair* pair, uint64_t now_ns) { pair->high().MoveTurn(now_ns); });
}

// The watcher says just then that no work is left.
void WhileAnotherThreadEnds() {
  Meet([](Pair* pair, uint64_t now_ns) { pair->high().Beat(now_ns, false); });
}

// Of two threads that look, or two processes, the one that read the clock first may come last.
void SharedOnce() {
  Pair pair;
  const uint64_t begin_ns = pair.now_ns() + kMs;
  const uint64_t end_ns = begin_ns + 40 * kMs;
  for (CoreSeat* seat : {&pair.low(), &pair.high()}) {
    seat->Charge({begin_ns, begin_ns, end_ns, false, 0}, end_ns);
    seat->MoveTurn(end_ns);
  }
  const uint64_t look_ns = end_ns + 20 * kMs;
  const int64_t before_ns = pair.high().AheadNs(look_ns);
  pair.high().MoveTurn(look_ns);
  const int64_t shared_ns = pair.high().AheadNs(look_ns);
  CHECK(shared_ns < before_ns);
  pair.high().MoveTurn(look_ns - 10 * kUs);
  CHECK(pair.high().AheadNs(look_ns) == shared_ns);
}

constexpr Case kCases[] = {{"late_look", LateLook},
                           {"wait_tells_the_end", WaitTellsTheEnd},
                           {"earlier_wait", EarlierWait},
                           {"who_ran", WhoRan},
                           {"shared_once", SharedOnce},
                           {"while_another_thread_looks", WhileAnotherThreadLooks},
                           {"while_another_thread_ends", WhileAnotherThreadEnds}};

}  // namespace

int main(int argc, char** argv) { return argc == 2 ? RunCase(kCases, argv[1]) : 2; }
