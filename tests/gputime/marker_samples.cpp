// link: state
// sources: device/markers/gaps.cpp
// What a launch takes the GPU by samples of one, beside others. Fails with the place that was not
// true.
//
//   marker_samples NAME
#include "base/pauses.h"
#include "base/tuning.h"
#include "device/markers/gaps.h"
#include "support/state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint64_t kUs = 1'000;
constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kStart = 1'000'000 * kMs;
constexpr uint64_t kHostNs = 20 * kUs;  // from launch to launch
constexpr uint64_t kLeadNs = 3 * kUs;   // of which the launch itself takes so long
constexpr uint32_t kLeast = 8;
constexpr GpuPauses kPauses = {.launch_gap_ns = 0,
                               .step_gap_ns = 0,
                               .marker_gap_ns = 0,
                               .around_run_ns = 2'200,  // of no GPU that anybody knows
                               .queued_gap_ns = 0,
                               .start_ns = 0,
                               .end_marker_ns = 0,
                               .wide_gap_ns = 0};
constexpr uint32_t kMost = kTuning.many;

Markers markers;
MarkedStream stream;

// One whose host launches every 20 us, beside somebody.
void Begin(uint64_t apart_ns = kHostNs) {
  markers.calm_until_ns[0].store(1);
  stream.samples = {};
  for (int i = 0; i < 100; ++i) IsSampleDue(markers, &stream, 10, 10 * apart_ns, kStart);
}

// A launch that takes the GPU so long, undisturbed.
void Learn(uint64_t ns, uint64_t now_ns = kStart) {
  LearnSample(kPauses, &stream, ns + kLeadNs + kPauses.around_run_ns, kLeadNs, now_ns);
}
void LearnDisturbed() { LearnSample(kPauses, &stream, 2'500 * kUs, kLeadNs, kStart); }

uint64_t Sampled(uint64_t launches = 1, uint64_t now_ns = kStart) {
  return SampledNs(markers, stream, launches, now_ns);
}

// What lies around a launch is none of it; of several launches each takes as long.
void Known() {
  Begin();
  for (uint32_t i = 0; i < kLeast; ++i) Learn(5 * kUs);
  CHECK_EQ(Sampled(), 5 * kUs);
  CHECK_EQ(Sampled(30), 150 * kUs);
  CHECK_EQ(Sampled(0), 5 * kUs);
  for (uint32_t i = 0; i < kLeast; ++i) Learn(9 * kUs);
  CHECK_EQ(Sampled(), 7 * kUs);
}

void TooFew() {
  Begin();
  CHECK_EQ(Sampled(), UINT64_MAX);
  for (uint32_t i = 1; i < kLeast; ++i) {
    Learn(5 * kUs);
    CHECK_EQ(Sampled(), UINT64_MAX);
  }
  Learn(5 * kUs);
  CHECK_EQ(Sampled(), 5 * kUs);
}

// Somebody else came between: no sample. Where that is usual the others are none, either.
void Disturbed() {
  Begin();
  for (uint32_t i = 0; i < kLeast; ++i) {
    Learn(5 * kUs);
    LearnDisturbed();
  }
  CHECK_EQ(Sampled(), 5 * kUs);
  LearnDisturbed();
  CHECK_EQ(Sampled(), UINT64_MAX);
  Learn(5 * kUs);
  CHECK_EQ(Sampled(), 5 * kUs);
  // Whatever takes no longer than it takes the GPU to change hands twice is undisturbed.
  Begin(200 * kUs);
  constexpr uint64_t kMostNs = 2 * kSwitchNs - kTuning.doubt_ns;
  for (uint32_t i = 0; i < kLeast; ++i) LearnSample(kPauses, &stream, kMostNs, 200 * kUs, kStart);
  CHECK_EQ(Sampled(), kMostNs - kPauses.around_run_ns - 200 * kUs);
  LearnSample(kPauses, &stream, kMostNs + 1, 200 * kUs, kStart);
  CHECK_EQ(stream.samples.disturbed, 1);
  // Where all of it was queued, others come between only at the end of a slice; and between the
  // markers there is a pause as between two kernels, with a marker.
  Begin();
  const auto queued = [](uint64_t ran_ns) {
    Begin();
    LearnSample(kPauses, &stream, ran_ns, 0, kStart);
    CHECK_EQ(stream.samples.count, 1);
    return stream.samples.sum_ns + kPauses.marker_gap_ns + kPauses.launch_gap_ns;
  };
  constexpr uint64_t away = kSliceNs + 2 * kSwitchNs;
  CHECK_EQ(queued(300 * kUs), 300 * kUs);
  CHECK_EQ(queued(away - kTuning.doubt_ns - 1), away - kTuning.doubt_ns - 1);
  CHECK_EQ(queued(away + 8 * kUs), 8 * kUs);
  CHECK_EQ(queued(away + kMs), kMs);
  CHECK_EQ(queued(kSliceNs + away), kSliceNs);
  CHECK_EQ(queued(kSliceNs + 2 * away + kMs), kSliceNs + kMs);
}

// Once the others have told that none of them ran then, it was a long launch.
void Doubtful() {
  constexpr uint64_t kAroundNs = kLeadNs + kPauses.around_run_ns;
  Begin(200 * kUs);
  for (uint32_t i = 0; i < kLeast; ++i) {
    CHECK_EQ(LearnSample(kPauses, &stream, 5 * kUs + kAroundNs, kLeadNs, kStart), 0);
  }
  CHECK_EQ(LearnSample(kPauses, &stream, 905 * kUs + kAroundNs, kLeadNs, kStart), 905 * kUs);
  CHECK_EQ(Sampled(), 5 * kUs);
  LearnUndisturbed(&stream, 905 * kUs);
  CHECK_EQ(stream.samples.disturbed, 0);
  CHECK_EQ(Sampled(), 105 * kUs);
  LearnUndisturbed(&stream, 905 * kUs);  // what was forgotten meanwhile
  CHECK_EQ(Sampled(), 105 * kUs);
  // With many of them the host is no slower than the GPU.
  for (uint32_t i = 0; i < 2; ++i) {
    LearnUndisturbed(&stream,
                     LearnSample(kPauses, &stream, 905 * kUs + kAroundNs, kLeadNs, kStart));
  }
  CHECK_EQ(Sampled(), UINT64_MAX);
}

void Old() {
  constexpr uint64_t kLasts = kTuning.remembered_ns;
  Begin();
  for (uint32_t i = 0; i <= kLeast; ++i) {
    Learn(5 * kUs);
    LearnDisturbed();
  }
  CHECK_EQ(Sampled(1, kStart + kLasts), 5 * kUs);
  CHECK_EQ(Sampled(1, kStart + kLasts + 1), UINT64_MAX);
  CHECK_EQ(Sampled(1, kStart - kMs), 5 * kUs);  // a clock that was read earlier
  // What comes after a long time begins anew.
  Learn(9 * kUs, kStart + kLasts + 1);
  CHECK_EQ(Sampled(1, kStart + kLasts + 1), UINT64_MAX);
  for (uint32_t i = 1; i < kLeast; ++i) Learn(9 * kUs, kStart + kLasts + 1);
  CHECK_EQ(Sampled(1, kStart + kLasts + 1), 9 * kUs);
}

// A host that is as fast as the GPU keeps it busy: all of the time may be its own.
void FastHost() {
  Begin();
  for (uint32_t i = 0; i < kLeast; ++i) Learn(kHostNs);
  CHECK_EQ(Sampled(), kHostNs);
  for (uint32_t i = 0; i < kLeast; ++i) Learn(kHostNs + 2);
  CHECK_EQ(Sampled(), UINT64_MAX);
}

// The launch came to the GPU later than the whole took: at least an eighth of that is its own.
void LongLead() {
  Begin();
  for (uint32_t i = 0; i < kLeast; ++i) LearnSample(kPauses, &stream, 4 * kUs, 100 * kUs, kStart);
  CHECK_EQ(Sampled(), kUs / 2);
  Begin();
  for (uint32_t i = 0; i < kLeast; ++i) LearnSample(kPauses, &stream, 0, 100 * kUs, kStart);
  CHECK_EQ(Sampled(), 0);
}

// Samples count only while somebody else uses the GPU: alone, markers tell of all of an interval.
void Alone() {
  Begin();
  for (uint32_t i = 0; i < kLeast; ++i) Learn(5 * kUs);
  for (const uint64_t calm_ns : {uint64_t{0}, kStart, kStart + kMs}) {
    markers.calm_until_ns[0].store(calm_ns);
    CHECK_EQ(Sampled(), UINT64_MAX);
  }
  markers.calm_until_ns[0].store(kStart - 1);
  CHECK_EQ(Sampled(), 5 * kUs);
}

// Only so many are remembered: what a launch takes may change, and so may whether it is disturbed.
void Forgotten() {
  Begin();
  for (uint32_t i = 0; i < 10 * kMost; ++i) Learn(5 * kUs);
  CHECK_EQ(Sampled(), 5 * kUs);
  CHECK(stream.samples.count + stream.samples.disturbed <= kMost);
  for (uint32_t i = 0; i < 5 * kMost; ++i) Learn(10 * kUs);
  CHECK(Sampled() > 9 * kUs && Sampled() <= 10 * kUs);
  for (uint32_t i = 0; i < 2 * kMost; ++i) LearnDisturbed();
  CHECK_EQ(Sampled(), UINT64_MAX);
  for (uint32_t i = 0; i < 2 * kMost; ++i) Learn(10 * kUs);
  CHECK(Sampled() > 9 * kUs && Sampled() <= 10 * kUs);
}

// Samples cost markers: none where nobody else is, and fewer once they are known.
void Due() {
  Begin();
  CHECK(IsSampleDue(markers, &stream, 0, kHostNs, kStart));  // no launch is as one
  for (const uint64_t calm_ns : {uint64_t{0}, kStart, kStart + kMs}) {
    markers.calm_until_ns[0].store(calm_ns);
    CHECK(!IsSampleDue(markers, &stream, 1, kHostNs, kStart));
  }
  markers.calm_until_ns[0].store(kStart - 1);
  CHECK(IsSampleDue(markers, &stream, 1, kHostNs, kStart));
  Begin();
  for (uint32_t i = 0; i < kMost / 2; ++i) {
    CHECK(IsSampleDue(markers, &stream, 1, kHostNs, kStart));
    Learn(5 * kUs);
  }
  uint32_t due = 0;
  for (int i = 0; i < 100; ++i) due += IsSampleDue(markers, &stream, 1, kHostNs, kStart) ? 1 : 0;
  CHECK_EQ(due, 50);
}

constexpr Case kCases[] = {
    {"known", Known},      {"too_few", TooFew},      {"disturbed", Disturbed},
    {"old", Old},          {"fast_host", FastHost},  {"long_lead", LongLead},
    {"alone", Alone},      {"forgotten", Forgotten}, {"due", Due},
    {"doubtful", Doubtful}};

}  // namespace

int main(int argc, char** argv) { return argc == 2 ? RunCase(kCases, argv[1]) : 2; }
