// What runs, and for how long it will, by what runs took before; each case a promise.
// sources: device/markers/*.cpp
// flags: -pthread
//
//   marker_forecast CASE
//
// Ends with 1 and says which line did not hold.
#include "base/tuning.h"
#include "marker_world.h"

namespace {

using namespace markertest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kNow = 1'000'000 * kMs;
constexpr uint16_t kMarker = 1;  // of the first stream; the next one's is the next

// Streams of which it is known when they began to run, and that their launches take a millisecond.
struct World {
  std::unique_ptr<Markers, Free> owned = NewMarkers();
  Markers* markers = owned.get();

  // `marked` launches lie before its only marker, and `unmarked` behind that.
  MarkedStream* Stream(uint16_t number, uint64_t ran_ns, uint32_t marked, uint32_t unmarked) {
    MarkedStream* stream = markers->streams.For(Handle(number));
    markers->streams.SetActive(stream, true);
    stream->BeginAt(kNow - ran_ns);
    stream->ns_per_launch = stream->mean_ns = kMs;
    stream->is_trusted = true;
    stream->steady = kTuning.enough;
    stream->queued = marked;
    stream->word.fetch_add(unmarked);
    if (marked == 0) return stream;
    stream->first = stream->last = static_cast<uint16_t>(kMarker + number);
    markers->pool[stream->first].launches = marked;
    return stream;
  }
  Marker& MarkerOf(const MarkedStream* stream) { return markers->pool[stream->first]; }
};

// A stream runs kernels from a begin that was seen to the end of its launches.
void Runs() {
  World world;
  CHECK(!KernelsRun(world.markers, 0));
  MarkedStream* stream = world.Stream(1, 0, 0, 3);
  CHECK(KernelsRun(world.markers, 0) && !KernelsRun(world.markers, 1));
  stream->is_timed = false;
  CHECK(!KernelsRun(world.markers, 0));
  stream->is_timed = true;
  stream->word.fetch_sub(3);
  CHECK(!KernelsRun(world.markers, 0));

  MarkedStream* marked = world.Stream(2, 0, 3, 0);
  CHECK(KernelsRun(world.markers, 0));
  world.MarkerOf(marked).begins = true;  // behind what is no kernel
  CHECK(!KernelsRun(world.markers, 0));
}

// Of several streams the one with the shortest launches tells; what is not known does not.
void Shortest() {
  World world;
  CHECK(LaunchNs(world.markers, 0) == 0);
  world.Stream(1, 0, 0, 1)->mean_ns = 5 * kMs;
  world.Stream(2, 0, 0, 1)->mean_ns = 0;
  MarkedStream* other = world.Stream(3, 0, 0, 1);
  CHECK(LaunchNs(world.markers, 0) == kMs);
  other->ordinal = 1;
  CHECK(LaunchNs(world.markers, 0) == 5 * kMs && LaunchNs(world.markers, 1) == kMs);
  world.markers->streams.SetActive(other, false);
  CHECK(LaunchNs(world.markers, 1) == 0);

  for (const uint64_t unknown : {0, 1}) {  // in either order of their places
    World two;
    two.Stream(1, 0, 0, 1)->mean_ns = unknown == 0 ? 0 : 5 * kMs;
    two.Stream(2, 0, 0, 1)->mean_ns = unknown == 1 ? 0 : 5 * kMs;
    CHECK(LaunchNs(two.markers, 0) == 5 * kMs);
  }
}

// The oldest marker is expected when its launches are done; overdue, an eighth of its time later.
void Expected() {
  World world;
  CHECK(ExpectedNs(world.markers, kNow) == UINT64_MAX);
  world.Stream(1, kMs, 0, 5);
  CHECK(ExpectedNs(world.markers, kNow) == UINT64_MAX);  // there is no marker
  MarkedStream* stream = world.Stream(2, kMs, 5, 5);
  CHECK(ExpectedNs(world.markers, kNow) == 4 * kMs);
  CHECK(ExpectedNs(world.markers, kNow + 4 * kMs) == 5 * kMs / 8);
  CHECK(ExpectedNs(world.markers, kNow + 15 * kMs) == 2 * kMs);
  world.Stream(3, kMs, 3, 0);
  CHECK(ExpectedNs(world.markers, kNow) == 2 * kMs);  // the sooner one
  // What was not seen to begin may be over at any moment.
  world.MarkerOf(stream).begins = true;
  CHECK(ExpectedNs(world.markers, kNow) == 0);
  world.MarkerOf(stream).begins = false;
  stream->is_timed = false;
  CHECK(ExpectedNs(world.markers, kNow) == 0);
}

// The first stream that is done, with all that it has queued; 0 where one of them is not known.
void Left() {
  World world;
  CHECK(LeftNs(world.markers, 0, kNow) == 0);
  MarkedStream* stream = world.Stream(1, kMs, 5, 5);
  CHECK(LeftNs(world.markers, 0, kNow) == 9 * kMs && LeftNs(world.markers, 1, kNow) == 0);
  CHECK(LeftNs(world.markers, 0, kNow + 20 * kMs) == 0);
  // A mean of longer ones that were before says nothing, and one long launch does not.
  stream->mean_ns = 4 * kMs;
  CHECK(LeftNs(world.markers, 0, kNow) == 9 * kMs);
  stream->mean_ns = kMs;
  stream->ns_per_launch = 2 * kMs;
  CHECK(LeftNs(world.markers, 0, kNow) == 9 * kMs);
  stream->ns_per_launch = kMs;
  world.Stream(2, 0, 0, 3);
  CHECK(LeftNs(world.markers, 0, kNow) == 3 * kMs);
  for (const bool begins : {false, true}) {
    stream->is_trusted = begins;
    world.MarkerOf(stream).begins = begins;
    CHECK(LeftNs(world.markers, 0, kNow) == 0);
  }
  world.MarkerOf(stream).begins = false;
  CHECK(LeftNs(world.markers, 0, kNow) == 3 * kMs);
  stream->is_timed = false;
  CHECK(LeftNs(world.markers, 0, kNow) == 0);
}

// The last stream that is done, where all of them took lately what was foretold.
void Ends() {
  World world;
  MarkedStream* stream = world.Stream(1, kMs, 5, 5);
  CHECK(EndsNs(world.markers, 0, kNow) == kNow + 9 * kMs);
  world.Stream(2, 0, 0, 12);
  CHECK(EndsNs(world.markers, 0, kNow) == kNow + 12 * kMs);
  CHECK(EndsNs(world.markers, 1, kNow) == 0);
  stream->steady = kTuning.enough - 1;
  CHECK(EndsNs(world.markers, 0, kNow) == 0);
  stream->steady = kTuning.enough;
  stream->is_trusted = false;
  CHECK(EndsNs(world.markers, 0, kNow) == 0);
  stream->is_trusted = true;
  stream->is_timed = false;
  CHECK(EndsNs(world.markers, 0, kNow) == 0);
  stream->is_timed = true;
  world.MarkerOf(stream).begins = true;
  CHECK(EndsNs(world.markers, 0, kNow) == 0);
  world.MarkerOf(stream).begins = false;
  CHECK(EndsNs(world.markers, 0, kNow) != 0);
  // What takes longer than it should may take any time.
  const uint64_t late_ns = 9 * kMs + kTuning.clock_doubt_ns;
  CHECK(EndsNs(world.markers, 0, kNow + late_ns - 1) == kNow + 12 * kMs);
  CHECK(EndsNs(world.markers, 0, kNow + late_ns) == 0);
}

constexpr Case kCases[] = {
    {"runs", Runs}, {"shortest", Shortest}, {"expected", Expected}, {"left", Left}, {"ends", Ends}};

}  // namespace

int main(int argc, char** argv) { return RunCase(kCases, argc, argv); }
