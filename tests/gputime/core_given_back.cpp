// link: state
// What containers give each other back: time that neighbours had in one's own runs, and which was
// charged while nobody knew of it.
//
//   core_given_back CASE FOLDER
#include "base/tuning.h"
#include "core_containers.h"
#include "policy/turn.h"

namespace {

using namespace coretest;  // NOLINT(google-build-using-namespace): a test program's own helpers

// The sum never sinks: what is known to be others' is taken off what comes next.
uint64_t ChargedNs(Container& container) {
  return container.seat.ChargedNs() - container.own().returned_ns.load();
}

constexpr uint64_t kTogether = 40 * kMs;

// Both have work all the time; in each millisecond so long no kernel of theirs ran, and for
// `idle_ns` of that the GPU waited for the host. Returns when all is told.
uint64_t WorkTogether(Container* one, Container* other, uint64_t pauses_ns, uint64_t idle_ns) {
  uint64_t now = Meet(one, other, kStart + 10 * kSecond);
  // As is known of each for some time.
  const uint64_t kernels = kWholeDensity * (kMs - pauses_ns) / kMs;
  const uint64_t charged = kWholeDensity * (kMs - idle_ns) / kMs;
  for (Container* each : {one, other}) {
    each->file.region->rows[0].density = PackDensity({kernels, charged});
  }
  const uint64_t begin = now;
  while (now < begin + kTogether) {
    now += kMs;
    for (Container* each : {one, other}) {
      each->seat.Charge({now - kMs, now - kMs + pauses_ns, now, false, idle_ns}, now);
      each->Tick(now, true);
    }
  }
  uint64_t least = ChargedNs(*one);
  CHECK(least < kTogether - kTogether * pauses_ns / kMs);
  for (int i = 0; i < 40; ++i) {
    now += kMs;
    for (Container* each : {one, other}) each->Tick(now, false);
    CHECK(ChargedNs(*one) <= least);
    least = ChargedNs(*one);
  }
  return now;
}

// What neighbours had of one's own runs is given back once all have told of theirs, and just once.
void Once() {
  Container one("one", 50);
  Container other("other", 50);
  uint64_t now = WorkTogether(&one, &other, 0, 0);
  // A slice of each round is one's own; the way to the other one and back is nobody's.
  for (Container* each : {&one, &other}) {
    CHECK(ChargedNs(*each) >= 17 * kMs && ChargedNs(*each) <= 21 * kMs);
  }
  const uint64_t due = one.own().due_ns.load();
  const uint64_t least = ChargedNs(one);
  for (int i = 0; i < 300; ++i) one.Tick(now += kMs, false);
  CHECK_EQ(ChargedNs(one), least);
  CHECK_EQ(one.own().due_ns.load(), due);
}

// Pauses between kernels were taken off by their number: all that is others' was charged, and goes
// back. They lie in one's own 19 ms.
void BesidePauses() {
  Container one("one", 50);
  Container other("other", 50);
  WorkTogether(&one, &other, kMs / 4, 0);
  for (Container* each : {&one, &other}) {
    CHECK(ChargedNs(*each) >= 7 * kMs && ChargedNs(*each) <= 11 * kMs);
  }
}

// Idle time was taken off as a part of the whole: so much less of others' time was charged.
void BesideIdleTime() {
  Container one("one", 50);
  Container other("other", 50);
  WorkTogether(&one, &other, kMs / 4, kMs / 4);
  for (Container* each : {&one, &other}) {
    CHECK(ChargedNs(*each) >= 13 * kMs && ChargedNs(*each) <= 16 * kMs);
  }
}

constexpr Case kCases[] = {
    {"once", Once}, {"beside_pauses", BesidePauses}, {"beside_idle_time", BesideIdleTime}};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  folder = argv[2];
  return RunCase(kCases, argv[1]);
}
