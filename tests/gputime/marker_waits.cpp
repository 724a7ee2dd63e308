// link: state
// What the host's clock adds to runs that are waited for. Fails with the place that was not true.
//
//   marker_waits NAME
#include "base/tuning.h"
#include "device/markers/marked_stream.h"
#include "support/state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint64_t kUs = 1'000;
constexpr uint64_t kSpacingNs = 1'000 * kUs;
constexpr uint32_t kFirst = 4;

uint32_t Random() {
  static uint64_t state = 0x9e3779b97f4a7c15;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return static_cast<uint32_t>(state >> 32);
}

bool IsNear(uint64_t ns, uint64_t expected_ns, uint64_t percent) {
  return ns * 100 >= expected_ns * (100 - percent) && ns * 100 <= expected_ns * (100 + percent);
}

// All are due until there are some, and what they tell is their mean.
void First() {
  HostExtra extra = {};
  CHECK_EQ(extra.ns(), 0);
  for (uint32_t i = 0; i < kFirst; ++i) {
    CHECK(extra.IsDue());
    extra.Learn((30 + 10 * i) * kUs, 50 * kUs, kSpacingNs, 2);
  }
  CHECK_EQ(extra.ns(), 45 * kUs);
  CHECK(!extra.IsDue());  // nobody knows yet how long runs are
  extra.CountTold(kUs);
  CHECK(extra.IsDue());
  extra = {};
  extra.Learn(0, kUs, kSpacingNs, 0);
  CHECK_EQ(extra.ns(), 1);
}

// One is due after so much time of them, in the mean.
void Spaced() {
  HostExtra extra = {};
  uint64_t told = 0;
  uint64_t marked = 0;
  for (uint32_t i = 0; i < 200'000; ++i) {
    if (extra.IsDue()) {
      extra.Learn(5 * kUs, 25 * kUs, kSpacingNs, Random());
      ++marked;
    } else {
      extra.CountTold(25 * kUs);
      ++told;
    }
  }
  CHECK(IsNear(told / marked, 41, 6));
}

// A host that is late for a while is as often in what was learned as in what is told.
void LateForAWhile() {
  HostExtra extra = {};
  uint64_t took_sum_ns = 0;
  uint64_t known_sum_ns = 0;
  uint64_t told = 0;
  bool is_late = false;
  for (uint32_t i = 0; i < 400'000; ++i) {
    if (Random() % (is_late ? 10 : 30) == 0) is_late = !is_late;
    const uint64_t took_ns = (is_late ? 160 : 10) * kUs;
    if (extra.IsDue()) {
      extra.Learn(took_ns, took_ns + 20 * kUs, kSpacingNs, Random());
      continue;
    }
    took_sum_ns += took_ns;
    known_sum_ns += extra.ns();
    ++told;
    extra.CountTold(took_ns + 20 * kUs);
  }
  CHECK(IsNear(known_sum_ns / told, took_sum_ns / told, 5));
}

// What runs whose kernels and host take such times are charged in all, of what their kernels took,
// in percent; each that is told may be off by so much.
template <typename Kernels, typename Host>
uint64_t ChargedPercent(Kernels kernels, Host host, uint64_t most_off_ns = UINT64_MAX) {
  HostExtra extra = {};
  uint64_t ran_sum_ns = 0;
  uint64_t charged_sum_ns = 0;
  for (uint32_t i = 0; i < 100'000; ++i) {
    const uint64_t ran_ns = kernels();
    const uint64_t extra_ns = host();
    const uint64_t span_ns = ran_ns + extra_ns;
    if (extra.IsDue()) {
      extra.Learn(extra_ns, span_ns, kSpacingNs, Random());
      continue;
    }
    extra.CountTold(span_ns);
    const uint64_t charged_ns = span_ns - std::min(span_ns, extra.OfNs(span_ns));
    CHECK(i < 1'000 || std::max(charged_ns, ran_ns) - std::min(charged_ns, ran_ns) <= most_off_ns);
    ran_sum_ns += ran_ns;
    charged_sum_ns += charged_ns;
  }
  return (charged_sum_ns * 100 + ran_sum_ns / 2) / ran_sum_ns;
}

// Where the host alone differs, each run is charged as the marked ones; where kernels do, as long
// as the host saw it.
void LateOrLonger() {
  constexpr auto kSame = [] { return 10 * kUs; };
  constexpr auto kAny = [] { return Random() % (200 * kUs); };
  CHECK_EQ(ChargedPercent(kSame, kSame, 0), 100);
  CHECK_EQ(ChargedPercent(kSame, kAny, kUs / 2), 100);
  CHECK_EQ(ChargedPercent(kAny, kSame, kUs / 2), 100);
}

// Marked runs may be waited for in another way, by a host that spins where it would sleep: all the
// same they tell what the others' kernels took.
void MarkedInAnotherWay() {
  HostExtra extra = {};
  for (uint32_t i = 0; i < 100; ++i) extra.Learn(50 * kUs, 70 * kUs, kSpacingNs, 0);
  CHECK_EQ(extra.OfNs(70 * kUs), 50 * kUs);
  CHECK_EQ(extra.OfNs(25 * kUs), 5 * kUs);
  CHECK_EQ(extra.OfNs(kUs), 0);
}

// Where both differ, all together are charged for what they took.
void LateAndLonger() {
  constexpr auto kLonger = [] { return (Random() % 8 == 0 ? 100 : 10) * kUs; };
  constexpr auto kLate = [] { return (Random() % 4 == 0 ? 80 : 8) * kUs; };
  const uint64_t percent = ChargedPercent(kLonger, kLate);
  CHECK(percent >= 97 && percent <= 103);
}

// Kernels that become long are no lateness for longer than it takes to mark one of them.
void LongerAfterLate() {
  HostExtra extra = {};
  for (uint32_t i = 0; i < 100; ++i) {
    const uint64_t late_ns = Random() % (100 * kUs);
    extra.Learn(late_ns, late_ns + 10 * kUs, kSpacingNs, 0);
  }
  CHECK(IsNear(extra.OfNs(500 * kUs), 490 * kUs, 1));
  extra.Learn(50 * kUs, 550 * kUs, kSpacingNs, 0);
  CHECK(extra.OfNs(550 * kUs) < 110 * kUs);
}

// Another host altogether is known after some that were due.
void Changed() {
  HostExtra extra = {};
  for (uint32_t i = 0; i < 100; ++i) extra.Learn(20 * kUs, 30 * kUs, kSpacingNs, 0);
  for (uint32_t i = 0; i < 30; ++i) extra.Learn(90 * kUs, 100 * kUs, kSpacingNs, 0);
  CHECK(IsNear(extra.ns(), 90 * kUs, 3));
}

// However short runs are, so many and no more are told before one is due.
void NeverForLong() {
  HostExtra extra = {};
  for (uint32_t i = 0; i < 100; ++i) {
    extra.Learn(kUs, 2 * kUs, UINT32_MAX, UINT32_MAX);
    uint32_t told = 0;
    for (; !extra.IsDue(); ++told) extra.CountTold(1);
    CHECK(told <= 16 * kTuning.many + 1);
  }
}

// With other numbers the same rules hold: nothing reads kTuning behind their back.
void OtherNumbers() {
  Tuning tuning;
  tuning.enough = 2;
  tuning.many = 1;
  HostExtra extra = {};
  CHECK(extra.IsDue(tuning));
  extra.CountTold(1, tuning);
  extra.Learn(5 * kUs, 6 * kUs, UINT32_MAX, UINT32_MAX, tuning);
  CHECK(!extra.IsDue(tuning) && extra.IsDue());
  uint32_t told = 0;
  for (; !extra.IsDue(tuning); ++told) extra.CountTold(1, tuning);
  CHECK(told <= 17);
}

constexpr Case kCases[] = {{"first", First},
                           {"spaced", Spaced},
                           {"late_for_a_while", LateForAWhile},
                           {"late_or_longer", LateOrLonger},
                           {"marked_in_another_way", MarkedInAnotherWay},
                           {"late_and_longer", LateAndLonger},
                           {"longer_after_late", LongerAfterLate},
                           {"changed", Changed},
                           {"never_for_long", NeverForLong},
                           {"other_numbers", OtherNumbers}};

}  // namespace

int main(int argc, char** argv) { return argc == 2 ? RunCase(kCases, argv[1]) : 2; }
