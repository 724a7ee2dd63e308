// link: state
// What several containers on one GPU had of it, by the runs that they tell; and who of them takes
// turns. Fails with the place that was not true.
//
//   core_beside NAME SEED
#include <algorithm>
#include <tuple>
#include <vector>

#include "base/tuning.h"
#include "policy/gpu_time.h"
#include "policy/turn.h"
#include "support/state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint64_t kUs = 1'000;
constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kStart = 1'000'000 * kMs;
constexpr uint64_t kStepNs = 16;
constexpr uint64_t kWrapNs = (uint64_t{1} << 32) * kStepNs;  // words repeat after that
constexpr uint64_t kLongestNs = ((uint64_t{1} << 22) - 1) * kStepNs;
constexpr uint64_t kLifeNs = kTuning.lately_ns;

uint64_t seed = 1;

uint64_t LengthOf(Run run) { return run.end_ns - run.begin_ns; }

Run Unpacked(uint64_t word, uint64_t now_ns) {
  Run run = {0, 0, 99};
  CHECK(UnpackRun(word, now_ns, &run));
  return run;
}
bool IsNone(uint64_t word, uint64_t now_ns) {
  Run run;
  return !UnpackRun(word, now_ns, &run);
}

// ---- words ----

// A run comes back as it was, in steps, wherever it lies and whenever it is read.
void Packed() {
  Random random(seed);
  for (int i = 0; i < 100'000; ++i) {
    // Around the moments at which the words begin again, too.
    const uint64_t begin = (1 + random.Below(40)) * kWrapNs - 200 * kMs + random.Below(400 * kMs);
    const uint64_t length =
        kStepNs + random.Below(random.Below(2) == 0 ? 1000 : kLongestNs - kStepNs);
    const auto part = static_cast<uint32_t>(random.Below(kParts + 1));
    const uint64_t age = random.Below(kLifeNs - kStepNs);
    const uint64_t end = begin + length;
    const uint64_t word = PackRun({begin, end, part});
    CHECK(word != 0);
    const Run run = Unpacked(word, end + age);
    CHECK_EQ(run.begin_ns, begin / kStepNs * kStepNs);
    CHECK_EQ(run.end_ns, end / kStepNs * kStepNs);
    CHECK_EQ(run.part, part);
    CHECK(IsNone(word, end / kStepNs * kStepNs + kLifeNs + kStepNs));
    CHECK(!IsNone(word, end / kStepNs * kStepNs + kLifeNs));
  }
}

void PackedOdd() {
  // Nothing, too little, and the wrong way round.
  CHECK_EQ(PackRun({kStart, kStart, 0}), 0);
  CHECK_EQ(PackRun({kStart, kStart + kStepNs - 1, 0}), 0);
  CHECK_EQ(PackRun({kStart + kMs, kStart, 0}), 0);
  CHECK(IsNone(0, kStart));
  CHECK(IsNone(kStart / kStepNs << 32, kStart));  // ends now, and took no time
  // Of a long one its last part.
  const Run longest = Unpacked(PackRun({kStart, kStart + 300 * kMs, 0}), kStart + 300 * kMs);
  CHECK_EQ(longest.end_ns, kStart + 300 * kMs);
  CHECK_EQ(LengthOf(longest), kLongestNs);
  // No more than all of it is used.
  CHECK_EQ(Unpacked(PackRun({kStart, kStart + kMs, kParts + 1}), kStart + kMs).part, kParts);
  // One that ends after now, or began before the clock did.
  CHECK(IsNone(PackRun({kStart, kStart + kMs, 0}), kStart + kMs - kStepNs));
  CHECK(IsNone(PackRun({0, kStepNs, 0}) | 1000, kStepNs));
}

// Any word is no run, or one of the last half second that is no longer than one can be.
void PackedGarbage() {
  Random random(seed);
  uint64_t runs = 0;
  for (int i = 0; i < 2'000'000; ++i) {
    const uint64_t now =
        random.Below(2) == 0 ? random.Next() >> random.Below(40) : kStart + random.Below(kWrapNs);
    uint64_t word = random.Next();
    if (random.Below(2) == 0) {
      word = PackRun({now - random.Below(kMs), now + random.Below(kMs), 0}) ^ random.Below(1 << 30);
    }
    Run run;
    if (!UnpackRun(word, now, &run)) continue;
    ++runs;
    CHECK(run.begin_ns < run.end_ns && run.end_ns <= now);
    CHECK(now - run.end_ns <= kLifeNs + kStepNs);
    CHECK(LengthOf(run) <= kLongestNs && run.part <= kParts);
  }
  CHECK(runs > 1000);
}

// ---- what a container notes ----

struct Notes {
  Word words[4] = {};
  void Add(Run run) {
    now_ns = std::max(now_ns, run.end_ns);
    NoteRun(words, std::size(words), run, now_ns);
  }
  std::vector<Run> Runs() const {
    std::vector<Run> runs;
    for (const Word& word : words) {
      Run run;
      if (UnpackRun(word.load(), now_ns, &run)) runs.push_back(run);
    }
    std::sort(runs.begin(), runs.end(),
              [](Run one, Run other) { return one.begin_ns < other.begin_ns; });
    return runs;
  }
  uint64_t now_ns = 0;
};

void ExpectRuns(const Notes& notes, const std::vector<Run>& expected) {
  const std::vector<Run> runs = notes.Runs();
  CHECK_EQ(runs.size(), expected.size());
  for (size_t i = 0; i < runs.size(); ++i) {
    CHECK_EQ(runs[i].begin_ns, expected[i].begin_ns);
    CHECK_EQ(runs[i].end_ns, expected[i].end_ns);
    CHECK_EQ(runs[i].part, expected[i].part);
  }
}

// Runs between which the GPU cannot have been with anybody else are one, in any order.
void Joined() {
  constexpr uint64_t kPause = 2 * kSwitchNs - kTuning.doubt_ns;
  constexpr uint64_t at = kStart;
  {
    Notes notes;
    notes.Add({at, at + kMs, 0});
    notes.Add({at + kMs + kPause, at + 2 * kMs, 0});
    ExpectRuns(notes, {{at, at + 2 * kMs, 0}});
    notes.Add({at + 2 * kMs + kPause + kStepNs, at + 3 * kMs, 0});  // one step too late
    ExpectRuns(notes, {{at, at + 2 * kMs, 0}, {at + 2 * kMs + kPause + kStepNs, at + 3 * kMs, 0}});
  }
  {
    // The other way round, overlapping, and inside.
    Notes notes;
    notes.Add({at + 2 * kMs, at + 3 * kMs, 0});
    notes.Add({at, at + 2 * kMs - kPause, 0});
    notes.Add({at + kMs, at + 4 * kMs, 0});
    notes.Add({at + 2 * kMs, at + 3 * kMs, 0});
    ExpectRuns(notes, {{at, at + 4 * kMs, 0}});
  }
}

// What part was used is known of all of a run, or of none of it.
void JoinedParts() {
  constexpr uint64_t at = kStart;
  {
    Notes notes;
    notes.Add({at, at + kMs, 0});
    notes.Add({at + kMs, at + 2 * kMs, 20});
    notes.Add({at + 2 * kMs, at + 3 * kMs, 0});
    ExpectRuns(notes,
               {{at, at + kMs, 0}, {at + kMs, at + 2 * kMs, 20}, {at + 2 * kMs, at + 3 * kMs, 0}});
  }
  {
    // The mean by length.
    Notes notes;
    notes.Add({at, at + kMs, 100});
    notes.Add({at + kMs, at + 4 * kMs, 300});
    ExpectRuns(notes, {{at, at + 4 * kMs, 250}});
  }
  {
    // In a pause nothing was used, and what several tell of at once was used by each.
    Notes notes;
    notes.Add({at, at + 900 * kUs, 1000});
    notes.Add({at + 1100 * kUs, at + 2 * kMs, 1000});
    ExpectRuns(notes, {{at, at + 2 * kMs, 900}});
    Notes siblings;
    siblings.Add({at, at + kMs, 300});
    siblings.Add({at, at + kMs, 400});
    ExpectRuns(siblings, {{at, at + kMs, 700}});
    siblings.Add({at, at + kMs, 500});
    ExpectRuns(siblings, {{at, at + kMs, kParts}});
  }
}

// A new one takes the place of the oldest, or of one that is too old.
void Replaced() {
  Notes notes;
  const auto run = [](uint64_t ms) { return Run{kStart + ms * kMs, kStart + ms * kMs + kMs, 0}; };
  for (const uint64_t ms : {30, 10, 40, 20}) notes.Add(run(ms));
  notes.Add(run(50));
  ExpectRuns(notes, {run(20), run(30), run(40), run(50)});
  notes.Add(run(900));
  ExpectRuns(notes, {run(900)});
  for (const uint64_t ms : {910, 920, 930}) notes.Add(run(ms));
  ExpectRuns(notes, {run(900), run(910), run(920), run(930)});
  // Noise in the words is in nobody's way.
  Random random(seed);
  for (Word& word : notes.words) word.store(random.Next());
  for (const uint64_t ms : {2000, 2010, 2020, 2030}) notes.Add(run(ms));
  ExpectRuns(notes, {run(2000), run(2010), run(2020), run(2030)});
}

// How long a queue was never empty.
void Stretches() {
  Word word = {};
  constexpr uint64_t at = kStart;
  uint64_t now = 0;
  const auto expect = [&](Run run, uint64_t ns, uint64_t new_ns) {
    now = std::max(now, run.end_ns);
    const Stretch stretch = NoteStretch(&word, run, now);
    CHECK_EQ(stretch.ns, ns);
    CHECK_EQ(stretch.new_ns, new_ns);
  };
  constexpr uint64_t kPause = 5 * kUs - 8;  // in steps
  expect({at, at + kMs, 0}, kMs, kMs);
  expect({at + kMs + kPause, at + 2 * kMs, 0}, 2 * kMs, kMs);
  // What a sibling told already is nothing new.
  expect({at + kMs, at + 3 * kMs, 7}, 3 * kMs, kMs);
  expect({at + kMs, at + 3 * kMs, 0}, 3 * kMs, 0);
  expect({at + kMs, at + 2 * kMs, 0}, 3 * kMs, 0);
  // A pause begins another one.
  expect({at + 3 * kMs + kPause + kStepNs, at + 4 * kMs, 0}, kMs - kPause - kStepNs,
         kMs - kPause - kStepNs);
  word.store(UINT64_MAX);
  expect({at + 5 * kMs, at + 6 * kMs, 0}, kMs, kMs);
}

// ---- whose the time was ----

constexpr uint64_t kRound = 2 * (kSliceNs + kSwitchNs);  // of two

uint64_t OthersOf(Run own, const std::vector<std::vector<Run>>& neighbours, uint64_t from_ns = 0,
                  uint64_t to_ns = UINT64_MAX) {
  Meeting meeting(from_ns, to_ns);
  meeting.AddOwn(own);
  for (const std::vector<Run>& runs : neighbours) {
    meeting.AddNeighbour();
    for (const Run run : runs) meeting.AddTheirs(run);
  }
  return meeting.OthersNs();
}

// Two that always have work alternate by slices from when the later one came, which has the first.
void BySlices() {
  const Run own = {kStart, kStart + 40 * kMs, 0};
  CHECK_EQ(OthersOf(own, {}), 0);
  CHECK_EQ(OthersOf(own, {{{kStart + 50 * kMs, kStart + 90 * kMs, 0}}}), 0);
  for (const uint64_t rounds : {1, 2, 5}) {
    const Run both = {kStart, kStart + rounds * kRound, 0};
    CHECK_EQ(OthersOf(both, {{both}}), rounds * (kRound - kSliceNs));
  }
  // We came later: the first slice is ours.
  const Run before = {kStart - 10 * kMs, kStart + 60 * kMs, 0};
  const uint64_t slice = kSliceNs;
  for (const uint64_t ns : {uint64_t{1000}, slice - 1000, slice, slice + 1000, kRound,
                            kRound + 1000, kRound + slice, kRound + slice + 1000}) {
    const uint64_t ours = ns / kRound * slice + std::min(ns % kRound, slice);
    if (ns > kSliceNs + 50 * kUs)
      CHECK_EQ(OthersOf({kStart, kStart + ns, 0}, {{before}}), ns - ours);
  }
  // They came later: the first one is theirs.
  for (const uint64_t ns : {10 * kMs, 20 * kMs}) {
    const Run theirs = {own.end_ns - ns, own.end_ns + 20 * kMs, 0};
    const uint64_t away = kRound - kSliceNs;
    CHECK_EQ(OthersOf(own, {{theirs}}), ns / kRound * away + std::min(ns % kRound, away));
  }
}

// Three: a slice of ours for two of others.
void Three() {
  constexpr uint64_t kRoundOfThree = 3 * (kSliceNs + kSwitchNs);
  const Run all = {kStart, kStart + 4 * kRoundOfThree, 0};
  CHECK_EQ(OthersOf(all, {{all}, {all}}), 4 * (kRoundOfThree - kSliceNs));
  // Two runs of one neighbour at a time are still one neighbour.
  CHECK_EQ(OthersOf(all, {{all, all}}), OthersOf(all, {{all}}));
  // Whoever came last has the first slice, in whatever order they are told.
  const Run late = {kStart + 10 * kMs, all.end_ns, 0};
  const Run own = {all.begin_ns, all.begin_ns + 22 * kMs, 0};
  CHECK_EQ(OthersOf(own, {{all}, {late}}), OthersOf(own, {{late}, {all}}));
}

// A run that is no longer than a slice had the GPU to itself, there and back.
void Whole() {
  const Run own = {kStart, kStart + 40 * kMs, 0};
  const uint64_t at = kStart + 10 * kMs;
  for (const uint64_t ns : {100 * kUs, kMs, kSliceNs + 50 * kUs}) {
    CHECK_EQ(OthersOf(own, {{{at, at + ns, 0}}}), ns + 2 * kSwitchNs);
  }
  // Longer ones share what is there.
  CHECK_EQ(OthersOf(own, {{{at, at + kSliceNs + 51 * kUs, 0}}}), kSliceNs + 51 * kUs);
  CHECK_EQ(OthersOf(own, {{{at, at + kRound, 0}}}), kRound - kSliceNs);
  // Two short ones of two neighbours at a time are one time.
  CHECK_EQ(OthersOf(own, {{{at, at + kMs, 0}}, {{at, at + kMs, 0}}}), kMs + 2 * kSwitchNs);
  // Also while somebody deep is there: it has that time from us both.
  const uint64_t beside = OthersOf(own, {{{kStart, kStart + 40 * kMs, 0}}});
  const uint64_t more = OthersOf(own, {{{kStart, kStart + 40 * kMs, 0}}, {{at, at + kMs, 0}}});
  CHECK(more > beside && more <= beside + kMs + 2 * kSwitchNs);
  CHECK_EQ(OthersOf(own, {{{at, at + kMs, 0}}, {{kStart, kStart + 40 * kMs, 0}}}), more);
  // ... and if we come while it has it.
  const Run late = {at + kMs / 2, at + 20 * kMs, 0};
  const std::vector<Run> brief = {{at, at + kMs, 0}};
  CHECK_EQ(OthersOf(late, {brief, {own}}), OthersOf(late, {{own}, brief}));
}

// Nothing is given back of what was surely ours.
void SurelyOurs() {
  const Run theirs = {kStart - 10 * kMs, kStart + 60 * kMs, 0};
  CHECK_EQ(OthersOf({kStart, kStart + kSliceNs + 50 * kUs, 0}, {{theirs}}), 0);
  CHECK(OthersOf({kStart, kStart + kSliceNs + 51 * kUs, 0}, {{theirs}}) != 0);
  for (const uint32_t part : {1u, 500u, kParts}) {
    CHECK_EQ(OthersOf({kStart, kStart + 40 * kMs, part}, {{theirs}}), 0);
  }
}

// Of whom it is known what part they used: that, the GPU's ways to them and back within it, and
// those around it.
void Parts() {
  const Run own = {kStart, kStart + 40 * kMs, 0};
  const uint64_t at = kStart + 10 * kMs;
  constexpr uint64_t kLength = 10 * kMs;
  for (const uint32_t part : {1u, 300u, kParts}) {
    const uint64_t used = kLength * part / kParts;
    const uint64_t ways = (kLength - used) * 2 * kSwitchNs / (kSliceNs + 2 * kSwitchNs);
    CHECK_EQ(OthersOf(own, {{{at, at + kLength, part}}}), used + ways + 2 * kSwitchNs);
  }
  // Also where it is short.
  CHECK_EQ(OthersOf(own, {{{at, at + kMs, 300}}}),
           kMs * 300 / kParts +
               (kMs - kMs * 300 / kParts) * 2 * kSwitchNs / (kSliceNs + 2 * kSwitchNs) +
               2 * kSwitchNs);
  // Two of them at once use both of it, and no more than all.
  const uint64_t two = OthersOf(own, {{{at, at + kLength, 300}}, {{at, at + kLength, 400}}});
  const uint64_t used = kLength * 700 / kParts;
  CHECK_EQ(two,
           used + (kLength - used) * 2 * kSwitchNs / (kSliceNs + 2 * kSwitchNs) + 2 * kSwitchNs);
  CHECK_EQ(OthersOf(own, {{{at, at + kLength, 900}}, {{at, at + kLength, 900}}}),
           kLength + 2 * kSwitchNs);
}

// Only what lies in the stretch counts, and phases are those of the whole run.
void Stretched() {
  const Run own = {kStart, kStart + 40 * kMs, 0};
  Meeting meeting(kStart + 10 * kMs, kStart + 15 * kMs);
  meeting.AddOwn(own);
  meeting.AddOwn({kStart + 14 * kMs, kStart + 60 * kMs, 0});
  meeting.AddOwn({kStart + 15 * kMs, kStart + 60 * kMs, 0});
  meeting.AddOwn({kStart, kStart + 10 * kMs, 0});
  meeting.AddNeighbour();
  meeting.AddTheirs(own);
  CHECK_EQ(meeting.OwnNs(), 6 * kMs);
  // In the first half of our first slice none of it is theirs, and then all.
  const uint64_t middle = kStart + kSliceNs / 2;
  CHECK_EQ(OthersOf(own, {{own}}, kStart, middle), 0);
  CHECK_EQ(OthersOf(own, {{own}}, middle, kStart + kSliceNs), 0);
  CHECK_EQ(OthersOf(own, {{own}}, kStart + kSliceNs, kStart + kSliceNs + kMs), kMs);
}

std::vector<Run> AnyRuns(Random* random, bool may_be_parts) {
  std::vector<Run> runs;
  uint64_t at = kStart + random->Below(5 * kMs);
  while (runs.size() < 12) {
    const uint64_t length = kUs + random->Below(random->Below(2) == 0 ? 3 * kMs : 30 * kMs);
    const bool is_part = may_be_parts && random->Below(4) == 0;
    runs.push_back(
        {at, at + length, is_part ? static_cast<uint32_t>(1 + random->Below(kParts)) : 0});
    at += length + random->Below(5 * kMs);
  }
  return runs;
}

// Compared by pieces or at once: the same, but for what rounding takes; and never more than there
// was.
void InPieces() {
  Random random(seed);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::vector<Run>> all(1 + random.Below(4));
    for (std::vector<Run>& runs : all) runs = AnyRuns(&random, true);
    const auto meet = [&](uint64_t from_ns, uint64_t to_ns) {
      Meeting meeting(from_ns, to_ns);
      for (const Run run : all[0]) meeting.AddOwn(run);
      for (size_t i = 1; i < all.size(); ++i) {
        meeting.AddNeighbour();
        for (const Run run : all[i]) meeting.AddTheirs(run);
      }
      CHECK(meeting.OthersNs() <= meeting.OwnNs());
      return std::pair{meeting.OwnNs(), meeting.OthersNs()};
    };
    const uint64_t end = kStart + 500 * kMs;
    const auto [own, others] = meet(kStart, end);
    uint64_t own_sum = 0;
    uint64_t others_sum = 0;
    for (uint64_t at = kStart; at < end;) {
      const uint64_t next = at + kUs * (1 + random.Below(8000));
      const auto [own_piece, others_piece] = meet(at, next);
      own_sum += own_piece;
      others_sum += others_piece;
      at = next;
    }
    CHECK_EQ(own_sum, own);
    CHECK(others_sum <= others + 2000 && others <= others_sum + 2000);
  }
}

// What one has, the others have not: of two deep ones the GPU's time is given to both just once.
void NothingTwice() {
  Random random(seed);
  for (int round = 0; round < 300; ++round) {
    const Run one = {kStart, kStart + 3 * kMs + random.Below(60 * kMs), 0};
    const uint64_t begin = kStart + random.Below(30 * kMs);
    const Run other = {begin, begin + 3 * kMs + random.Below(60 * kMs), 0};
    const uint64_t both_ns = std::min(one.end_ns, other.end_ns) -
                             std::min(std::max(one.begin_ns, other.begin_ns), one.end_ns);
    const uint64_t of_one = OthersOf(one, {{other}});
    const uint64_t of_other = OthersOf(other, {{one}});
    if (one.end_ns <= other.begin_ns) continue;
    CHECK(of_one <= both_ns && of_other <= both_ns);
    // At least one of them gets it back, and of the ways each of them.
    CHECK(of_one + of_other >= both_ns);
    CHECK(of_one + of_other <= both_ns + 2 * kSwitchNs * (2 + both_ns / kRound));
  }
}

// More runs than there is room for: too little may be others', never too much.
void Crowded() {
  const Run own = {kStart, kStart + 60 * kMs, 0};
  std::vector<std::vector<Run>> many;
  for (int i = 0; i < 40; ++i) {
    many.push_back({});
    for (uint64_t at = 0; at < 60; at += 6) {
      many.back().push_back({kStart + at * kMs, kStart + at * kMs + 3 * kMs, 0});
    }
  }
  const uint64_t most = OthersOf(own, many);
  CHECK(most <= LengthOf(own));
  CHECK(most <=
        OthersOf(own, {{own}, {own}, {own}, {own}, {own}, {own}, {own}, {own}, {own}, {own},
                       {own}, {own}, {own}, {own}, {own}, {own}, {own}, {own}, {own}, {own},
                       {own}, {own}, {own}, {own}, {own}, {own}, {own}, {own}, {own}, {own},
                       {own}, {own}, {own}, {own}, {own}, {own}, {own}, {own}, {own}, {own}}));
  // Own ones come first, so that the time is known in any case.
  Meeting meeting(0, UINT64_MAX);
  for (uint64_t i = 0; i < 300; ++i) {
    meeting.AddOwn({kStart + i * kMs, kStart + i * kMs + kUs, 0});
  }
  CHECK_EQ(meeting.OwnNs(), 192 * kUs);
}

// ---- who takes turns ----

void Depths() {
  constexpr uint64_t now = kStart;
  Depth depth = {.was_deep = false,
                 .density = kTuning.dense_enough,
                 .run_ns = 6 * kSliceNs / 5,
                 .is_active = true,
                 .rested_ns = now - kTuning.lately_ns};
  CHECK(IsDeep(depth, now));
  const auto without = [&depth](auto change) {
    Depth other = depth;
    change(&other);
    return IsDeep(other, now);
  };
  CHECK(!without([](Depth* d) { d->run_ns -= 1; }));
  CHECK(!without([](Depth* d) { d->density -= 1; }));
  CHECK(!without([](Depth* d) { d->is_active = false; }));
  CHECK(!without([](Depth* d) { d->rested_ns += 1; }));
  CHECK(!without([](Depth* d) { d->rested_ns = now; }));
  CHECK(without([](Depth* d) { d->rested_ns = 0; }));
  CHECK(without([](Depth* d) { d->rested_ns = UINT64_MAX; }));  // a word that went wrong
  // Who was deep stays so for a while.
  depth.was_deep = true;
  depth.run_ns = 3 * kSliceNs / 4;
  CHECK(IsDeep(depth, now));
  CHECK(!without([](Depth* d) { d->run_ns -= 1; }));
  CHECK(!without([](Depth* d) { d->density -= 1; }));
  CHECK(!without([](Depth* d) { d->was_deep = false; }));
}

// Less than a twentieth of what it worked is no rest.
void LeastRests() {
  CHECK_EQ(LeastRestNs(0), kTuning.turn_idle_ns);
  CHECK_EQ(LeastRestNs(20 * kTuning.turn_idle_ns), kTuning.turn_idle_ns);
  CHECK_EQ(LeastRestNs(40 * kTuning.turn_idle_ns), 2 * kTuning.turn_idle_ns);
  CHECK_EQ(LeastRestNs(UINT64_MAX), kTuning.pause_ns);  // a word that went wrong
}

// However short the runs, whose work is all kernels is dense, and whose is not is not.
void MeanDensities() {
  for (const uint64_t ran : {10 * kUs, 500 * kUs, 50 * kMs}) {
    uint64_t dense = 0;
    uint64_t thin = kWholeDensity;
    for (uint64_t ns = 0; ns < 300 * kMs; ns += ran) {
      dense = MeanDensity(dense, ran, ran);
      thin = MeanDensity(thin, ran / 4, ran);
    }
    CHECK(dense > kWholeDensity - kWholeDensity / 1000 && dense <= kWholeDensity);
    CHECK(thin < kWholeDensity / 4 + kWholeDensity / 100);
  }
  CHECK_EQ(MeanDensity(1000, 7, 0), 1000);
  CHECK_EQ(MeanDensity(UINT64_MAX, 0, 0), kWholeDensity);
  CHECK_EQ(MeanDensity(0, 2 * kMs, kMs), kWholeDensity / 20);
  CHECK_EQ(MeanDensity(kWholeDensity, 10 * kMs, kTuning.mean_over_ns), kWholeDensity / 2);
}

void Densities() {
  for (const Density density : {Density{0, 0}, Density{0, kWholeDensity}, Density{kWholeDensity, 0},
                                Density{600'000, 997'000}}) {
    const Density found = UnpackDensity(PackDensity(density));
    CHECK_EQ(found.kernels, density.kernels);
    CHECK_EQ(found.charged, density.charged);
  }
  // A library of 1.0.0 wrote one number.
  CHECK_EQ(UnpackDensity(600'000).kernels, 600'000);
  CHECK_EQ(UnpackDensity(600'000).charged, 600'000);
  // Words that went wrong.
  CHECK_EQ(UnpackDensity(UINT64_MAX).kernels, kWholeDensity);
  CHECK_EQ(UnpackDensity(UINT64_MAX).charged, kWholeDensity);
  CHECK_EQ(PackDensity({UINT64_MAX, UINT64_MAX}), PackDensity({kWholeDensity, kWholeDensity}));
}

void MeanRuns() {
  CHECK_EQ(MeanRunNs(0, kMs, kTuning.mean_over_ns), kMs);
  CHECK_EQ(MeanRunNs(8 * kMs, 4 * kMs, kTuning.mean_over_ns / 2), 6 * kMs);
  CHECK_EQ(MeanRunNs(8 * kMs, 4 * kMs, 0), 8 * kMs);
  // One long run is not all.
  CHECK_EQ(MeanRunNs(0, UINT64_MAX, kTuning.mean_over_ns), kTuning.mean_over_ns);
  CHECK_EQ(MeanRunNs(0, kSliceNs, UINT64_MAX), kSliceNs);
  CHECK(MeanRunNs(UINT64_MAX, 0, 1) <= kTuning.mean_over_ns);  // a word that went wrong
  // Short runs for a second are not deep, nor does one long one among them make them so.
  uint64_t mean = kTuning.mean_over_ns;
  for (int i = 0; i < 1000; ++i) mean = MeanRunNs(mean, kMs, kMs);
  CHECK(mean < 3 * kSliceNs / 4);
  mean = MeanRunNs(mean, 5 * kMs, 5 * kMs);
  CHECK(mean < 6 * kSliceNs / 5);
}

// From a queue that was never empty for long: ten of them in a row end its turns, one does not.
void MeanRunsBehindPieces() {
  uint64_t mean = kTuning.mean_over_ns;
  mean = MeanRunBehindPieceNs(mean);
  CHECK(mean > 6 * kSliceNs / 5);
  for (int i = 1; i < 10; ++i) mean = MeanRunBehindPieceNs(mean);
  CHECK(mean < 3 * kSliceNs / 4);
  for (int i = 0; i < 100; ++i) mean = MeanRunBehindPieceNs(mean);
  CHECK_EQ(mean, 0);
  CHECK(MeanRunBehindPieceNs(UINT64_MAX) < kTuning.mean_over_ns);  // a word that went wrong
}

constexpr Case kCases[] = {{"packed", Packed},
                           {"packed_odd", PackedOdd},
                           {"packed_garbage", PackedGarbage},
                           {"joined", Joined},
                           {"joined_parts", JoinedParts},
                           {"replaced", Replaced},
                           {"stretches", Stretches},
                           {"by_slices", BySlices},
                           {"three", Three},
                           {"whole", Whole},
                           {"surely_ours", SurelyOurs},
                           {"parts", Parts},
                           {"stretched", Stretched},
                           {"in_pieces", InPieces},
                           {"nothing_twice", NothingTwice},
                           {"crowded", Crowded},
                           {"depths", Depths},
                           {"least_rests", LeastRests},
                           {"mean_densities", MeanDensities},
                           {"densities", Densities},
                           {"mean_runs", MeanRuns},
                           {"mean_runs_behind_pieces", MeanRunsBehindPieces}};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  seed = strtoull(argv[2], nullptr, 10);
  return RunCase(kCases, argv[1]);
}
