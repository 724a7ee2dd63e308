// link: state
// sources: device/markers/gaps.cpp
// What the host's clock tells of runs that the program waits for, and of those that the next one
// closes. Fails with the place that was not true.
//
//   marker_spans NAME
#include "base/tuning.h"
#include "device/markers/gaps.h"
#include "support/state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint64_t kUs = 1'000;
constexpr uint64_t kMs = 1'000'000;
// No GPU that anybody knows.
constexpr GpuPauses kPauses = {.launch_gap_ns = 1'100,
                               .step_gap_ns = 0,
                               .marker_gap_ns = 0,
                               .around_run_ns = 2'200,
                               .queued_gap_ns = 0,
                               .start_ns = 0,
                               .end_marker_ns = 1'700,
                               .wide_gap_ns = 0};
constexpr uint64_t kExtraNs = 5 * kUs;              // what the host's clock adds
constexpr uint64_t kSurpriseNs = kTuning.doubt_ns;  // by which a host may be late that is not
constexpr uint32_t kMarked = kTuning.enough;        // runs behind a surprise
constexpr uint64_t kLeadNs = 3 * kUs;

WaitedRuns runs;

void Begin(uint64_t extra_ns = kExtraNs, uint64_t longest_ns = 100 * kUs) {
  runs = {};
  runs.extra.Learn(extra_ns, 0, 0, 0);
  runs.longest_ns = longest_ns;
}

uint64_t Busy(uint64_t span_ns, uint32_t launches = 1, uint64_t inner_ns = 0) {
  return BusyByHostNs(kPauses, &runs, launches, inner_ns, &span_ns);
}

// What lies around the kernels and between them is none of them.
void Told() {
  Begin();
  CHECK_EQ(Busy(50 * kUs), 50 * kUs - kExtraNs);
  CHECK_EQ(Busy(50 * kUs, 5), 50 * kUs - kExtraNs - 4 * kPauses.launch_gap_ns);
  CHECK_EQ(Busy(50 * kUs, 1, 7 * kUs), 38 * kUs);
  CHECK_EQ(Busy(50 * kUs, 1, kMs), 20 * kUs);  // half of it at most lies within
  CHECK_EQ(Busy(kExtraNs), 0);
  CHECK_EQ(runs.marked_due, 0);
}

// A wait that took less than what lies around makes the next ones cheaper by as much, once, and by
// no more than may lie around.
void Short() {
  Begin();
  CHECK_EQ(Busy(kUs), 0);
  CHECK_EQ(Busy(50 * kUs), 41 * kUs);
  CHECK_EQ(Busy(50 * kUs), 45 * kUs);
  CHECK_EQ(Busy(kUs) + Busy(2 * kUs) + Busy(20 * kUs), 8 * kUs);
  CHECK_EQ(Busy(50 * kUs), 45 * kUs);
  runs.longest_ns = kMs;
  for (int i = 0; i < 100; ++i) CHECK_EQ(Busy(kUs), 0);
  CHECK_EQ(Busy(kMs), kMs - kExtraNs - kTuning.doubt_ns);
}

// Far longer than any that a marker saw: charged as the longest, and the next ones are marked.
void Surprised() {
  Begin();
  const uint64_t most_ns = 100 * kUs + kSurpriseNs + 2 * kExtraNs;
  CHECK_EQ(MostSpanNs(runs, 1), most_ns);
  CHECK_EQ(MostSpanNs(runs, 3), most_ns + 200 * kUs);
  CHECK_EQ(Busy(most_ns), most_ns - kExtraNs);
  CHECK_EQ(runs.marked_due, 0);

  uint64_t span_ns = most_ns + 1;
  CHECK_EQ(BusyByHostNs(kPauses, &runs, 1, 0, &span_ns), most_ns - kExtraNs);
  CHECK_EQ(span_ns, most_ns);
  CHECK_EQ(runs.marked_due, kMarked);

  Begin();
  CHECK_EQ(Busy(most_ns + 1, 2), most_ns + 1 - kExtraNs - kPauses.launch_gap_ns);
  CHECK_EQ(runs.marked_due, 0);
}

// Where the host was late alone what it saw for longer is no surprise: the marked runs tell all.
void Late() {
  runs = {};
  runs.longest_ns = 10 * kUs;
  for (int i = 0; i < 16; ++i) {
    const uint64_t late_ns = (i % 2 == 0 ? 80 : 10) * kUs;
    runs.extra.Learn(late_ns, late_ns + 10 * kUs, 0, 0);
  }
  CHECK_EQ(Busy(20 * kUs), 10 * kUs);
  CHECK_EQ(Busy(90 * kUs), 10 * kUs);
  CHECK_EQ(Busy(10 * kMs), 10 * kUs);
  CHECK_EQ(runs.marked_due, 0);
}

// A run with markers, whose kernels take so long, and of which the host's clock adds so much: the
// marker behind it, by which the wait ends later, and the launch, behind which the host's span of
// other runs begins, are none of that.
uint64_t Taught(uint64_t kernels_ns, uint64_t extra_ns, uint64_t launches = 1) {
  const uint64_t ran_ns = kLeadNs + kPauses.around_run_ns + kernels_ns;
  const uint64_t wait_ns = kernels_ns + extra_ns + kPauses.end_marker_ns;
  return ExtraOf(kPauses, runs, {launches, kLeadNs + wait_ns, ran_ns, kLeadNs});
}

void Teaches() {
  Begin();
  CHECK_EQ(Taught(30 * kUs, 8 * kUs), 8 * kUs);
  CHECK_EQ(Taught(30 * kUs, 0), 0);
  CHECK_EQ(ExtraOf(kPauses, runs, {1, kUs, 30 * kUs, kLeadNs}), 0);  // seen before it was over
  // A late host teaches as much as it would have cost.
  const uint64_t most_ns = 100 * kUs + kSurpriseNs + 2 * kExtraNs;  // in which the kernels are
  CHECK_EQ(Taught(30 * kUs, most_ns - 30 * kUs), most_ns - 30 * kUs);
  CHECK_EQ(Taught(30 * kUs, kMs), most_ns - 30 * kUs);
  CHECK_EQ(Taught(30 * kUs, kMs, 3), most_ns + 170 * kUs);
  // The first one may be as late as it is.
  runs = {};
  CHECK_EQ(Taught(30 * kUs, kMs), kMs);
}

// Closed are runs that took about as long as the others, by the mean of the last eight or so.
void Usual() {
  ClosedRuns closed = {};
  CHECK(IsUsual(&closed, 100 * kUs));  // the first one is all that is known
  CHECK_EQ(closed.run_span_ns, 100 * kUs);
  CHECK(IsUsual(&closed, 149 * kUs));
  CHECK_EQ(closed.run_span_ns, (7 * 100 + 149) * kUs / 8);
  closed.run_span_ns = 100 * kUs;
  CHECK(!IsUsual(&closed, 150 * kUs));
  closed.run_span_ns = 100 * kUs;
  CHECK(IsUsual(&closed, 51 * kUs));
  closed.run_span_ns = 100 * kUs;
  CHECK(!IsUsual(&closed, 50 * kUs));
  // A launch that was held says little of the others.
  closed.run_span_ns = 100 * kUs;
  CHECK(!IsUsual(&closed, 10 * kMs));
  CHECK_EQ(closed.run_span_ns, (7 * 100 + 200) * kUs / 8);
}

constexpr Case kCases[] = {{"told", Told}, {"short", Short},     {"surprised", Surprised},
                           {"late", Late}, {"teaches", Teaches}, {"usual", Usual}};

}  // namespace

int main(int argc, char** argv) { return argc == 2 ? RunCase(kCases, argv[1]) : 2; }
