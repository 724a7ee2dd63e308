// link: state
// sources: device/markers/lengths.cpp
// What launches take, learned from intervals of several. Fails with the place that was not true.
//
//   marker_lengths NAME
#include <initializer_list>

#include "device/markers/lengths.h"
#include "support/state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint64_t kUs = 1'000;
constexpr uint64_t kUsualNs = 70 * kUs;
constexpr uint32_t kMost = LaunchLog::kMost;

LaunchLog launches;
LaunchLengths lengths;

void Launch(std::initializer_list<uint32_t> kinds) {
  for (const uint32_t kind : kinds) launches.Add(kind);
}

// The last so many of them ran for so long.
void Ran(uint32_t count, uint64_t ns) { lengths.Learn(launches, launches.count(), count, ns); }

uint64_t LastNs(uint64_t count) {
  return lengths.OfNs(launches, launches.count(), count, kUsualNs);
}

// What nobody knows takes as long as launches usually do; so does what the log forgot.
void Unknown() {
  CHECK_EQ(LastNs(0), 0u);
  Launch({1, 2, 3});
  CHECK_EQ(LastNs(3), 3 * kUsualNs);
  CHECK_EQ(LastNs(1'000), 1'000 * kUsualNs);
}

// One launch in an interval is what the interval took. The next interval tells of another one what
// is left.
void Alone() {
  Launch({1});
  Ran(1, 300 * kUs);
  CHECK_EQ(LastNs(1), 300 * kUs);
  Launch({1, 2});
  Ran(2, 340 * kUs);
  CHECK_EQ(LastNs(1), 40 * kUs);
  CHECK_EQ(LastNs(2), 340 * kUs);
  Launch({9});
  CHECK_EQ(LastNs(3), 340 * kUs + kUsualNs);
  // An earlier end: what was launched behind it does not count.
  CHECK_EQ(lengths.OfNs(launches, launches.count() - 1, 1, kUsualNs), 40 * kUs);
}

// Where intervals end in different places each kind gets its own length, however they began.
void ToldApart() {
  constexpr uint64_t kLongNs = 370 * kUs;
  constexpr uint64_t kShortNs = 10 * kUs;
  constexpr uint32_t kLong = 1, kShort = 2;
  Launch({kLong, kShort});
  Ran(2, kLongNs + kShortNs);
  CHECK_EQ(LastNs(1), (kLongNs + kShortNs) / 2);
  for (int i = 0; i < 500; ++i) {
    Launch({kLong, kShort});
    Ran(2, kLongNs + kShortNs);
    Launch({kShort, kShort, kShort});
    Ran(3, 3 * kShortNs);
  }
  Launch({kLong});
  CHECK(LastNs(1) > kLongNs - 5 * kUs);
  CHECK(LastNs(1) < kLongNs + 5 * kUs);
  Launch({kShort});
  CHECK(LastNs(1) > kShortNs - 2 * kUs);
  CHECK(LastNs(1) < kShortNs + 2 * kUs);
}

// Another container had the GPU for two milliseconds: that says little of ten microseconds.
void Disturbed() {
  Launch({1});
  Ran(1, 10 * kUs);
  Launch({1});
  Ran(1, 2'000 * kUs);
  CHECK(LastNs(1) > 10 * kUs);
  CHECK(LastNs(1) < 11 * kUs);
}

// A kind whose length changed is found out, and none takes no time at all.
void Changed() {
  Launch({1});
  Ran(1, 100 * kUs);
  for (int i = 0; i < 1'000; ++i) {
    Launch({1});
    Ran(1, 0);
  }
  CHECK(LastNs(1) > 0);
  CHECK(LastNs(1) < kUs);
  // Each of two learns a part of what was not expected; the shorter one has no less than none.
  Launch({2});
  Ran(1, 128 * kUs);
  Launch({1, 2});
  Ran(2, 0);
  CHECK(LastNs(1) > 125 * kUs);
  CHECK(LastNs(1) < 127 * kUs);
  CHECK(LastNs(2) < LastNs(1) + kUs);
}

// Launches that the log does not hold any more teach nothing.
void Forgotten() {
  Launch({1});
  const uint32_t end = launches.count();
  for (uint32_t i = 0; i < kMost; ++i) launches.Add(2);
  lengths.Learn(launches, end, 1, 300 * kUs);
  lengths.Learn(launches, launches.count(), kMost + 1, 300 * kUs);
  lengths.Learn(launches, launches.count(), 0, 300 * kUs);
  CHECK_EQ(LastNs(1), kUsualNs);
  Launch({1});
  CHECK_EQ(LastNs(1), kUsualNs);
}

// A kind may have another one's place. Then it is not known, and is not taken for that.
void SamePlace() {
  constexpr uint32_t kKinds = 1'024;
  Launch({5});
  Ran(1, 20 * kUs);
  Launch({5 + kKinds});
  CHECK_EQ(LastNs(1), kUsualNs);
  Ran(1, 30 * kUs);
  CHECK_EQ(LastNs(1), 30 * kUs);
  CHECK_EQ(LastNs(2), 30 * kUs + kUsualNs);
}

// The same function with another grid is another kind.
void Kinds() {
  int function = 0;
  int other = 0;
  CHECK_EQ(LaunchKindOf(&function, 8), LaunchKindOf(&function, 8));
  CHECK(LaunchKindOf(&function, 8) != LaunchKindOf(&function, 9));
  CHECK(LaunchKindOf(&function, 8) != LaunchKindOf(&other, 8));
}

constexpr Case kCases[] = {{"unknown", Unknown},      {"alone", Alone},
                           {"told_apart", ToldApart}, {"disturbed", Disturbed},
                           {"changed", Changed},      {"forgotten", Forgotten},
                           {"same_place", SamePlace}, {"kinds", Kinds}};

}  // namespace

int main(int argc, char** argv) { return argc == 2 ? RunCase(kCases, argv[1]) : 2; }
