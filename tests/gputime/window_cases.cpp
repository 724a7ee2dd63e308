// link: state
// One promise about windows a run (policy/windows.h), with a clock that is a number; fails with the
// place that was not true.
//
//   window_cases NAME
#include <algorithm>
#include <vector>

#include "base/tuning.h"
#include "policy/windows.h"
#include "support/state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kPart = 2 * kTuning.turn_quantum_ns;  // of a period, for each
constexpr uint64_t kBegin = 1000 * 60 * kPart;           // a period of two, three, four begins here

using Tenants = std::vector<WindowTenant>;

WindowTenant Busy(uint64_t job, uint32_t share) { return {job, share, 0}; }

// As the one at a place sees it.
Window Of(const Tenants& all, size_t place, uint64_t now_ns) {
  Tenants others = all;
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(place));
  return WindowOf(all[place], others.data(), others.size(), now_ns);
}

void Alone() {
  const Window window = WindowOf(Busy(7, 50'000), nullptr, 0, kBegin);
  CHECK_EQ(window.wait_ns, 0);
  CHECK_EQ(window.left_ns, UINT64_MAX);
}

// At each moment it is one's, and of a period each has its part.
void Parts() {
  for (const Tenants& all :
       {Tenants{Busy(9, 50'000), Busy(3, 50'000)}, Tenants{Busy(1, 30'000), Busy(2, 70'000)},
        Tenants{Busy(8, 10'000), Busy(5, 20'000), Busy(6, 30'000)},
        Tenants{Busy(4, 1), Busy(3, 100'000), Busy(2, 25'000), Busy(1, 25'000)}}) {
    const uint64_t period_ns = all.size() * kPart;
    uint64_t shares = 0;
    for (const WindowTenant& each : all) shares += each.share;
    std::vector<uint64_t> had_ns(all.size());
    constexpr uint64_t kStep = kMs / 4;
    for (uint64_t at_ns = 0; at_ns < period_ns; at_ns += kStep) {
      size_t owners = 0;
      for (size_t i = 0; i < all.size(); ++i) {
        const Window window = Of(all, i, kBegin + at_ns);
        if (window.wait_ns != 0) {
          CHECK(window.wait_ns <= period_ns);
          CHECK_EQ(Of(all, i, kBegin + at_ns + window.wait_ns).wait_ns, 0);
          continue;
        }
        ++owners;
        had_ns[i] += kStep;
        CHECK(window.left_ns > 0 && window.left_ns <= period_ns);
        CHECK(Of(all, i, kBegin + at_ns + window.left_ns).wait_ns != 0);
      }
      CHECK_EQ(owners, 1);
    }
    for (size_t i = 0; i < all.size(); ++i) {
      const uint64_t part_ns = period_ns * all[i].share / shares;
      CHECK(had_ns[i] <= part_ns + kStep && had_ns[i] + kStep >= part_ns);
    }
  }
}

// Each sees the others in another order, and itself apart.
void Order() {
  const Tenants one = {Busy(1, 20'000), Busy(2, 30'000), Busy(3, 50'000)};
  const Tenants other = {Busy(3, 50'000), Busy(1, 20'000), Busy(2, 30'000)};
  for (uint64_t at_ns = 0; at_ns < 3 * kPart; at_ns += kMs) {
    CHECK_EQ(Of(one, 0, kBegin + at_ns).wait_ns, Of(other, 1, kBegin + at_ns).wait_ns);
    CHECK_EQ(Of(one, 2, kBegin + at_ns).wait_ns, Of(other, 0, kBegin + at_ns).wait_ns);
  }
}

// Who leaves the GPU alone in its own window leaves it to the other, but not at once: it has as
// long to begin, and what it does is seen a little later.
void Left() {
  Tenants all = {Busy(1, 50'000), Busy(2, 50'000)};
  const uint64_t pause_ns = kTuning.pause_ns;
  all[0].idle_since_ns = kBegin - 20 * kMs;  // since its last window
  CHECK(Of(all, 1, kBegin + pause_ns - 1).wait_ns != 0);
  Window window = Of(all, 1, kBegin + pause_ns);
  CHECK_EQ(window.wait_ns, 0);
  CHECK_EQ(window.left_ns, kPart - pause_ns);

  all[0].idle_since_ns = kBegin + 10 * kMs;
  CHECK(Of(all, 1, kBegin + 10 * kMs + pause_ns - 1).wait_ns != 0);
  CHECK_EQ(Of(all, 1, kBegin + 10 * kMs + pause_ns).wait_ns, 0);

  // Its own window it has all the same, whatever the others leave.
  CHECK_EQ(Of(all, 0, kBegin + 30 * kMs).wait_ns, 0);
  all[0].idle_since_ns = 0;
  CHECK(Of(all, 1, kBegin + 30 * kMs).wait_ns != 0);
}

// Idle from the future on is not idle yet; nobody waits for longer than a period for any word.
void Garbage() {
  for (const uint64_t idle_ns : {UINT64_MAX, kBegin + 3'600'000 * kMs, uint64_t{1}}) {
    for (const uint64_t job : {uint64_t{0}, uint64_t{5}, UINT64_MAX}) {
      const Tenants all = {Busy(5, 50'000), {job, 4'000'000'000u, idle_ns}};
      for (uint64_t at_ns = 0; at_ns < 2 * kPart; at_ns += kMs) {
        CHECK(Of(all, 0, kBegin + at_ns).wait_ns <= 2 * kPart);
      }
    }
  }
}

constexpr Case kCases[] = {
    {"alone", Alone}, {"parts", Parts}, {"order", Order}, {"left", Left}, {"garbage", Garbage}};

}  // namespace

int main(int argc, char** argv) { return argc == 2 ? RunCase(kCases, argv[1]) : 2; }
