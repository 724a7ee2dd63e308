// link: state
// sources: device/markers/gaps.cpp
// What lies between kernels, and what of it the GPU waited for the host. Fails with the place that
// was not true.
//
//   marker_gaps NAME
#include "base/tuning.h"
#include "device/markers/gaps.h"
#include "support/state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint64_t kUs = 1'000;
constexpr uint64_t kMs = 1'000'000;
// No GPU that anybody knows.
constexpr GpuPauses kPauses = {.launch_gap_ns = 1'100,
                               .step_gap_ns = 700,
                               .marker_gap_ns = 3'300,
                               .around_run_ns = 2'200,
                               .queued_gap_ns = 1'900,
                               .start_ns = 2'700,
                               .end_marker_ns = 0,
                               .wide_gap_ns = 0};
constexpr uint64_t kQueuedNs = kPauses.queued_gap_ns;
constexpr uint32_t kLeast = 8;
constexpr uint32_t kProbes = 64;

MarkedStream stream;

void Begin(uint64_t launch_ns = 20 * kUs) {
  stream.gaps = {};
  stream.is_fresh = false;
  stream.steady = stream.mean_of = 0;
  stream.mean_ns = 0;
  stream.ns_per_launch = launch_ns;
}

IntervalContent Launches(uint64_t launches, uint64_t host_ns = 0) {
  return {launches, 0, 0, 0, host_ns, false, 0, false, MarkerReached::kLater};
}

// Between the markers of an interval there is a pause around each kernel and each marker, and no
// more than three quarters of the time.
void Pauses() {
  Begin();
  const uint64_t behind_marker = kPauses.marker_gap_ns + kPauses.launch_gap_ns;
  CHECK_EQ(PausesNs(kPauses, stream, Launches(1), kMs), behind_marker);
  CHECK_EQ(PausesNs(kPauses, stream, Launches(0), kMs), behind_marker);
  CHECK_EQ(PausesNs(kPauses, stream, Launches(11), kMs),
           behind_marker + 10 * kPauses.launch_gap_ns);
  IntervalContent content = Launches(1);
  content.inner_ns = StepsNs(kPauses, 8);
  content.markers = 3;
  content.lead_ns = 4 * kUs;  // of a run that began before
  CHECK_EQ(PausesNs(kPauses, stream, content, kMs),
           behind_marker + 3 * kPauses.marker_gap_ns + 7 * kPauses.step_gap_ns);
  stream.is_fresh = true;
  CHECK_EQ(PausesNs(kPauses, stream, content, kMs),
           4 * kUs + kPauses.around_run_ns + 3 * kPauses.marker_gap_ns + 7 * kPauses.step_gap_ns);
  CHECK_EQ(PausesNs(kPauses, stream, Launches(100), 10 * kUs), 7'500);
  // A run that was queued before the GPU came to it had its first launch there.
  content.is_queued = true;
  CHECK_EQ(PausesNs(kPauses, stream, content, kMs),
           behind_marker + 3 * kPauses.marker_gap_ns + 7 * kPauses.step_gap_ns);
}

// Of `host_ns` from launch to launch the GPU waited so long.
Probe Waited(uint64_t idle_ns, uint64_t host_ns) {
  const uint64_t own_ns = host_ns - idle_ns - kPauses.launch_gap_ns;
  return {host_ns, host_ns, own_ns + kPauses.around_run_ns, 0, 0, 0, false, false};
}

// What is before it takes the GPU longer than the host takes to the next launch.
constexpr Probe Queued(uint64_t host_ns) {
  return {0, host_ns, 0, 0, 2 * host_ns, 0, false, false};
}

// It and the next marker, which counts its gap as well.
void Learn(const Probe& probe, bool is_at_once = false, const Tuning& tuning = kTuning) {
  LearnGap(kPauses, &stream, probe, tuning);
  CountLastGap(&stream, is_at_once);
}

// A probe tells how long the GPU had nothing: of the host's time until the next launch all but the
// launch itself, and nothing while it was queued.
void Probes() {
  const auto idle = [](const Probe& probe) {
    Begin();
    LearnGap(kPauses, &stream, probe);
    CHECK_EQ(stream.gaps.probes, 1);
    CHECK_EQ(stream.gaps.later.host_ns, probe.host_ns);
    return stream.gaps.later.idle_ns;
  };
  const uint64_t around = kPauses.around_run_ns;
  const uint64_t apart = kPauses.launch_gap_ns;
  const auto waited = [&](uint64_t ran_ns, uint64_t call_ns) {
    return idle({kQueuedNs + 1, 20 * kUs, ran_ns, call_ns, kMs, 0, false, false});
  };
  CHECK_EQ(waited(8 * kUs + around, 0), 12 * kUs - apart);
  // The call of the launch is the host's time too, and not the kernel's.
  CHECK_EQ(waited(14 * kUs + around, 6 * kUs), 12 * kUs - apart);
  // What lies around a launch is no more than seven eighths of what it took.
  CHECK_EQ(waited(8 * kUs, 6 * kUs), 19 * kUs - apart);
  CHECK_EQ(waited(30 * kUs, 0), 0);
  // Queued, it waits for what is before it as well, but for the markers there, which the host had
  // to record.
  constexpr uint64_t kMarks = 2 * kPauses.marker_gap_ns;
  const uint64_t marked = kPauses.marker_gap_ns + kPauses.launch_gap_ns;
  const auto called = [&](uint64_t behind_ns, uint64_t call_ns, uint64_t record_ns,
                          uint64_t ran_ns) {
    return idle({kQueuedNs, 20 * kUs, ran_ns, call_ns, behind_ns, record_ns, false, false});
  };
  const auto queued = [&](uint64_t behind_ns, uint64_t record_ns) {
    return called(behind_ns, 0, record_ns, 8 * kUs + marked);
  };
  CHECK_EQ(queued(0, 0), 12 * kUs - apart);
  CHECK_EQ(queued(kMarks, 0), 12 * kUs - apart);
  CHECK_EQ(queued(kMarks + 3 * kUs, 0), 9 * kUs - apart);
  CHECK_EQ(queued(kMarks + 3 * kUs, kUs), 8 * kUs - apart);
  CHECK_EQ(queued(3 * kUs, 9 * kUs), 9 * kUs - apart);
  CHECK_EQ(queued(kMarks + 12 * kUs, 0), 0);
  CHECK_EQ(queued(kTuning.most_wait_ns, 0), 0);
  // While the GPU had nothing else it waited for the call, which is no part of the launch's time;
  // never less than where the launch was there behind its marker.
  const uint64_t ran = 14 * kUs + around;
  CHECK_EQ(called(0, 6 * kUs, 0, ran), 12 * kUs - apart);
  CHECK_EQ(called(kUs, 6 * kUs, 0, ran), 11 * kUs - apart);
  CHECK_EQ(called(6 * kUs, 6 * kUs, 0, ran), 6 * kUs - around + marked - apart);
  CHECK_EQ(called(kMarks, 6 * kUs, 0, ran), 6 * kUs - around + marked - apart);
  // As many as are remembered: what comes later counts more.
  Begin();
  for (uint32_t i = 0; i < kProbes; ++i) LearnGap(kPauses, &stream, Queued(20 * kUs));
  CHECK_EQ(stream.gaps.later.idle_ns, 0);
  for (uint32_t i = 0; i < 10 * kProbes; ++i)
    LearnGap(kPauses, &stream, Waited(18 * kUs, 20 * kUs));
  CHECK_EQ(stream.gaps.probes, kProbes);
  CHECK(stream.gaps.later.idle_ns * 100 >= stream.gaps.later.host_ns * 89);
  for (uint32_t i = 0; i < 10 * kProbes; ++i) LearnGap(kPauses, &stream, Queued(20 * kUs));
  CHECK(stream.gaps.later.idle_ns * 100 <= stream.gaps.later.host_ns);
}

// A call that took long, and the GPU was done with its launch by then: nobody knows what that took.
void LongCalls() {
  CHECK(TellsLaunch(50 * kUs, 40 * kUs));
  CHECK(!TellsLaunch(50 * kUs, 40 * kUs + 1));
  CHECK(!TellsLaunch(1'000 * kUs, 990 * kUs));
  CHECK(!TellsLaunch(1'010 * kUs, 990 * kUs));
  CHECK(TellsLaunch(1'010 * kUs + 1, 990 * kUs));  // it ran yet
}

// The host was late with a call: all of its time but what launches take in the mean the GPU waited.
void LateCalls() {
  Begin();
  CHECK_EQ(LateNs(stream, kTuning.behind_ns), 0);
  CHECK_EQ(LateNs(stream, kTuning.unknown_launch_ns), 0);  // nothing is known of the launch
  CHECK_EQ(LateNs(stream, 60 * kMs), 60 * kMs - kTuning.unknown_launch_ns);
  stream.mean_ns = 7 * kUs;
  CHECK_EQ(LateNs(stream, kTuning.behind_ns), 0);
  CHECK_EQ(LateNs(stream, kMs), 993 * kUs);
  stream.mean_ns = 2 * kMs;
  CHECK_EQ(LateNs(stream, kMs), 0);
  // Of an interval that is known with its calls, whatever probes tell.
  IntervalContent content = Launches(1, 400 * kUs);
  content.tells_late = true;
  content.late_ns = 300 * kUs;
  CHECK_EQ(IdleNs(kPauses, stream, content, kMs), 300 * kUs);
  content.late_ns = 500 * kUs;
  CHECK_EQ(IdleNs(kPauses, stream, content, kMs), 400 * kUs);
  for (uint32_t i = 0; i < kLeast; ++i) Learn(Waited(5 * kUs, 20 * kUs));
  content.late_ns = 300 * kUs;
  CHECK_EQ(IdleNs(kPauses, stream, content, kMs), 325 * kUs);
}

// Probes whose call was late tell of intervals of which nobody knows which calls were.
void LateProbes() {
  Begin();
  Probe probe = Waited(10 * kUs, kMs);
  probe.is_late = true;
  CHECK_EQ(IdleBehindNs(kPauses, probe, 7 * kUs), 993 * kUs);
  CHECK_EQ(IdleBehindNs(kPauses, probe, 2 * kMs), 0);
  for (uint32_t i = 1; i < kLeast; ++i) Learn(Waited(5 * kUs, 20 * kUs));
  stream.mean_ns = 7 * kUs;
  Learn(probe);
  CHECK_EQ(stream.gaps.late.idle_ns, 993 * kUs);
  CHECK_EQ(stream.gaps.late.host_ns, kMs);
  const auto idle = [](MarkerReached reached, bool tells_late) {
    IntervalContent content = Launches(3, 400 * kUs);
    content.reached = reached;
    content.tells_late = tells_late;
    return IdleNs(kPauses, stream, content, kMs);
  };
  CHECK_EQ(idle(MarkerReached::kLater, true), 100 * kUs);
  CHECK_EQ(idle(MarkerReached::kLater, false), 400 * kUs * (993 + 70) / (1'000 + 280));
  CHECK_EQ(idle(MarkerReached::kUnknown, true), 100 * kUs);
  CHECK_EQ(idle(MarkerReached::kUnknown, false), 400 * kUs * (2 * 993 + 70) / (2'000 + 280));
  for (uint32_t i = 0; i < 10 * kProbes; ++i) Learn(Waited(5 * kUs, 20 * kUs));
  CHECK(stream.gaps.late.host_ns < kUs);  // forgotten
}

// When the next launch has come its time is added, and the probe is over.
void Ended() {
  Begin();
  stream.gaps.open = Waited(10 * kUs, 20 * kUs);
  stream.gaps.open.host_ns -= 15 * kUs;
  EndGap(kPauses, &stream, 15 * kUs);
  CHECK_EQ(stream.gaps.later.idle_ns, 10 * kUs);
  CHECK_EQ(stream.gaps.later.host_ns, 20 * kUs);
  CHECK_EQ(stream.gaps.open.gap_ns, 0);
}

// The part of the host's time that probes found, once there are enough of them.
void Idle() {
  Begin();
  const auto idle = [](uint64_t host_ns, uint64_t interval_ns = kMs) {
    return IdleNs(kPauses, stream, Launches(10, host_ns), interval_ns);
  };
  for (uint32_t i = 1; i < kLeast; ++i) {
    Learn(Waited(10 * kUs, 20 * kUs));
    CHECK_EQ(idle(200 * kUs), 0);
  }
  Learn(Waited(10 * kUs, 20 * kUs));
  CHECK_EQ(idle(200 * kUs), 100 * kUs);
  CHECK_EQ(idle(0), 0);
  // The host's time is no longer than the interval.
  const uint64_t most = 100 * kUs - PausesNs(kPauses, stream, Launches(10), 100 * kUs);
  CHECK_EQ(idle(kMs, 100 * kUs), 50 * kUs);
  for (uint32_t i = 0; i < 20 * kProbes; ++i) Learn({kMs, 20 * kUs, 0, 0, 0, 0, false, false});
  CHECK_EQ(idle(kMs, 100 * kUs), most);
  // The host's time up to a run's first launch is a pause already.
  stream.is_fresh = true;
  IntervalContent run = Launches(10, 20 * kUs);
  run.lead_ns = 8 * kUs;
  CHECK_EQ(IdleNs(kPauses, stream, run, kMs),
           12 * kUs * stream.gaps.later.idle_ns / stream.gaps.later.host_ns);
  run.lead_ns = 30 * kUs;
  CHECK_EQ(IdleNs(kPauses, stream, run, kMs), 0);
}

// Intervals whose marker was reached at once have more of it, if probes next to such markers do. A
// gap counts for the marker before it and for the one behind it.
void AtOnceOrLater() {
  Begin();
  const auto idle = [](MarkerReached reached) {
    IntervalContent content = Launches(10, 100 * kUs);
    content.reached = reached;
    return IdleNs(kPauses, stream, content, kMs);
  };
  for (uint32_t i = 0; i < kLeast; ++i) {
    Learn(Waited(16 * kUs, 20 * kUs), /*is_at_once=*/true);
    Learn(Waited(16 * kUs, 20 * kUs), /*is_at_once=*/true);
    Learn(Queued(20 * kUs), /*is_at_once=*/false);
    Learn(Queued(20 * kUs), /*is_at_once=*/false);
  }
  // Three of four gaps there are such in which the GPU waited for four fifths; here one of four is.
  CHECK_EQ(idle(MarkerReached::kAtOnce), 60 * kUs);
  CHECK_EQ(idle(MarkerReached::kLater), 20 * kUs);
  CHECK_EQ(idle(MarkerReached::kUnknown), 40 * kUs);
  // Nothing is known of the one sort, of which no gap was seen.
  Begin();
  for (uint32_t i = 0; i < kLeast; ++i) Learn(Waited(16 * kUs, 20 * kUs));
  CHECK_EQ(idle(MarkerReached::kAtOnce), 0);
  CHECK_EQ(idle(MarkerReached::kLater), 80 * kUs);
  // Pauses of seconds.
  Begin();
  for (uint32_t i = 0; i < kProbes; ++i) Learn(Waited(3'000 * kMs, 4'000 * kMs));
  const uint64_t waited_ns = IdleNs(kPauses, stream, Launches(2, 4'000 * kMs), 5'000 * kMs);
  CHECK(waited_ns > 2'999 * kMs && waited_ns < 3'001 * kMs);
  // Without a next marker nothing counts twice.
  const uint64_t host_ns = stream.gaps.later.host_ns;
  CountLastGap(&stream, false);
  CHECK_EQ(stream.gaps.later.host_ns, host_ns);
}

// What the GPU waited for a launch by itself is known, if that runs when its marker is recorded.
void Single() {
  Begin();
  IntervalContent unknown = Launches(1, 30 * kUs);
  unknown.is_single = true;
  CHECK_EQ(IdleNs(kPauses, stream, unknown, kMs), 0);  // as of any, without probes
  for (uint32_t i = 0; i < kLeast; ++i) Learn(Waited(10 * kUs, 20 * kUs));
  const auto idle = [](IntervalContent content) { return IdleNs(kPauses, stream, content, kMs); };
  IntervalContent content = Launches(1, 30 * kUs);
  CHECK_EQ(idle(content), 15 * kUs);
  content.is_single = true;
  CHECK_EQ(idle(content), 30 * kUs);
  content.reached = MarkerReached::kUnknown;
  CHECK_EQ(idle(content), 15 * kUs);
}

// Where each launch has a marker, none came far behind the one before: only short gaps count, but
// for calls that took long. Markers lie in what the GPU waits.
void Dense() {
  Begin();
  for (uint32_t i = 0; i < kLeast; ++i) {
    Learn(Waited(6 * kUs, 10 * kUs));
    Learn(Waited(6 * kUs, kTuning.behind_ns));  // no short one
    Learn(Waited(86 * kUs, 90 * kUs));
  }
  IntervalContent content = Launches(4, 100 * kUs);
  CHECK_EQ(IdleNs(kPauses, stream, content, kMs), 100 * kUs * (6 + 6 + 86) / (10 + 20 + 90));
  content.markers = 2;
  CHECK_EQ(IdleNs(kPauses, stream, content, kMs),
           100 * kUs * (6 + 6 + 86) / (10 + 20 + 90) - 2 * kPauses.marker_gap_ns);
  content.markers = 3;
  CHECK_EQ(IdleNs(kPauses, stream, content, kMs), 60 * kUs - 3 * kPauses.marker_gap_ns);
  content.late_ns = 40 * kUs;
  CHECK_EQ(IdleNs(kPauses, stream, content, kMs), 40 * kUs + 36 * kUs - 3 * kPauses.marker_gap_ns);
  content.late_ns = kMs;  // no more than all
  CHECK_EQ(IdleNs(kPauses, stream, content, kMs), 100 * kUs - 3 * kPauses.marker_gap_ns);
  content.late_ns = 0;
  content.host_ns = 10 * kUs;
  CHECK_EQ(IdleNs(kPauses, stream, content, kMs), 0);
  content.host_ns = 100 * kUs;
  content.launches = 1;
  content.markers = 0;
  CHECK_EQ(IdleNs(kPauses, stream, content, kMs), 100 * kUs * (6 + 6 + 86) / (10 + 20 + 90));
  Begin();
  for (uint32_t i = 0; i < kLeast; ++i) Learn(Waited(86 * kUs, 90 * kUs));
  content.launches = 4;
  content.markers = 3;
  CHECK_EQ(IdleNs(kPauses, stream, content, kMs), 0);  // no short one is known
}

// A launch is as long behind the one before as the GPU or the host takes, whichever is slower.
void Apart() {
  Begin(10 * kUs);
  for (uint32_t i = 1; i < kLeast; ++i) Learn(Waited(20 * kUs, 30 * kUs));
  CHECK_EQ(ApartNs(stream), 10 * kUs);  // not enough probes
  Learn(Waited(20 * kUs, 30 * kUs));
  CHECK_EQ(ApartNs(stream), 30 * kUs);
  stream.ns_per_launch = 70 * kUs;
  CHECK_EQ(ApartNs(stream), 70 * kUs);
}

// Between the launches of a run the GPU may have waited where the host took two thirds of it.
void HostBound() {
  CHECK(!MayWaitForHost(4, 60 * kUs, 90 * kUs));
  CHECK(MayWaitForHost(4, 60 * kUs + 1, 90 * kUs));
  CHECK(!MayWaitForHost(1, 200 * kUs, 100 * kUs));  // one launch has nothing between
}

// Long launches are probed until half as many are known as are remembered: what is charged of their
// pauses makes launches look long.
void LongLaunches() {
  Begin();
  NoteMayIdle(&stream, /*is_alone=*/true, /*may_idle=*/true);
  // Those that are marked nearly one by one follow each other no sooner.
  stream.every = 80;
  CHECK_EQ(EveryProbed(stream), 80 / kLeast);
  stream.mean_ns = kTuning.long_launch_ns;
  CHECK_EQ(EveryProbed(stream), 80);
  for (uint32_t i = 0; i < kProbes / 2; ++i) {
    CHECK(IsProbed(stream));
    Learn(Waited(18 * kUs, 20 * kUs));
  }
  CHECK(!IsProbed(stream));
  stream.mean_ns = kTuning.long_launch_ns - 1;
  CHECK(IsProbed(stream));
}

// Probes cost markers: only where the host may be slower, and fewer where they find nothing.
void Due() {
  Begin();
  CHECK(!IsProbed(stream));
  NoteMayIdle(&stream, /*is_alone=*/true, /*may_idle=*/true);
  // Those that follow are as well, though the GPU may not have waited in them.
  for (uint32_t i = 0; i < kTuning.probed_behind; ++i) {
    CHECK(IsProbed(stream));
    NoteMayIdle(&stream, /*is_alone=*/true, /*may_idle=*/false);
  }
  CHECK(!IsProbed(stream));
  NoteMayIdle(&stream, /*is_alone=*/true, /*may_idle=*/false);
  CHECK(!IsProbed(stream));
  // Beside other streams nothing tells whose time it is.
  NoteMayIdle(&stream, /*is_alone=*/true, /*may_idle=*/true);
  NoteMayIdle(&stream, /*is_alone=*/false, /*may_idle=*/false);
  CHECK(!IsProbed(stream));
  Begin();
  const auto count = [](bool is_behind = false, bool is_far = false) {
    int due = 0;
    for (int i = 0; i < 100; ++i) due += IsProbeDue(&stream, is_behind, is_far) ? 1 : 0;
    return due;
  };
  // At first each one, until so many told nothing that there may be none.
  CHECK_EQ(count(), kProbes + (100 - kProbes) / 4);
  for (uint32_t i = 0; i < kProbes; ++i) Learn(Queued(20 * kUs));
  CHECK_EQ(count(), 25);
  for (uint32_t i = 0; i < kProbes; ++i) Learn(Waited(18 * kUs, 20 * kUs));
  CHECK_EQ(count(), 100);
  // Far from the limit it matters less what they find.
  CHECK_EQ(count(/*is_behind=*/false, /*is_far=*/true), 25);
  // Behind a hold each launch may have a marker, and be a probe.
  stream.marks_each = true;
  CHECK_EQ(count(/*is_behind=*/true), 0);
  CHECK_EQ(count(/*is_behind=*/false), 100);
  stream.marks_each = false;
  CHECK_EQ(count(/*is_behind=*/true), 100);
  Begin();
  stream.marks_each = true;
  CHECK_EQ(count(/*is_behind=*/true), kProbes);  // nothing is known yet
  stream.marks_each = false;
  // The first ones come soon, but where each launch is waited for.
  Begin();
  stream.every = 80;
  CHECK_EQ(EveryProbed(stream), 80 / kLeast);
  stream.waited.is_first = true;
  CHECK_EQ(EveryProbed(stream), 80);
  stream.waited.is_first = false;
  for (uint32_t i = 0; i < kLeast; ++i) Learn(Queued(20 * kUs));
  CHECK_EQ(EveryProbed(stream), 80);
  stream.every = 1;
  Begin();
  CHECK_EQ(EveryProbed(stream), 1);
}

// The mean is over some hundred launches; what is foretold so often in a row is steady.
void Means() {
  Begin(10 * kUs);
  LearnMean(&stream, 10, 100 * kUs, 80 * kUs);
  CHECK_EQ(stream.mean_ns, 8 * kUs);
  CHECK_EQ(stream.steady, 1);
  LearnMean(&stream, 30, 300 * kUs, 300 * kUs);
  CHECK_EQ(stream.mean_ns, 380 * kUs / 40);
  for (uint32_t i = 0; i < 2 * kTuning.enough; ++i) LearnMean(&stream, 1, 60 * kUs, 60 * kUs);
  CHECK_EQ(stream.steady, kTuning.enough);  // 50 us more than foretold
  LearnMean(&stream, 1, 60 * kUs + 1, 60 * kUs);
  CHECK_EQ(stream.steady, 0);
  LearnMean(&stream, 1'000, 10 * kMs, 5 * kMs);
  CHECK_EQ(stream.mean_ns, 5 * kUs);  // so many leave nothing of those before
  // An eighth off is little of a long interval.
  LearnMean(&stream, 100, 1'142 * kUs, kMs);
  CHECK(stream.steady != 0);
  LearnMean(&stream, 100, 1'143 * kUs, kMs);
  CHECK_EQ(stream.steady, 0);
  Begin();
  LearnMean(&stream, 0, 0, 0);
  CHECK(stream.mean_ns != 0);
}

// The GPU waited at most from when it was done with the marker before.
void CaughtUp() {
  Begin();
  stream.run_begin_ns = kMs;
  CHECK_EQ(CaughtUpNs(stream, 50 * kUs, kMs + 80 * kUs), 50 * kUs);
  CHECK_EQ(CaughtUpNs(stream, 50 * kUs, kMs + 20 * kUs), 20 * kUs);
  CHECK_EQ(CaughtUpNs(stream, 50 * kUs, kMs), 0);
  CHECK_EQ(CaughtUpNs(stream, 50 * kUs, kMs - kUs), 0);
}

// With other numbers the same rules hold: nothing reads kTuning behind their back.
void OtherNumbers() {
  Tuning tuning;
  tuning.least_probes = 2;
  tuning.probes = 2;
  tuning.probed_behind = 1;
  tuning.many = 1;
  Begin(15 * kUs);
  NoteMayIdle(&stream, true, true, tuning);
  CHECK(IsProbed(stream));
  NoteMayIdle(&stream, true, false, tuning);
  CHECK(!IsProbed(stream));
  stream.ns_per_launch = 5 * kUs;
  for (int i = 0; i < 3; ++i) Learn(Waited(10 * kUs, 40 * kUs), false, tuning);
  CHECK_EQ(stream.gaps.probes, 2);
  CHECK_EQ(IdleNs(kPauses, stream, Launches(1, 40 * kUs), kMs), 0);
  CHECK(IdleNs(kPauses, stream, Launches(1, 40 * kUs), kMs, tuning) != 0);
  LearnMean(&stream, 1, 9 * kUs, 9 * kUs, tuning);
  LearnMean(&stream, 1, 3 * kUs, 3 * kUs, tuning);
  CHECK_EQ(stream.mean_ns, 3 * kUs);
}

constexpr Case kCases[] = {{"pauses", Pauses},
                           {"probes", Probes},
                           {"long_calls", LongCalls},
                           {"late_calls", LateCalls},
                           {"late_probes", LateProbes},
                           {"ended", Ended},
                           {"at_once_or_later", AtOnceOrLater},
                           {"idle", Idle},
                           {"single", Single},
                           {"dense", Dense},
                           {"apart", Apart},
                           {"host_bound", HostBound},
                           {"long_launches", LongLaunches},
                           {"due", Due},
                           {"means", Means},
                           {"caught_up", CaughtUp},
                           {"other_numbers", OtherNumbers}};

}  // namespace

int main(int argc, char** argv) { return argc == 2 ? RunCase(kCases, argv[1]) : 2; }
