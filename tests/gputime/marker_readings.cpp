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

// A launch with a marker before it and one behind. Its call takes so long, and so long behind that
// the GPU is done with it. The next launch has come. Returns how many probes are known.
uint32_t ProbesOf(uint64_t call_ns, uint64_t behind_ns) {
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
  return stream->gaps.probes;
}

// Nobody knows whether a call took long by itself or waited for its kernel, which was done by then;
// a kernel that ran for longer tells.
void LongCalls() {
  CHECK(ProbesOf(39 * kUs, 0) == 1);
  CHECK(ProbesOf(200 * kUs, 0) == 0);
  CHECK(ProbesOf(200 * kUs, 15 * kUs) == 0);
  CHECK(ProbesOf(200 * kUs, 25 * kUs) == 1);
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

constexpr Case kCases[] = {
    {"idle_is_told", IdleIsTold}, {"long_calls", LongCalls}, {"slewed", Slewed}};

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
