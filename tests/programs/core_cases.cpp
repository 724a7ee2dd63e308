// link: state
// flags: -pthread
// One promise about core files and seats a run; fails with the place that was not true.
//
//   core_cases NAME FOLDER
#include <string.h>
#include <sys/wait.h>

#include "policy/core_seat.h"
#include "policy/share.h"
#include "state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kStart = 1'000'000 * kMs;  // the clock of all cases starts here
const char* folder = nullptr;

CoreSeat* NewSeat(const char* container, uint32_t percent, uint32_t soft_percent = 0,
                  const char* node = "") {
  auto* seat = static_cast<CoreSeat*>(MapWipedOnFork(sizeof(CoreSeat)));
  char why[400] = "";
  const RegionPlaces own = {{folder}, container};
  if (!seat->Join(node, own, kUuid, percent * 1000, soft_percent * 1000, kStart, why, sizeof why)) {
    fprintf(stderr, "%s\n", why);
    _exit(8);
  }
  return seat;
}

template <typename Body>
pid_t InChild(Body body) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    body();
    _exit(0);
  }
  return child;
}

int StatusOf(pid_t child) {
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// A container alone: its turn is always, and it pays for what it used.
void Alone() {
  CoreSeat* seat = NewSeat("one", 25);
  CHECK(seat->HasTurn());
  CHECK(seat->WantTurn(kStart));
  CHECK_EQ(seat->HeldFor(kStart), 0);
  CHECK_EQ(seat->Charge(kStart, kStart + 20 * kMs, kStart + 20 * kMs), 20 * kMs);
  // 20 ms at a quarter cost 80, of which the burst paid ten.
  CHECK_EQ(seat->HeldFor(kStart + 20 * kMs), 70 * kMs);
  CHECK_EQ(seat->HeldFor(kStart + 89 * kMs), 1 * kMs);
  CHECK_EQ(seat->HeldFor(kStart + 90 * kMs), 0);
}

// Processes of a container pay for one moment once, from one budget, at the lowest of their shares.
void Siblings() {
  CoreSeat* seat = NewSeat("one", 50);
  CHECK_EQ(StatusOf(InChild([seat] {
             CHECK(!memcmp(seat, "\0\0\0\0\0\0\0\0", 8));  // wiped
             CoreSeat* other = NewSeat("one", 25);
             CHECK_EQ(other->Charge(kStart, kStart + 10 * kMs, kStart + 10 * kMs), 10 * kMs);
             CHECK_EQ(other->ShareNow(kStart + 10 * kMs), 25000);
           })),
           0);
  CHECK_EQ(seat->Charge(kStart + 5 * kMs, kStart + 12 * kMs, kStart + 12 * kMs), 2 * kMs);
  // The other one is dead: its lower share is gone, its debt is not.
  CHECK_EQ(seat->ShareNow(kStart + 2000 * kMs), 25000);
  seat->Charge(kStart, kStart, kStart + 2000 * kMs);
  CHECK_EQ(seat->ShareNow(kStart + 2000 * kMs), 50000);
  CHECK(seat->HeldFor(kStart + 12 * kMs) > 20 * kMs);
}

// The soft share counts until somebody else is seen, and again when nobody was for a tenth of a second.
void Soft() {
  CoreSeat* seat = NewSeat("one", 25, 100);
  seat->Charge(kStart, kStart + 10 * kMs, kStart + 10 * kMs);
  CHECK_EQ(seat->HeldFor(kStart + 10 * kMs), 0);
  seat->NoteForeign(kStart + 10 * kMs);
  CHECK_EQ(seat->ShareNow(kStart + 11 * kMs), 25000);
  CHECK_EQ(seat->ShareNow(kStart + 109 * kMs), 25000);
  CHECK_EQ(seat->ShareNow(kStart + 110 * kMs), 100000);
}

struct Case {
  const char* name;
  void (*run)();
};

constexpr Case kCases[] = {{"alone", Alone}, {"siblings", Siblings}, {"soft", Soft}};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  folder = argv[2];
  for (const Case& each : kCases) {
    if (strcmp(each.name, argv[1]) != 0) continue;
    each.run();
    printf("ok\n");
    return 0;
  }
  return 2;
}
