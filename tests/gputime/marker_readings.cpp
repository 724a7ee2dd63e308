// What is learned from markers that were reached, over a driver and clocks that the test sets.
// Fails with the place that was not true.
// sources: device/markers/*.cpp
// flags: -pthread
//
//   marker_readings CASE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <map>

#include "device/markers/gaps.h"
#include "marker_world.h"

namespace {

using namespace markertest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint64_t kUs = 1'000;
constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kSecond = 1'000 * kMs;

uint64_t raw_ns = kSecond;  // the clock that nobody slews, ...
uint64_t slewed_ns = 0;     // ... and by how much the monotonic one is ahead of it
uint64_t later_ns = 0;      // so long behind its recording is an event reached
std::map<CUevent, uint64_t> reached;

std::unique_ptr<Markers, Free> MarkersOfClock() {
  Set<CUresult(CUevent, CUstream)>(kSym_cuEventRecord, [](CUevent event, CUstream) {
    reached[event] = raw_ns + later_ns;
    return CUDA_SUCCESS;
  });
  Set<CUresult(float*, CUevent, CUevent)>(
      kSym_cuEventElapsedTime, [](float* ms, CUevent begin, CUevent end) {
        const auto ns = static_cast<int64_t>(reached[end] - reached[begin]);
        *ms = static_cast<float>(ns) / static_cast<float>(kMs);
        return CUDA_SUCCESS;
      });
  return NewMarkers();
}

// A stream whose run begins with a marker, which is reached at once.
MarkedStream* BegunStream(Markers* markers) {
  MarkedStream* stream = markers->streams.For(Handle(1));
  later_ns = 0;
  CHECK(BeginRun(markers, stream, Handle(1), {}, false) == Begun::kYes);
  CHECK(stream->first != kNoMarker);
  return stream;
}

void Look(Markers* markers, BusyList* busy) {
  CollectAll(markers, NowNs(), /*captures=*/false, busy);
}

// From here on an event is over when its time has come.
void EventsTakeTime() {
  Set<CUresult(CUevent)>(kSym_cuEventQuery, [](CUevent event) {
    return reached[event] <= raw_ns ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}

// A launch with a marker before it and one behind. Its call takes so long, and so long behind that
// the GPU is done with it. The next launch has come. Returns what is known then.
LaunchGaps GapsOf(uint64_t call_ns, uint64_t behind_ns) {
  const auto markers = MarkersOfClock();
  MarkedStream* stream = BegunStream(markers.get());
  markers->pool[stream->first].probes = true;
  raw_ns += call_ns;
  stream->word.fetch_add(1);
  later_ns = behind_ns;
  MarkInTurn(markers.get(), stream);
  CHECK(stream->last != stream->first);
  markers->pool[stream->last].next_ns = kUs;
  raw_ns += behind_ns + kMs;
  BusyIntervals<8> busy;
  Look(markers.get(), &busy);
  CHECK(stream->first == kNoMarker);
  return stream->gaps;
}

bool IsAbout(uint64_t ns, uint64_t told_ns) {
  return ns + 2 * kUs > told_ns && ns < told_ns + 2 * kUs;
}

// A call that took long, and whose kernel was done by then: the GPU waited for it. A kernel that
// ran for longer tells.
void LongCalls() {
  CHECK(GapsOf(39 * kUs, 0).probes == 1);
  const LaunchGaps late = GapsOf(200 * kUs, 15 * kUs);
  CHECK(late.probes == 1 && IsAbout(late.late.idle_ns, 200 * kUs) && late.later.host_ns == 0);
  const LaunchGaps ran = GapsOf(200 * kUs, 25 * kUs);
  CHECK(ran.probes == 1 && ran.later.idle_ns < 190 * kUs);
}

// A launch into a stream in which each has a marker, of which probes have told.
struct Sparse {
  std::unique_ptr<Markers, Free> markers = MarkersOfClock();
  MarkedStream* stream = BegunStream(markers.get());

  Sparse() {
    stream->word.fetch_or(MarkedStream::kSparse);
    stream->gaps.probes = kTuning.probes;
    stream->gaps.at_once = stream->gaps.later = {3 * kUs, 4 * kUs};
    stream->gaps.brief = {kUs, 4 * kUs};
    stream->ns_per_launch = 5 * kUs;
    stream->mean_ns = 10 * kUs;
    stream->mean_of = kTuning.many;
    stream->is_trusted = true;
  }

  // Its call took so long. Returns its marker.
  const Marker& Launch(uint64_t call_ns) {
    stream->came_ns = NowNs();
    raw_ns += call_ns;
    stream->word.fetch_add(1);
    MarkInTurn(markers.get(), stream);
    stream->word.fetch_or(MarkedStream::kSparse);
    return markers->pool[stream->last];
  }
};

// Of all that the next look tells the GPU waited so long.
uint64_t IdleAtLook(Markers* markers) {
  BusyIntervals<8> busy;
  Look(markers, &busy);
  uint64_t idle_ns = 0;
  for (const BusyInterval& ran : busy) idle_ns += ran.idle_ns;
  return idle_ns;
}

// Where each launch has a marker, calls that took long are told apart, without holds.
void LateCalls() {
  Sparse sparse;
  CHECK(sparse.Launch(15 * kUs).late_ns == 0);
  CHECK(IsAbout(sparse.Launch(500 * kUs).late_ns, 490 * kUs));
  sparse.stream->gaps.held_ns = 300 * kUs;
  CHECK(IsAbout(sparse.Launch(500 * kUs).late_ns, 190 * kUs));
  sparse.stream->gaps.held_ns = 490 * kUs;
  const Marker& last = sparse.Launch(500 * kUs);
  CHECK(last.late_ns == 0 && last.tells_late);
  // Of what is not late the GPU waited for three fourths, as probes tell.
  CHECK(IsAbout(IdleAtLook(sparse.markers.get()), (490 + 190 + (15 + 10 + 10 + 10) * 3 / 4) * kUs));
}

// Where launches wait for their kernels the GPU waits in none of a call, and between any two.
void CallsThatBlock() {
  Sparse sparse;
  sparse.markers->calls_block = true;
  const Marker& blocked = sparse.Launch(500 * kUs);
  CHECK(blocked.host_ns == 0 && blocked.late_ns == 0 && !blocked.tells_late);
  CHECK(IdleAtLook(sparse.markers.get()) == 0);
  for (const bool blocks : {false, true}) {
    Sparse next;
    next.stream->came_ns = NowNs();
    next.markers->calls_block = blocks;
    CHECK(CameToIdle(next.markers.get(), next.stream, Handle(1), false) == blocks);
    next.stream->spaced_ns = NowNs();
    next.stream->word.fetch_add(1);
    MarkInTurn(next.markers.get(), next.stream);
    CHECK(((next.stream->word & MarkedStream::kSparse) != 0) == blocks);
  }
}

// A launch that is over long behind its call may have run in it, while its thread stood still: no
// more is idle than probes tell. Until that is known nothing is told.
void RanOn() {
  Sparse sparse;
  EventsTakeTime();
  later_ns = 200 * kUs;
  sparse.Launch(500 * kUs);
  raw_ns += 30 * kUs;
  BusyIntervals<8> early;
  Look(sparse.markers.get(), &early);
  CHECK(early.begin() == early.end());
  raw_ns += 140 * kUs;
  BusyIntervals<8> running;
  Look(sparse.markers.get(), &running);
  CHECK(running.begin() != running.end());
  raw_ns += 60 * kUs;
  const uint64_t idle_ns = running.begin()->idle_ns + IdleAtLook(sparse.markers.get());
  CHECK(IsAbout(idle_ns, 500 * kUs * 3 / 4));
}

// Others put a marker when they look, which is not behind a call.
void LooksAreLate() {
  Sparse sparse;
  Set<CUresult(CUstream)>(kSym_cuStreamQuery, [](CUstream) { return CUDA_ERROR_NOT_READY; });
  sparse.stream->came_ns = NowNs();
  raw_ns += 500 * kUs;
  sparse.stream->word.fetch_add(1);
  BusyIntervals<8> busy;
  Look(sparse.markers.get(), &busy);
  const Marker& marker = sparse.markers->pool[sparse.stream->last];
  CHECK(marker.launches == 1 && marker.host_ns > 490 * kUs);
  CHECK(marker.late_ns == 0 && !marker.tells_late);
}

// The watcher saw the stream idle while a launch was under way: all since then is the host's time.
void IdleInACall() {
  for (const uint64_t call_ns : {15 * kUs, 800 * kUs}) {
    const auto markers = MarkersOfClock();
    MarkedStream* stream = BegunStream(markers.get());
    BusyIntervals<8> busy;
    for (int i = 0; i < 3; ++i) Look(markers.get(), &busy);
    CHECK((stream->word & MarkedStream::kRunning) == 0);
    stream->mean_ns = 10 * kUs;
    raw_ns += call_ns;
    stream->word.fetch_add(1);
    CHECK(BeginRun(markers.get(), stream, Handle(1), {}, false) == Begun::kYes);
    const Marker& marker = markers->pool[stream->last];
    CHECK(marker.launches == 1 && IsAbout(marker.host_ns, call_ns));
    CHECK(marker.tells_late);
    CHECK(marker.late_ns == LateNs(*stream, marker.host_ns));
    CHECK((marker.late_ns != 0) == (call_ns > kTuning.behind_ns));
    CHECK(stream->run_begin_ns == stream->idle_since_ns);
  }
}

// The monotonic clock was slewed by a second between two markers. Bounds by themselves would take
// it for a clock that went wrong, and the second marker for one that was reached a second ago.
void Slewed() {
  const auto markers = MarkersOfClock();
  for (const uint64_t by_ns : {0 * kSecond, kSecond}) {
    slewed_ns += by_ns;
    const uint64_t before_ns = NowNs();
    MarkedStream* stream = BegunStream(markers.get());
    raw_ns += 5 * kMs;
    BusyIntervals<8> busy;
    Look(markers.get(), &busy);
    CHECK(stream->run_begin_ns >= before_ns && stream->run_begin_ns < before_ns + 10 * kUs);
    stream->word.fetch_and(~MarkedStream::kRunning);
    markers->streams.SetActive(stream, false);
  }
}

// What the GPU waited for the host is told apart from the pauses between kernels, which belong to
// them: neighbours may have had the GPU in the one and not in the other.
void IdleIsTold() {
  const auto markers = MarkersOfClock();
  MarkedStream* stream = BegunStream(markers.get());
  stream->gaps.probes = kTuning.probes;
  stream->gaps.at_once = stream->gaps.later = {3 * kUs, 4 * kUs};
  stream->word.fetch_add(4);
  raw_ns += kMs;
  MarkInTurn(markers.get(), stream);
  BusyIntervals<8> busy;
  Look(markers.get(), &busy);
  CHECK(busy.begin() + 1 == busy.end());
  const BusyInterval& ran = *busy.begin();
  CHECK(ran.idle_ns > 740 * kUs && ran.idle_ns < 760 * kUs);
  CHECK(ran.begin_ns - ran.since_ns > ran.idle_ns);
  CHECK(ran.begin_ns - ran.since_ns < ran.idle_ns + 40 * kUs);
}

// Four launches in a millisecond, whose marker was recorded so long ago, and is reached two
// milliseconds behind that. Of such time probes told that the GPU waits for so much.
struct Running {
  std::unique_ptr<Markers, Free> markers = MarkersOfClock();
  MarkedStream* stream = BegunStream(markers.get());

  Running(GapShare at_once, GapShare later, uint64_t ago_ns = kMs) {
    stream->gaps.probes = kTuning.probes;
    stream->gaps.at_once = at_once;
    stream->gaps.later = later;
    EventsTakeTime();
    later_ns = 2 * kMs;
    stream->word.fetch_add(4);
    raw_ns += kMs;
    MarkInTurn(markers.get(), stream);
    raw_ns += ago_ns;
  }
};

// What a look took for the GPU's waiting while it worked, and was none, is told in the end, too.
void SeemedIdle() {
  const Running running({3 * kUs, 4 * kUs}, {3 * kUs, 4 * kUs});
  BusyIntervals<8> busy;
  Look(running.markers.get(), &busy);
  CHECK(busy.begin() != busy.end() && IsAbout(busy.begin()->idle_ns, kMs * 3 / 4));
  running.stream->gaps.later = {0, 4 * kUs};
  raw_ns += 2 * kMs;
  Look(running.markers.get(), &busy);
  uint64_t told_ns = 0;
  for (const BusyInterval& ran : busy) {
    for (const BusyInterval& other : busy) {
      CHECK(&ran == &other || ran.end_ns <= other.begin_ns || other.end_ns <= ran.begin_ns);
    }
    told_ns += ran.end_ns - ran.begin_ns;
  }
  CHECK(told_ns < 3 * kMs && told_ns > 3 * kMs - 40 * kUs);
}

// A marker that was not reached some time behind its recording had work in front of it then. Before
// that nobody knows: the mean of both counts, of all but what clocks are in doubt about.
void SurelyLater() {
  const Running running({3 * kUs, 4 * kUs}, {kUs, 4 * kUs});
  CHECK(IsAbout(IdleAtLook(running.markers.get()), kMs / 4));
  const Running fresh({3 * kUs, 4 * kUs}, {kUs, 4 * kUs}, kUs);
  const uint64_t idle_ns = IdleAtLook(fresh.markers.get());
  CHECK(idle_ns > 400 * kUs && idle_ns < 450 * kUs);
}

// Launches without a marker that a look finds done: the host was the slower one.
void FoundDone() {
  const auto markers = MarkersOfClock();
  MarkedStream* stream = BegunStream(markers.get());
  BusyIntervals<8> busy;
  Look(markers.get(), &busy);
  stream->gaps.probes = kTuning.probes;
  stream->gaps.at_once = {3 * kUs, 4 * kUs};
  stream->gaps.later = {0, 4 * kUs};
  stream->ns_per_launch = kMs;
  stream->word.fetch_add(4);
  raw_ns += kMs;
  CHECK(IsAbout(IdleAtLook(markers.get()), kMs * 3 / 4));
  CHECK((stream->word & MarkedStream::kRunning) == 0);
}

constexpr Case kCases[] = {{"calls_that_block", CallsThatBlock},
                           {"found_done", FoundDone},
                           {"idle_in_a_call", IdleInACall},
                           {"idle_is_told", IdleIsTold},
                           {"late_calls", LateCalls},
                           {"long_calls", LongCalls},
                           {"looks_are_late", LooksAreLate},
                           {"ran_on", RanOn},
                           {"seemed_idle", SeemedIdle},
                           {"slewed", Slewed},
                           {"surely_later", SurelyLater}};

}  // namespace

// In place of the C library's: time passes where the test says so, and a little at each question.
extern "C" int clock_gettime(clockid_t clock, timespec* now) {
  if (clock != CLOCK_MONOTONIC && clock != CLOCK_MONOTONIC_RAW) {
    return static_cast<int>(syscall(SYS_clock_gettime, clock, now));
  }
  raw_ns += 20;
  const uint64_t ns = raw_ns + (clock == CLOCK_MONOTONIC ? slewed_ns : 0);
  now->tv_sec = static_cast<time_t>(ns / kSecond);
  now->tv_nsec = static_cast<long>(ns % kSecond);
  return 0;
}

int main(int argc, char** argv) { return RunCase(kCases, argc, argv); }
