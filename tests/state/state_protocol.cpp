// sources: state/ledger.cpp
// flags: -include state/stepped_word.h
// The ledger itself, in every order of its accesses to shared words with up to as many changes of
// turn as asked for, and with one process killed before any access. At every step: what the driver
// has given out is within the limit, and the total is no less than that. At the end, the dead
// reclaimed and the total rebuilt: not a byte more or less than what the living hold.
//
//   state_protocol SWITCHES all|resident
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <vector>

#include "state/ledger.h"

namespace {

using namespace gpufence;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr int kMostMembers = 3;
constexpr size_t kStackBytes = size_t{64} << 10;
constexpr uint64_t kLimit = 10;
constexpr int kEndless = 100000;
constexpr size_t kMostShown = 200;

enum class Deed : uint8_t { kEnd, kReserve, kRelease, kBook, kReclaim };

struct Line {
  Deed deed;
  uint64_t bytes;
};

struct Scenario {
  const char* name;
  uint64_t drift;  // what somebody left in the total long ago
  Line script[kMostMembers][4];
  bool is_killing;
  uint64_t fewest;  // bytes held at the end when nobody was killed
  uint64_t most;
};

constexpr Scenario kScenarios[] = {
    {"two for one place", 0, {{{Deed::kReserve, 6}}, {{Deed::kReserve, 6}}}, false, 6, 6},
    {"two for two places", 0, {{{Deed::kReserve, 5}}, {{Deed::kReserve, 5}}}, false, 10, 10},
    {"drift and one place", 8, {{{Deed::kReserve, 6}}, {{Deed::kReserve, 6}}}, false, 6, 6},
    {"drift and two places", 8, {{{Deed::kReserve, 5}}, {{Deed::kReserve, 5}}}, false, 10, 10},
    {"quick beside slow", 7, {{{Deed::kReserve, 8}}, {{Deed::kReserve, 3}}}, false, 3, 8},
    {"three for two places",
     8,
     {{{Deed::kReserve, 4}}, {{Deed::kReserve, 4}}, {{Deed::kReserve, 4}}},
     false,
     8,
     8},
    {"room goes between look and word",
     2,
     {{{Deed::kReserve, 6}}, {{Deed::kReserve, 6}}, {{Deed::kReserve, 3}}},
     false,
     9,
     9},
    {"release beside rebuild",
     5,
     {{{Deed::kReserve, 4}, {Deed::kRelease, 4}, {Deed::kReserve, 3}},
      {{Deed::kReclaim, 0}, {Deed::kReclaim, 0}},
      {{Deed::kReserve, 6}}},
     false,
     3,
     9},
    {"booked beside asked",
     0,
     {{{Deed::kBook, 4}, {Deed::kRelease, 4}}, {{Deed::kReserve, 6}}, {{Deed::kReclaim, 0}}},
     false,
     6,
     6},
    {"killed holder, rebuilding heir",
     0,
     {{{Deed::kReserve, 6}, {Deed::kRelease, 6}, {Deed::kReserve, 4}},
      {{Deed::kReclaim, 0}, {Deed::kReserve, 5}, {Deed::kRelease, 5}}},
     true,
     4,
     9},
    {"killed asker beside a slow one",
     6,
     {{{Deed::kReserve, 5}, {Deed::kRelease, 5}}, {{Deed::kReserve, 7}, {Deed::kReclaim, 0}}},
     true,
     0,
     7},
    {"killed among three",
     0,
     {{{Deed::kReserve, 6}, {Deed::kRelease, 6}},
      {{Deed::kReclaim, 0}, {Deed::kReserve, 4}},
      {{Deed::kReserve, 5}, {Deed::kRelease, 5}}},
     true,
     0,
     10},
};

struct Member {
  ucontext_t context;
  char* stack;
  uint64_t held;  // what the driver has given it
  bool done;
  bool dead;
  bool passes;  // lets the others go first
};

struct Choice {
  int taken;
  int options;
};

Region* region = nullptr;
Extent extent = Extent::kAll;

Cell* Cells() { return extent == Extent::kAll ? region->cells[0] : region->resident[0]; }
Word& Total() {
  return extent == Extent::kAll ? region->rows[0].total : region->resident_rows[0].total;
}
const Scenario* scenario = nullptr;
Member members[kMostMembers];
ucontext_t judge;
int current = -1;
int switches = 0;
int most_switches = 0;
int killed = -1;
int steps = 0;
std::vector<Choice> path;
size_t depth = 0;
uint64_t executions = 0;

[[noreturn]] void Fail(const char* what) {
  fprintf(stderr, "%s: %s after", scenario->name, what);
  for (size_t i = 0; i < path.size() && i < kMostShown; ++i) {
    fprintf(stderr, " %d/%d", path[i].taken, path[i].options);
  }
  fprintf(stderr, "\n");
  for (int i = 0; i < kMostMembers; ++i) {
    const Cell& cell = Cells()[i];
    fprintf(stderr, "  member %d: given %d, held %d, asking %d%s\n", i,
            static_cast<int>(members[i].held), static_cast<int>(cell.held.look()),
            static_cast<int>(cell.asking.look()), members[i].dead ? ", dead" : "");
  }
  fprintf(stderr, "  total %d\n", static_cast<int>(TotalBytes(Total().look())));
  exit(9);
}

uint64_t GivenOut() {
  uint64_t bytes = 0;
  for (const Member& member : members) bytes += member.dead ? 0 : member.held;
  return bytes;
}

// The next of the recorded choices, or the first of new ones.
int Choose(int options) {
  if (options == 1) return 0;
  if (depth == path.size()) path.push_back({0, options});
  return path[depth++].taken;
}

bool MayRun(int index) { return !members[index].done && !members[index].dead; }

// Whoever waits lets the others go in turn: a scheduler that knows the coins could have all of them
// fall alike for ever.
int AfterPassing() {
  for (const bool is_second_look : {false, true}) {
    for (int i = 1; i <= kMostMembers; ++i) {
      const int next = (current + i) % kMostMembers;
      if (MayRun(next) && !members[next].passes) return next;
    }
    if (is_second_look) break;
    for (Member& member : members) member.passes = false;
  }
  return -1;
}

// Who goes next: staying costs nothing, taking the turn away from somebody costs a switch, and once
// in a run the one whose turn it is dies instead.
int Next() {
  int options[kMostMembers + 1];
  int count = 0;
  const bool stays = current >= 0 && MayRun(current) && !members[current].passes;
  // A step of somebody else is what those who passed were waiting for.
  for (int i = 0; stays && i < kMostMembers; ++i) {
    if (i != current) members[i].passes = false;
  }
  if (stays) options[count++] = current;
  for (int i = 0; i < kMostMembers && (!stays || switches < most_switches); ++i) {
    if (i != current && MayRun(i) && !members[i].passes) options[count++] = i;
  }
  if (!stays && current >= 0) return AfterPassing();
  if (count == 0) return -1;
  const bool may_die = scenario->is_killing && killed < 0 && current == 0 && stays;
  const int choice = Choose(count + (may_die ? 1 : 0));
  if (choice == count) {
    killed = current;
    members[current].dead = true;
    return Next();
  }
  if (stays && options[choice] != current) ++switches;
  return options[choice];
}

void Check() {
  if (GivenOut() > kLimit) Fail("more given out than the limit");
  if (TotalBytes(Total().look()) < GivenOut()) Fail("the total is too low");
  if (++steps > kEndless) Fail("no end");
}

void SwitchFrom(ucontext_t* from) {
  const int next = Next();
  ucontext_t* to = next < 0 ? &judge : &members[next].context;
  current = next;
  if (to != from) swapcontext(from, to);
}

// As state/slots.cpp does, whose locks prove the death.
void ZeroCell(int index) {
  Cells()[index].asking.store(0);
  Cells()[index].held.store(0);
}

void RunScript(int index) {
  Member* self = &members[index];
  Ledger ledger(region, 0, static_cast<uint32_t>(index), extent);
  for (const Line& line : scenario->script[index]) {
    switch (line.deed) {
      case Deed::kEnd:
        break;
      case Deed::kReserve:
        if (ledger.Reserve(line.bytes, kLimit) == Verdict::kGranted) self->held += line.bytes;
        break;
      case Deed::kRelease:
        if (self->held < line.bytes) break;
        self->held -= line.bytes;
        ledger.Release(line.bytes);
        break;
      case Deed::kBook:
        ledger.Book(line.bytes);
        self->held += line.bytes;
        break;
      case Deed::kReclaim:
        if (killed >= 0) ZeroCell(killed);
        ledger.Rebuild();
        break;
    }
  }
  self->done = true;
  SwitchFrom(&self->context);
}

void Begin() {
  for (int i = 0; i < kMostMembers; ++i) {
    Member* member = &members[i];
    char* stack = member->stack;
    *member = {};
    member->stack = stack;
    member->done = scenario->script[i][0].deed == Deed::kEnd;
    Cells()[i].asking.put(0);
    Cells()[i].held.put(0);
    getcontext(&member->context);
    member->context.uc_stack.ss_sp = stack;
    member->context.uc_stack.ss_size = kStackBytes;
    makecontext(&member->context, reinterpret_cast<void (*)()>(RunScript), 1, i);
  }
  Total().put(scenario->drift);
  current = -1;
  switches = 0;
  killed = -1;
  steps = 0;
  depth = 0;
}

// After the last step: whoever looks then finds exactly what the living hold.
void Judge() {
  current = -1;
  if (killed >= 0) ZeroCell(killed);
  Ledger(region, 0, kMostMembers, extent).Rebuild();
  const Totals totals = Ledger(region, 0, 0, extent).Sum();
  if (totals.asking != 0) Fail("somebody still asks");
  if (totals.held != GivenOut()) Fail("a byte was lost or gained");
  if (TotalBytes(Total().look()) != GivenOut()) Fail("the total was not rebuilt");
  if (killed < 0 && (GivenOut() < scenario->fewest || GivenOut() > scenario->most)) {
    Fail("somebody was refused what was free");
  }
}

// The next path in the order of a depth-first search; false after the last.
bool Advance() {
  while (!path.empty() && path.back().taken + 1 == path.back().options) path.pop_back();
  if (path.empty()) return false;
  ++path.back().taken;
  return true;
}

void Explore() {
  path.clear();
  do {
    Begin();
    SwitchFrom(&judge);
    Judge();
    ++executions;
  } while (Advance());
}

}  // namespace

void statetest::Step() {
  if (current < 0) return;  // the judge
  Check();
  SwitchFrom(&members[current].context);
  Check();
}

int statetest::Pass(...) {
  members[current].passes = true;
  SwitchFrom(&members[current].context);
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  most_switches = atoi(argv[1]);
  if (strcmp(argv[2], "resident") == 0) extent = Extent::kResident;
  void* memory = mmap(nullptr, sizeof(Region), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return 3;
  region = static_cast<Region*>(memory);
  region->header.high_slot.store(kMostMembers);
  for (Member& member : members) member.stack = static_cast<char*>(malloc(kStackBytes));
  for (const Scenario& one : kScenarios) {
    scenario = &one;
    const uint64_t before = executions;
    Explore();
    fprintf(stderr, "%s: %llu\n", one.name, static_cast<unsigned long long>(executions - before));
  }
  printf("{\"executions\": %llu}\n", static_cast<unsigned long long>(executions));
  return 0;
}
