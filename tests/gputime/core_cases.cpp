// link: state
// flags: -pthread
// One promise about time files and seats a run; fails with the place that was not true.
//
//   core_cases NAME FOLDER
#include <glob.h>
#include <string.h>
#include <sys/wait.h>

#include <algorithm>
#include <string>

#include "base/pauses.h"
#include "base/tuning.h"
#include "policy/core_seat.h"
#include "policy/share.h"
#include "support/state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kStart = 1'000'000 * kMs;  // the clock of all cases starts here
const char* folder = nullptr;

CoreSeat* NewSeat(const char* container, uint32_t percent, uint32_t soft_percent = 0,
                  const char* node = "", uint64_t now = kStart) {
  auto* seat = static_cast<CoreSeat*>(MapWipedOnFork(sizeof(CoreSeat)));
  char why[400] = "";
  const RegionPlaces own = {{folder}, container};
  if (!seat->Join(node, own, kUuid, percent * 1000, soft_percent * 1000, now, why, sizeof why)) {
    fprintf(stderr, "%s\n", why);
    _exit(8);
  }
  return seat;
}

// A container alone: its turn is always, and it pays for what it used.
void Alone() {
  CoreSeat* seat = NewSeat("one", 25);
  CHECK(seat->HasTurn());
  CHECK(seat->WantTurn(kStart));
  CHECK_EQ(seat->HeldFor(kStart), 0);
  CHECK_EQ(seat->Charge(kStart, kStart + 20 * kMs, kStart + 20 * kMs), 20 * kMs);
  // 20 ms at a quarter cost 80: who just came has saved nothing.
  CHECK_EQ(seat->HeldFor(kStart + 20 * kMs), 60 * kMs);
  CHECK_EQ(seat->HeldFor(kStart + 79 * kMs), 1 * kMs);
  CHECK_EQ(seat->HeldFor(kStart + 80 * kMs), 0);
  // After an idle time 50 ms of GPU time are saved, and no more.
  const uint64_t later = kStart + 1000 * kMs;
  CHECK_EQ(seat->AheadNs(later), -200 * static_cast<int64_t>(kMs));
  CHECK_EQ(seat->Charge(later, later + 70 * kMs, later + 70 * kMs), 70 * kMs);
  CHECK_EQ(seat->HeldFor(later + 70 * kMs), 80 * kMs);
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

// The soft share counts until somebody else is seen, and again when nobody was for a while.
void Soft() {
  CoreSeat* seat = NewSeat("one", 25, 75);
  CHECK(seat->LooksForNeighbours());
  CHECK_EQ(StatusOf(InChild([] { CHECK(!NewSeat("two", 25)->LooksForNeighbours()); })), 0);
  seat->Charge(kStart, kStart + 10 * kMs, kStart + 10 * kMs);
  CHECK_EQ(seat->HeldFor(kStart + 10 * kMs), 3'333'334);
  seat->NoteForeign(kStart + 10 * kMs);
  CHECK_EQ(seat->ShareNow(kStart + 11 * kMs), 25000);
  CHECK_EQ(seat->ShareNow(kStart + 9 * kMs + 3 * kTuning.neighbour_look_ns / 2), 25000);
  CHECK_EQ(seat->ShareNow(kStart + 10 * kMs + 3 * kTuning.neighbour_look_ns / 2), 75000);
}

// A neighbour is what keeps the device busy beyond us, over a few looks; unknown at first and after
// a pause.
void Sights() {
  constexpr uint64_t kLook = kTuning.neighbour_look_ns;
  NeighbourSight sight = {};
  uint64_t now = kStart;
  uint64_t charged = 0;
  const auto look = [&](uint32_t own_percent, uint32_t percent) {
    now += kLook;
    charged += kLook / 100 * own_percent;
    CHECK(sight.IsDue(now) && !sight.IsDue(now - 1));
    return sight.Look(now, charged, percent);
  };
  CHECK(sight.Look(now, charged, 0));
  CHECK(!look(80, 80));
  CHECK(!look(80, 80));
  CHECK(!look(80, 100));  // once is no proof
  CHECK(look(80, 100));
  CHECK(look(30, 100));
  for (int i = 0; i < 2; ++i) look(30, 30);
  CHECK(!look(30, 30));
  for (int i = 0; i < 2; ++i) look(95, 95);
  CHECK(!look(100, 1000));  // nothing is busier than busy
  now += 2 * kLook;
  CHECK(sight.Look(now, charged, 0));
}

constexpr uint64_t kLongAgo = kStart - 1000 * kMs;
constexpr uint64_t kBefore = kStart - 30 * kMs;

// What a watcher does at a tick.
bool Tick(CoreSeat* seat, uint64_t now, bool outstanding) {
  seat->Beat(now, outstanding);
  return seat->MoveTurn(now);
}

// It ran for so long without a pause: for the next tenth of a second it takes turns, and it knows
// who is there by now.
void AwaitDepth(CoreSeat* seat, uint64_t busy_ns, uint64_t end_ns) {
  CHECK(!seat->TakesTurns());
  CHECK_EQ(seat->Charge(end_ns - busy_ns, end_ns, kBefore), busy_ns);
  Tick(seat, kBefore, true);
  CHECK(seat->TakesTurns());
  seat->Beat(kBefore, false);
}

// Another container in the node folder, as if it were another process: its own file is memory.
CoreSeat* NewNeighbour(const char* container, uint32_t percent, uint32_t soft_percent = 0,
                       uint64_t now = kStart) {
  TimeFile file;
  file.region = static_cast<TimeBytes*>(MapWipedOnFork(sizeof(TimeBytes)));
  file.region->header.high_member.store(1);
  auto* seat = static_cast<CoreSeat*>(MapWipedOnFork(sizeof(CoreSeat)));
  TimePlace place;
  char why[400] = "";
  const CoreShares shares = {percent * 1000, std::max(percent, soft_percent) * 1000};
  CHECK(JoinTimeRow(file, container, kUuid, shares, now, &place, why, sizeof why));
  seat->Sit(file, place);
  CHECK(seat->Meet(folder, why, sizeof why));
  return seat;
}

// The same, and its queues are deep. It ran before others did.
CoreSeat* NewDeepNeighbour(const char* container, uint32_t percent, uint32_t soft_percent = 0,
                           uint64_t busy_ns = 50 * kMs) {
  CoreSeat* seat = NewNeighbour(container, percent, soft_percent, kLongAgo);
  AwaitDepth(seat, busy_ns, kBefore - 60 * kMs);
  return seat;
}

CoreSeat* NewDeepSeat(const char* container, uint32_t percent, uint32_t soft_percent = 0) {
  CoreSeat* seat = NewSeat(container, percent, soft_percent, folder, kLongAgo);
  AwaitDepth(seat, 50 * kMs, kBefore);
  return seat;
}

// Containers whose queues are short do not wait for each other.
void BesideEachOther() {
  CoreSeat* other = NewNeighbour("two", 50);
  CoreSeat* seat = NewSeat("one", 50, 0, folder);
  for (CoreSeat* each : {seat, other}) {
    CHECK(each->WantTurn(kStart) && each->HasTurn());
    Tick(each, kStart, true);
  }
  Tick(seat, kStart + 30 * kMs, true);
  CHECK(seat->HasTurn() && other->HasTurn());
  CHECK(seat->OthersWant(kStart + 30 * kMs, 100 * kMs));
  CHECK_EQ(seat->TurnLeftNs(kStart + 30 * kMs), UINT64_MAX);
}

// Nor does one of them wait for whoever takes turns.
void ShortBesideDeep() {
  CoreSeat* other = NewDeepNeighbour("two", 50);
  CoreSeat* seat = NewSeat("one", 50, 0, folder);
  CHECK(other->WantTurn(kStart));
  Tick(other, kStart, true);
  CHECK(seat->WantTurn(kStart));
  Tick(seat, kStart + kMs, true);
  Tick(other, kStart + kMs, true);
  CHECK(seat->HasTurn() && other->HasTurn());
  CHECK_EQ(other->TurnLeftNs(kStart + kMs), UINT64_MAX);
}

// Containers in a node folder find each other; of those with deep queues the turn goes round.
void TwoContainers() {
  // It can pay just before the quantum is over, so that nothing is saved then.
  CoreSeat* other = NewDeepNeighbour("two", 50, 100, 80 * kMs);
  CoreSeat* seat = NewDeepSeat("one", 50);
  CHECK(!seat->HasTurn());
  CHECK(seat->WantTurn(kStart));
  Tick(seat, kStart, true);
  Tick(seat, kStart + kTuning.turn_quantum_ns - 5 * kMs, true);
  const uint64_t early = kStart + kTuning.turn_quantum_ns - 4 * kMs;
  seat->Charge(kStart, kStart + 28 * kMs, early);
  CHECK(!other->WantTurn(early));
  CHECK(other->OthersWant(early, 100 * kMs));
  CHECK(!Tick(seat, early, true));
  CHECK(!other->WantTurn(kStart + kTuning.turn_quantum_ns - kMs));
  // The quantum is over, but the holder still has something running.
  CHECK(!other->WantTurn(kStart + kTuning.turn_quantum_ns + kMs));
  const uint64_t over = kStart + kTuning.turn_quantum_ns + 2 * kMs;
  CHECK(seat->HasTurn());
  CHECK(Tick(seat, over, true));
  CHECK(!seat->HasTurn());
  CHECK(!Tick(seat, over + kMs / 2, true));
  // Drained: the other one is next, and dead. It is passed over.
  CHECK(Tick(seat, over + kMs, false));
  CHECK(!seat->HasTurn());
  other->Part();
  CHECK(!seat->WantTurn(over + kMs + kTuning.turn_idle_ns));
  CHECK(seat->WantTurn(over + 40 * kMs));
}

// Whoever may write to the folder takes part, whatever its uid.
void AnyUser() {
  CoreSeat* seat = NewDeepSeat("one", 50);
  CHECK(seat->WantTurn(kStart));
  Tick(seat, kStart + 30 * kMs, true);
  CHECK_EQ(StatusOf(InChild([] {
             if (getuid() == 0) CHECK(setgid(65534) == 0 && setuid(65534) == 0);
             CoreSeat* other = NewDeepSeat("two", 50, 100);
             CHECK(other->shares_device());
             CHECK(!other->WantTurn(kStart + 31 * kMs));
             CHECK(other->OthersWant(kStart + 31 * kMs, 100 * kMs));
           })),
           0);
}

// The turns of a container are as long as its launches ask for, whoever looks; a word that went
// wrong makes them no longer.
void LongTurns() {
  CoreSeat* other = NewDeepNeighbour("two", 50);
  CoreSeat* seat = NewDeepSeat("one", 50);
  CHECK(seat->WantTurn(kStart));
  seat->NoteLaunches(kTuning.short_launch_ns - 1);
  Tick(seat, kStart, true);
  const uint64_t long_ns = kTuning.long_quantum_ns;
  CHECK(!other->WantTurn(kStart + kMs));
  CHECK(!other->MoveTurn(kStart + 2 * kMs));
  CHECK(!Tick(seat, kStart + 3 * kMs, true));
  CHECK_EQ(seat->TurnLeftNs(kStart + 3 * kMs), long_ns - 3 * kMs);
  seat->NoteLaunches(kTuning.short_launch_ns);
  CHECK_EQ(seat->TurnLeftNs(kStart + 3 * kMs), kTuning.turn_quantum_ns - 3 * kMs);
  CHECK_EQ(StatusOf(InChild([] {
             TimeFile file;
             char why[400];
             CHECK(OpenTimeFile({{folder}, "one"}, &file, why, sizeof why));
             for (CoreTenant& tenant : file.region->tenants[0]) tenant.quantum_ns = UINT64_MAX;
           })),
           0);
  CHECK_EQ(seat->TurnLeftNs(kStart + 3 * kMs), long_ns - 3 * kMs);
  // Nobody else wants it any more.
  other->Leave(kStart + 4 * kMs);
  CHECK(!Tick(seat, kStart + 5 * kMs, true));
  CHECK_EQ(seat->TurnLeftNs(kStart + 5 * kMs), UINT64_MAX);
}

// A holder whose turn is over is not next again because it asks while it drains.
void NotAgain() {
  CoreSeat* other = NewDeepNeighbour("two", 50);
  CoreSeat* seat = NewDeepSeat("one", 50);
  const uint64_t over = kStart + kTuning.turn_quantum_ns + kMs;
  CHECK(seat->WantTurn(kStart));
  Tick(seat, kStart, true);
  Tick(seat, over - kMs, true);
  CHECK(!other->WantTurn(over));
  CHECK(Tick(seat, over + kMs / 2, true));
  CHECK(!seat->WantTurn(over + kMs));
  CHECK(Tick(seat, over + 2 * kMs, false));
  CHECK(!seat->HasTurn());
}

// A silent holder is passed over, and finds the turn gone when it goes on. One that said when its
// work would be done is waited for until then.
void StolenTurn() {
  CoreSeat* other = NewDeepNeighbour("two", 50);
  CoreSeat* seat = NewDeepSeat("one", 50);
  CHECK(seat->WantTurn(kStart));
  Tick(seat, kStart, true);
  CHECK(!other->WantTurn(kStart + kTuning.silent_ns - kMs));
  CHECK(other->WantTurn(kStart + kTuning.silent_ns + kMs));
  CHECK(seat->MoveTurn(kStart + kTuning.silent_ns + 2 * kMs));
  CHECK(!seat->HasTurn());
  // Its work ends long after its threads were stopped.
  const uint64_t ends = kStart + 60 * kMs;
  other->Beat(kStart + 12 * kMs, true, ends);
  other->MoveTurn(kStart + 12 * kMs);
  CHECK(!seat->WantTurn(ends - kMs));
  CHECK(seat->WantTurn(ends + kMs));
}

// How many notices there are in the folder.
size_t Notices() {
  glob_t found = {};
  const std::string pattern = std::string(folder) + "/gpufence-turns*";
  const size_t count = glob(pattern.c_str(), 0, nullptr, &found) == 0 ? found.gl_pathc : 0;
  globfree(&found);
  return count;
}

// More containers in the course of time than have room at once: the dead leave nothing behind but
// what they owe.
void ManyContainers() {
  CoreSeat* first = NewSeat("living", 50, 0, folder);
  uint64_t now = kStart;
  const auto visit = [&now](const char* name, uint64_t busy_ns) {
    return StatusOf(InChild([&now, name, busy_ns] {
      CoreSeat* seat = NewSeat(name, 1, 0, folder);
      if (busy_ns > 0) CHECK_EQ(seat->Charge(kStart - busy_ns, kStart, kStart), busy_ns);
      seat->MoveTurn(now);
      _exit(seat->HeldFor(kStart) > 0 ? 1 : 0);
    }));
  };
  CHECK_EQ(visit("indebted", 100 * kMs), 1);
  for (uint32_t i = 0; i < 3 * kMaxCoreTenants; ++i) {
    char name[32];
    snprintf(name, sizeof name, "passing-%u", i);
    CHECK_EQ(visit(name, 0), 0);
    now += 2000 * kMs;
    first->MoveTurn(now);
    CHECK(Notices() <= 2);
  }
  CHECK_EQ(visit("indebted", 0), 1);
}

// More living containers than anybody has places for: nobody is refused, and those without a place
// are as if they were not there.
void Crowded() {
  constexpr uint32_t kLiving = kMaxCoreTenants + 6;
  int gate[2];
  CHECK(pipe(gate) == 0);
  pid_t children[kLiving];
  for (uint32_t i = 0; i < kLiving; ++i) {
    int ready[2];
    CHECK(pipe(ready) == 0);
    children[i] = InChild([i, &ready, &gate] {
      close(gate[1]);
      char name[32];
      snprintf(name, sizeof name, "living-%u", i);
      CoreSeat* seat = NewSeat(name, 1, 0, folder);
      CHECK(seat->shares_device());
      seat->MoveTurn(kStart);
      CHECK(write(ready[1], "", 1) == 1);
      char end;
      CHECK(read(gate[0], &end, 1) == 0);
    });
    char done;
    CHECK(read(ready[0], &done, 1) == 1);
    close(ready[0]);
    close(ready[1]);
  }
  CHECK_EQ(Notices(), kLiving);
  CHECK(NewSeat("late", 50, 0, folder)->WantTurn(kStart + kMs));
  close(gate[1]);
  for (const pid_t child : children) CHECK_EQ(StatusOf(child), 0);
}

// Processes of one container that start together are one container.
void Together() {
  for (size_t round = 0; round < 20; ++round) {
    char name[32];
    snprintf(name, sizeof name, "container-%zu", round);
    pid_t children[8];
    for (pid_t& child : children) {
      child = InChild([&name] {
        CHECK(NewSeat(name, 50, 0, folder)->shares_device());
        usleep(1000);
      });
    }
    for (const pid_t child : children) CHECK_EQ(StatusOf(child), 0);
    CHECK_EQ(Notices(), round + 1);
  }
}

// Without room in the folder joining fails, with a reason and without a signal.
void FullFolder() {
  CoreSeat seat;
  char why[400] = "";
  const RegionPlaces own = {{folder}, "one"};
  if (seat.Join(folder, own, kUuid, 50000, 0, kStart, why, sizeof why)) {
    seat.Charge(kStart, kStart + kMs, kStart + kMs);
  } else {
    CHECK(strlen(why) > 20);
  }
}

// A file that is none is replaced.
void Damaged() {
  CHECK_EQ(StatusOf(InChild([] {
             TimeFile file;
             char why[400];
             CHECK(OpenTimeFile({{folder}, "one"}, &file, why, sizeof why));
             file.region->header.magic.store(1);
           })),
           0);
  CHECK(NewSeat("one", 50, 0, folder)->WantTurn(kStart));
}

constexpr uint64_t kRulesNow = kStart + 5 * kMs;
constexpr TenantView kHolder = {.wants_ns = kStart,
                                .idle_since_ns = 0,
                                .ends_ns = kUnknownEnd,
                                .due_ns = 0,
                                .lead_ns = 0,
                                .quantum_ns = kTuning.turn_quantum_ns,
                                .share = 50000,
                                .rank = kUsualRank,
                                .saved_ns = 0};

// A turn is over when its holder is idle, or after a quantum, unless it would be next itself;
// earlier for one who is a quantum behind.
void OverAfterAQuantum() {
  const uint64_t now = kRulesNow;
  TenantView holder = kHolder;
  TenantView next = holder;
  CHECK(!IsTurnOver(holder, &next, kStart, now));
  holder.idle_since_ns = now - kTuning.turn_idle_ns;
  CHECK(IsTurnOver(holder, &next, kStart, now));
  CHECK(!IsTurnOver(holder, nullptr, kStart, now));
  CHECK(!IsTurnOver(holder, &next, now - kTuning.turn_idle_ns + 1, now));  // it has only just begun

  holder.idle_since_ns = 0;
  holder.lead_ns = static_cast<int64_t>(2 * kTuning.turn_quantum_ns);
  next.lead_ns = holder.lead_ns;
  CHECK(IsTurnOver(holder, &next, now - kTuning.turn_quantum_ns, now));
  CHECK(!IsTurnOver(holder, &next, now - kTuning.turn_quantum_ns + 1, now));
  next.lead_ns += 1;
  CHECK(!IsTurnOver(holder, &next, now - kTuning.turn_quantum_ns, now));
  next.lead_ns = 0;
  CHECK(IsTurnOver(holder, &next, now - kTuning.short_turn_ns, now));
  CHECK(!IsTurnOver(holder, &next, now - kTuning.short_turn_ns + 1, now));
  next.lead_ns = 1;
  CHECK(!IsTurnOver(holder, &next, now - kTuning.short_turn_ns, now));
}

// Turns of programs with short kernels are longer, and so is what a turn makes of a difference.
void LongerWithShortKernels() {
  CHECK_EQ(QuantumFor(kTuning.short_launch_ns - 1), kTuning.long_quantum_ns);
  CHECK_EQ(QuantumFor(kTuning.short_launch_ns), kTuning.turn_quantum_ns);
  CHECK_EQ(QuantumFor(0), kTuning.turn_quantum_ns);
  const uint64_t later = kStart + kTuning.long_quantum_ns;
  TenantView holder = kHolder;
  holder.lead_ns = static_cast<int64_t>(2 * kTuning.turn_quantum_ns);
  TenantView next = kHolder;
  next.quantum_ns = kTuning.long_quantum_ns;
  CHECK(!IsTurnOver(holder, &next, kStart, kStart + kTuning.turn_quantum_ns - 1));
  CHECK(IsTurnOver(holder, &next, kStart, kStart + kTuning.turn_quantum_ns));
  holder.quantum_ns = kTuning.long_quantum_ns;
  CHECK(!IsTurnOver(holder, &next, kStart, later - 1));
  CHECK(IsTurnOver(holder, &next, kStart, later));
  next.quantum_ns = kTuning.turn_quantum_ns;
  CHECK(!IsTurnOver(holder, &next, kStart, later - 1));
  holder.lead_ns = static_cast<int64_t>(2 * kTuning.long_quantum_ns);
  CHECK(IsTurnOver(holder, &next, kStart, kStart + kTuning.short_turn_ns));
}

// Whoever comes back with much saved waits for less of it.
void SoonerForWhoSaved() {
  TenantView holder = kHolder;
  holder.quantum_ns = kTuning.long_quantum_ns;
  TenantView next = kHolder;
  next.saved_ns = kTuning.short_quantum_ns;
  CHECK(!IsTurnOver(holder, &next, kStart, kStart + kTuning.long_quantum_ns - 1));
  next.saved_ns += 1;
  CHECK(!IsTurnOver(holder, &next, kStart, kStart + kTuning.short_quantum_ns - 1));
  CHECK(IsTurnOver(holder, &next, kStart, kStart + kTuning.short_quantum_ns));
}

// Priority: at once for who has more of it; for who has less once the holder has nothing.
void ByPriority() {
  const uint64_t now = kRulesNow;
  TenantView holder = kHolder;
  holder.quantum_ns = kTuning.long_quantum_ns;
  TenantView next = kHolder;
  TenantView views[] = {holder, next};
  views[0].lead_ns = -1;
  CHECK_EQ(NextTenant(views, 2, now), 0);
  views[1].rank = kHighestRank;
  CHECK_EQ(NextTenant(views, 2, now), 1);
  CHECK(IsTurnOver(holder, &views[1], now, now));
  views[1].due_ns = now + 1;  // cannot pay
  CHECK_EQ(NextTenant(views, 2, now), 0);
  next.rank = kUsualRank - 1;
  CHECK(!IsTurnOver(holder, &next, kStart, kStart + 2 * kTuning.long_quantum_ns));
  holder.idle_since_ns = kStart;
  CHECK(IsTurnOver(holder, &next, kStart, kStart + kTuning.turn_idle_ns));
}

// What a turn cost, how its word is packed, and what is left of idleness.
void CostOfATurn() {
  const uint64_t now = kRulesNow;
  // Only what somebody else was kept waiting for, and the way there and back, over the share.
  CHECK_EQ(ServedInTurn(kStart, 0, now, 50000), 2 * (5 * kMs + 2 * kSwitchNs));
  CHECK_EQ(ServedInTurn(kStart, now - kMs, now, 50000), 2 * (kMs + 2 * kSwitchNs));
  CHECK_EQ(ServedInTurn(kStart, UINT64_MAX, now, 50000), 0);
  // Whoever uses four fifths of its turns needs a fourth more of them, but no more than its part.
  CHECK_EQ(ShareWithPauses(30000, 10 * kMs, 10 * kMs, 2), 30000);
  CHECK_EQ(ShareWithPauses(30000, 8 * kMs, 10 * kMs, 2), 37500);
  CHECK_EQ(ShareWithPauses(45000, 8 * kMs, 10 * kMs, 2), 50000);
  CHECK_EQ(ShareWithPauses(60000, 8 * kMs, 10 * kMs, 2), 60000);
  CHECK_EQ(ShareWithPauses(25000, 8 * kMs, 10 * kMs, 4), 25000);
  // Two thirds are used, or count as used; and words go wrong.
  CHECK(ShareWithPauses(30000, 0, 10 * kMs, 2) < 45000);
  CHECK_EQ(ShareWithPauses(30000, UINT64_MAX, 10 * kMs, 2), 30000);
  CHECK_EQ(ShareWithPauses(30000, UINT64_MAX, 0, 0), 30000);
  CHECK(ShareWithPauses(kWholeShare, 0, UINT64_MAX, 1) == kWholeShare);

  // Two turns within a microsecond are told apart; one that begins in the future never did.
  const Turn turn = {1, true, now / 1000};
  CHECK(PackTurn(NextTurn(turn, 1, now)) != PackTurn({1, false, turn.began_us}));
  CHECK_EQ(NextTurn({1, true, UINT64_MAX >> 9}, 2, now).began_us, now / 1000);

  CHECK_EQ(CatchUp(0, kStart, 50000), kStart - 2 * kTuning.long_quantum_ns);
  CHECK_EQ(CatchUp(kStart - kMs, kStart, 50000), kStart - kMs);
  CHECK_EQ(LeadOf(kStart + (uint64_t{1} << 60), kStart), kMostLeadNs);
}

void Rules() {
  OverAfterAQuantum();
  LongerWithShortKernels();
  SoonerForWhoSaved();
  ByPriority();
  CostOfATurn();
}

constexpr Case kCases[] = {{"alone", Alone},
                           {"siblings", Siblings},
                           {"soft", Soft},
                           {"sights", Sights},
                           {"beside_each_other", BesideEachOther},
                           {"short_beside_deep", ShortBesideDeep},
                           {"two_containers", TwoContainers},
                           {"any_user", AnyUser},
                           {"long_turns", LongTurns},
                           {"not_again", NotAgain},
                           {"stolen_turn", StolenTurn},
                           {"many_containers", ManyContainers},
                           {"crowded", Crowded},
                           {"together", Together},
                           {"full_folder", FullFolder},
                           {"damaged", Damaged},
                           {"rules", Rules}};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  folder = argv[2];
  return RunCase(kCases, argv[1]);
}
