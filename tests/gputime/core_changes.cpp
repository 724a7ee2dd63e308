// link: state
// flags: -pthread
// What a container owes while its share changes; fails with the place that was not true.
//
//   core_changes NAME FOLDER
#include <sys/wait.h>

#include "policy/core_seat.h"
#include "support/state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kStart = 1'000'000 * kMs;  // the clock of all cases starts here
const char* folder = nullptr;

// Of a process of the one container, at half of the GPU.
CoreSeat* NewSeat() {
  auto* seat = static_cast<CoreSeat*>(MapWipedOnFork(sizeof(CoreSeat)));
  char why[400] = "";
  CHECK(seat->Join("", {{folder}, "one"}, kUuid, 50'000, 0, kStart, why, sizeof why));
  return seat;
}

// Shares that several processes change at once leave a debt worth what it was.
void ChangedAtOnce() {
  constexpr uint32_t kProcesses = 3;
  constexpr uint32_t kChanges = 200'000;
  CoreSeat* seat = NewSeat();
  seat->Charge(kStart - 1000 * kMs, kStart, kStart);
  const uint64_t owed_ns = seat->HeldFor(kStart);
  int gate[2];
  CHECK(pipe(gate) == 0);
  pid_t children[kProcesses];
  for (uint32_t i = 0; i < kProcesses; ++i) {
    children[i] = InChild([i, &gate] {
      CoreSeat* other = NewSeat();
      Random random(i + 1);
      char opened;
      close(gate[1]);
      CHECK_EQ(read(gate[0], &opened, 1), 0);
      for (uint32_t change = 0; change < kChanges; ++change) {
        const auto percent = static_cast<uint32_t>(20 + random.Below(61));
        other->Impose({percent * 1000, 0}, kStart);
      }
    });
  }
  close(gate[1]);
  for (const pid_t child : children) CHECK_EQ(StatusOf(child), 0);
  seat->Impose({50'000, 0}, kStart);
  // Each change rounds a few nanoseconds off.
  const uint64_t rounded_ns = 4 * kProcesses * kChanges * 4;
  CHECK(seat->HeldFor(kStart) + rounded_ns >= owed_ns);
  CHECK(seat->HeldFor(kStart) <= owed_ns + rounded_ns);
}

// Shares that cannot be are charged at by nobody.
void NoShares() {
  CoreSeat* seat = NewSeat();
  uint64_t now = kStart;
  uint64_t sane_ns = 0;
  for (const uint64_t word : {PackShares({50'000, 50'000}), uint64_t{0}, UINT64_MAX,
                              PackShares({1, 0}), PackShares({0, 1000})}) {
    CHECK_EQ(StatusOf(InChild([word] {
               TimeFile file;
               char why[400];
               CHECK(OpenTimeFile({{folder}, "one"}, &file, why, sizeof why));
               file.region->tenants[0][0].shares.store(word);
               file.region->tenants[0][0].due_ns.store(0);
             })),
             0);
    CHECK_EQ(seat->Charge(now, now + 100 * kMs, now + 100 * kMs), 100 * kMs);
    now += 100 * kMs;
    if (sane_ns == 0) sane_ns = seat->HeldFor(now);
    CHECK(sane_ns > 50 * kMs);
    CHECK_EQ(seat->HeldFor(now), sane_ns);
  }
}

constexpr Case kCases[] = {{"changed_at_once", ChangedAtOnce}, {"no_shares", NoShares}};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  folder = argv[2];
  return RunCase(kCases, argv[1]);
}
