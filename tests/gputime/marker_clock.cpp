// link: state
// From a GPU's clock to the monotonic one, rule by rule; gpu_clock.cpp has clocks that drift. Fails
// with the place that was not true.
//
//   marker_clock NAME
#include "device/gpu_clock.h"
#include "support/state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr int64_t kUs = 1'000;
constexpr int64_t kMs = 1'000'000;
constexpr int64_t kWindow = 1'000 * kMs;
constexpr int64_t kGpu = 7'000 * kMs;       // a moment by the GPU's clock ...
constexpr int64_t kHost = 1'000'000 * kMs;  // ... and by the monotonic one
constexpr int64_t kSeenSoon = 100 * kUs;

// A marker that was reached `at_ns` behind that moment, recorded and seen so much before and after.
void Observe(GpuClock* clock, int64_t at_ns, int64_t before_ns, int64_t behind_ns, bool prompt) {
  clock->Observe(kGpu + at_ns, static_cast<uint64_t>(kHost + at_ns - before_ns),
                 static_cast<uint64_t>(kHost + at_ns + behind_ns), prompt);
}

// By how much a moment is told too late.
int64_t OffNs(const GpuClock& clock, int64_t at_ns) {
  return static_cast<int64_t>(clock.ToMonotonic(kGpu + at_ns)) - (kHost + at_ns);
}

// What is reached as it is recorded tells the time; and no later than that.
void Prompt() {
  GpuClock clock = {};
  Observe(&clock, 0, kUs, kMs, /*prompt=*/true);
  CHECK(clock.IsSharp());
  CHECK_EQ(OffNs(clock, 0), -kUs);
  CHECK_EQ(OffNs(clock, 300 * kMs), -kUs);  // also of other moments
}

// Of what waited in a queue one was seen soon after it was reached, none before it was recorded.
void Queued() {
  GpuClock clock = {};
  Observe(&clock, 0, 50 * kMs, kMs, /*prompt=*/false);
  CHECK(!clock.IsSharp());
  CHECK_EQ(OffNs(clock, 0), kMs - kSeenSoon);
  Observe(&clock, kMs, 50 * kMs, 300 * kUs, /*prompt=*/false);
  CHECK_EQ(OffNs(clock, 0), 300 * kUs - kSeenSoon);
  // Seen later it says nothing new, but for the drift.
  Observe(&clock, 2 * kMs, 50 * kMs, 2 * kMs, /*prompt=*/false);
  CHECK(OffNs(clock, 0) >= 300 * kUs - kSeenSoon && OffNs(clock, 0) < 302 * kUs - kSeenSoon);

  GpuClock recorded = {};
  Observe(&recorded, 0, 20 * kUs, 50 * kUs, /*prompt=*/false);
  CHECK_EQ(OffNs(recorded, 0), -20 * kUs);  // not 50 us before it was reached
}

// Bounds of several markers are all kept: the latest record and the earliest look.
void Narrowed() {
  GpuClock clock = {};
  Observe(&clock, 0, 30 * kUs, kMs, /*prompt=*/true);
  Observe(&clock, 0, 2 * kUs, kMs, /*prompt=*/true);
  Observe(&clock, 0, 40 * kUs, kMs, /*prompt=*/true);
  CHECK_EQ(OffNs(clock, 0), -2 * kUs);
  // One that is not prompt makes none of it blunt.
  Observe(&clock, 0, 40 * kUs, kMs, /*prompt=*/false);
  CHECK(clock.IsSharp());
  CHECK_EQ(OffNs(clock, 0), -2 * kUs);
}

// Each window ends with what it knew for the next one, and is forgotten behind that.
void Forgotten() {
  GpuClock clock = {};
  Observe(&clock, 0, kUs, 10 * kMs, /*prompt=*/true);
  Observe(&clock, kWindow + kMs, 900 * kMs, 10 * kMs, /*prompt=*/false);
  CHECK(clock.IsSharp());
  CHECK(OffNs(clock, kWindow) < 0 && OffNs(clock, kWindow) > -kUs - kWindow / 13'500);
  Observe(&clock, 2 * kWindow + 2 * kMs, 900 * kMs, 10 * kMs, /*prompt=*/false);
  CHECK(!clock.IsSharp());
  // One prompt marker makes its window sharp, and the one behind it.
  GpuClock once = {};
  Observe(&once, 0, 900 * kMs, 10 * kMs, /*prompt=*/false);
  Observe(&once, kWindow + kMs, kUs, 10 * kMs, /*prompt=*/true);
  Observe(&once, kWindow + 2 * kMs, 900 * kMs, 10 * kMs, /*prompt=*/false);
  Observe(&once, 2 * kWindow + 3 * kMs, 900 * kMs, 10 * kMs, /*prompt=*/false);
  CHECK(once.IsSharp());
  // After a long silence nothing of before is known.
  GpuClock silent = {};
  Observe(&silent, 0, kUs, 10 * kMs, /*prompt=*/true);
  Observe(&silent, 3 * kWindow, 900 * kMs, 10 * kMs, /*prompt=*/false);
  CHECK(!silent.IsSharp());
  CHECK_EQ(OffNs(silent, 3 * kWindow), 10 * kMs - kSeenSoon);
}

// Bounds loosen as clocks drift, by 71 millionths; where windows do not agree the newer counts.
void Drifts() {
  GpuClock seen = {};
  Observe(&seen, 0, 50 * kMs, 300 * kUs, /*prompt=*/false);
  Observe(&seen, kWindow + kMs, 50 * kMs, 10 * kMs, /*prompt=*/false);
  const int64_t between_ns = kWindow + kMs + 10 * kMs - 300 * kUs;
  CHECK_EQ(OffNs(seen, 0), 300 * kUs - kSeenSoon + between_ns / 14'000);

  GpuClock clock = {};
  Observe(&clock, 0, kUs, 10 * kMs, /*prompt=*/true);
  Observe(&clock, 190 * kMs, 5 * kMs, 10 * kMs, /*prompt=*/true);
  CHECK_EQ(OffNs(clock, 0), -kUs - 190 * kMs / 14'000);

  // The GPU's clock jumped: what was recorded and seen now lies before all that was known.
  GpuClock jumped = {};
  Observe(&jumped, 0, kUs, 10 * kMs, /*prompt=*/true);
  jumped.Observe(kGpu + 2 * kWindow, static_cast<uint64_t>(kHost + kWindow + kMs),
                 static_cast<uint64_t>(kHost + kWindow + 2 * kMs), /*prompt=*/true);
  CHECK_EQ(jumped.ToMonotonic(kGpu + 2 * kWindow), kHost + kWindow + 2 * kMs);
  // No moment lies before the monotonic clock's begin.
  CHECK_EQ(jumped.ToMonotonic(-2 * kHost), 0);
}

// NTP slews the monotonic clock, but not another one, nor the GPU's: by the difference all moves.
void Slewed() {
  constexpr uint64_t kRaw = 5;  // a moment of that one
  const auto note = [](GpuClock* clock, int64_t raw_ns, int64_t slewed_ns, int64_t took_ns) {
    const uint64_t before_ns = static_cast<uint64_t>(kHost + raw_ns + slewed_ns - took_ns / 2);
    clock->NoteSlew(before_ns, kRaw + static_cast<uint64_t>(raw_ns),
                    before_ns + static_cast<uint64_t>(took_ns));
  };
  GpuClock clock = {};
  note(&clock, 0, 0, 100);  // how far apart they are tells nothing
  Observe(&clock, 0, kUs, kMs, /*prompt=*/true);
  CHECK_EQ(OffNs(clock, 0), -kUs);
  note(&clock, 100 * kMs, -50 * kUs, 100);
  CHECK_EQ(OffNs(clock, 0), -51 * kUs);
  note(&clock, 110 * kMs, 7 * kUs, 100);
  CHECK_EQ(OffNs(clock, 0), 6 * kUs);
  // The thread had to wait between two readings.
  note(&clock, 120 * kMs, 900 * kUs, kMs);
  CHECK_EQ(OffNs(clock, 0), 6 * kUs);
  // Bounds moved along: what is recorded a little later says nothing new.
  Observe(&clock, 100, 10 * kUs, kMs, /*prompt=*/false);
  CHECK(OffNs(clock, 0) > 5 * kUs && OffNs(clock, 0) <= 6 * kUs);
  clock.Observe(kGpu + 2 * kWindow, static_cast<uint64_t>(kHost + 2 * kWindow - kMs),
                static_cast<uint64_t>(kHost + 2 * kWindow + kMs), /*prompt=*/false);
  CHECK(!clock.IsSharp() || OffNs(clock, 0) < 6 * kUs);
}

constexpr Case kCases[] = {{"prompt", Prompt},       {"queued", Queued}, {"narrowed", Narrowed},
                           {"forgotten", Forgotten}, {"drifts", Drifts}, {"slewed", Slewed}};

}  // namespace

int main(int argc, char** argv) { return argc == 2 ? RunCase(kCases, argv[1]) : 2; }
