// Whose place in the table of streams goes to another one, and what is told of launches behind the
// last marker, over a driver made of a few lines; each case a promise.
// sources: device/markers/*.cpp
// flags: -pthread
//
//   marker_places CASE
//
// Ends with 1 and says which line did not hold.

#include <vector>

#include "base/tuning.h"
#include "device/markers/looks.h"
#include "marker_world.h"

namespace {

using namespace markertest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr size_t kWays = 8;  // places that a stream may have
constexpr uint64_t kLaunchNs = 1'000'000;

// ---- places ----

// Streams that have the same places to choose from: those whose first choice is the same.
std::vector<CUstream> Rivals(size_t count) {
  std::vector<CUstream> rivals;
  ptrdiff_t shared = -1;
  for (uintptr_t number = 0; rivals.size() < count; ++number) {
    const auto markers = NewMarkers();
    const auto* place = reinterpret_cast<char*>(markers->streams.For(Handle(number)));
    const ptrdiff_t first = place - reinterpret_cast<char*>(markers.get());
    if (rivals.empty()) shared = first;
    if (first == shared) rivals.push_back(Handle(number));
  }
  last_stream = nullptr;
  return rivals;
}

struct Full {
  std::unique_ptr<Markers, Free> markers = NewMarkers();
  MarkedStream* places[kWays] = {};

  // Every place taken, by streams that run.
  explicit Full(const std::vector<CUstream>& rivals) {
    for (size_t i = 0; i < kWays; ++i) {
      places[i] = markers->streams.For(rivals[i]);
      CHECK(places[i] != nullptr);
      markers->streams.SetActive(places[i], true);
    }
  }
  StreamTable& streams() { return markers->streams; }
};

// While there is an empty place nobody loses one.
void EmptyFirst() {
  const std::vector<CUstream> rivals = Rivals(kWays);
  const auto markers = NewMarkers();
  MarkedStream* places[kWays];
  for (size_t i = 0; i < kWays; ++i) places[i] = markers->streams.For(rivals[i]);
  for (size_t i = 0; i < kWays; ++i) CHECK(StreamTable::IsOf(*places[i], rivals[i]));

  // Also when the last one is the empty one.
  markers->streams.SetActive(places[0], true);
  places[kWays - 1]->handle.store(0);
  CHECK(markers->streams.For(rivals[kWays - 1]) == places[kWays - 1]);
  for (size_t i = 0; i < kWays; ++i) CHECK(StreamTable::IsOf(*places[i], rivals[i]));
}

// What runs, or is being marked, is not forgotten.
void BusyStay() {
  const std::vector<CUstream> rivals = Rivals(kWays + 2);
  Full full(rivals);
  CHECK(full.streams().For(rivals[kWays]) == nullptr);
  for (size_t i = 0; i < kWays; ++i) CHECK(StreamTable::IsOf(*full.places[i], rivals[i]));

  MarkedStream* idle = full.places[3];
  full.streams().SetActive(idle, false);
  idle->recorder = Recorder::kOther;
  CHECK(full.streams().For(rivals[kWays]) == nullptr);
  CHECK(StreamTable::IsOf(*idle, rivals[3]));

  idle->recorder = Recorder::kNobody;
  CHECK(full.streams().For(rivals[kWays]) == idle);
  full.streams().SetActive(idle, true);
  CHECK(full.streams().For(rivals[kWays + 1]) == nullptr);
}

// A launch that was counted in another stream's place is taken back there, and nowhere else.
void TakenBackOnce() {
  const std::vector<CUstream> rivals = Rivals(kWays + 2);
  Full full(rivals);
  MarkedStream* place = full.places[5];
  full.streams().SetActive(place, false);
  CHECK(full.streams().For(rivals[kWays]) == place);
  const uint32_t counted_in = place->word.fetch_add(1);
  CHECK(full.streams().For(rivals[kWays + 1]) == place);
  place->word.fetch_add(2);

  place->Uncount(counted_in);
  CHECK(LaunchesIn(*place) == 2);

  place->Uncount(place->word.load());
  CHECK(LaunchesIn(*place) == 1);
  place->Uncount(place->word.load());
  place->Uncount(place->word.load());
  CHECK(LaunchesIn(*place) == 0 && Runs(*place) == Runs(*full.places[4]));
}

// ---- launches without a marker behind them ----

struct Looked {
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
  uint64_t before_ns = 0;
  uint64_t after_ns = 0;
  bool told = false;
};

Looked Look(Markers* markers, bool captures = false) {
  BusyIntervals<8> busy;
  Looked looked;
  looked.before_ns = NowNs();
  CollectAll(markers, looked.before_ns, captures, &busy);
  looked.after_ns = NowNs();
  looked.told = !busy.empty();
  if (!looked.told) return looked;
  CHECK(busy.end() - busy.begin() == 1);
  looked.begin_ns = busy.begin()->begin_ns;
  looked.end_ns = busy.begin()->end_ns;
  return looked;
}

// A stream that has run for so long, of which nothing is queued but launches without a marker.
MarkedStream* LaunchedInto(Markers* markers, uint32_t launches, uint64_t since_ns) {
  state = CUDA_SUCCESS;
  MarkedStream* stream = RunningStream(markers, 1, launches);
  CHECK(markers->streams.IsActive(stream));
  stream->BeginAt(NowNs() - since_ns);
  stream->ns_per_launch = kLaunchNs;
  return stream;
}

bool IsIdle(Markers* markers, const MarkedStream& stream) {
  return !Runs(stream) && LaunchesIn(stream) == 0 && !markers->streams.IsActive(&stream);
}

// Seen done, it ran for as long as its launches take, less the pauses between them; or until now,
// if that is less.
void DoneIsReckoned() {
  const auto markers = NewMarkers();
  MarkedStream* stream = LaunchedInto(markers.get(), 3, 100 * kLaunchNs);
  const uint64_t begin_ns = stream->run_begin_ns;
  const Looked looked = Look(markers.get());
  CHECK(looked.told && looked.begin_ns >= begin_ns && looked.end_ns <= begin_ns + 3 * kLaunchNs);
  CHECK(looked.end_ns - looked.begin_ns > 3 * kLaunchNs - kLaunchNs / 10);
  CHECK(IsIdle(markers.get(), *stream));

  const auto others = NewMarkers();
  MarkedStream* longer = LaunchedInto(others.get(), 300, 100 * kLaunchNs);
  const Looked later = Look(others.get());
  CHECK(later.told && later.end_ns >= later.before_ns && later.end_ns <= later.after_ns);
  CHECK(IsIdle(others.get(), *longer));

  // Nobody knows how long they take.
  const auto unknown = NewMarkers();
  LaunchedInto(unknown.get(), 3, 100 * kLaunchNs)->ns_per_launch = 0;
  CHECK(Look(unknown.get()).end_ns >= later.before_ns);
}

// Not done, it is paid for until shortly before now, and marked.
void RunningIsPaidFor() {
  const auto markers = NewMarkers();
  MarkedStream* stream = LaunchedInto(markers.get(), 3, 100 * kLaunchNs);
  state = CUDA_ERROR_NOT_READY;
  const Looked looked = Look(markers.get());
  CHECK(looked.told && looked.end_ns >= looked.before_ns - kTuning.clock_doubt_ns);
  CHECK(looked.end_ns <= looked.after_ns - kTuning.clock_doubt_ns);
  CHECK(markers->streams.IsActive(stream) && Runs(*stream));
  CHECK(stream->first != kNoMarker && LaunchesIn(*stream) == 0);
}

// Where a marker would wait for room there is none, and it runs on.
void FullRunsOn() {
  const auto markers = NewMarkers();
  MarkedStream* stream = LaunchedInto(markers.get(), 1'000, 100 * kLaunchNs);
  state = CUDA_ERROR_NOT_READY;
  CHECK(Look(markers.get()).told);
  CHECK(Runs(*stream) && LaunchesIn(*stream) == 1'000 && markers->streams.IsActive(stream));
}

// What is told of three short launches, seen done, once `change` was made.
template <typename Change>
uint64_t ToldNs(Change change) {
  constexpr uint64_t kShortNs = 50'000;
  const auto markers = NewMarkers();
  MarkedStream* stream = LaunchedInto(markers.get(), 3, 100 * kLaunchNs);
  stream->ns_per_launch = kShortNs;
  change(markers.get(), stream);
  const Looked looked = Look(markers.get());
  return looked.end_ns - looked.begin_ns;
}

// The pauses between a graph's steps are no kernels.
void StepsPause() {
  const uint64_t whole_ns = ToldNs([](Markers*, MarkedStream*) {});
  const uint64_t less_ns = ToldNs([](Markers*, MarkedStream* stream) { stream->inner_ns = 9'500; });
  CHECK(less_ns == whole_ns - 9'500);
}

// Where the GPU waits for the host half of the time, only the rest is told; not where other streams
// may have run meanwhile.
void WaitsForTheHost() {
  const auto wait = [](Markers*, MarkedStream* stream) {
    stream->gaps.probes = 64;
    stream->gaps.later = stream->gaps.at_once = {500'000, 1'000'000};
  };
  const uint64_t whole_ns = ToldNs([](Markers*, MarkedStream*) {});
  const uint64_t alone_ns = ToldNs(wait);
  const uint64_t beside_ns = ToldNs([&](Markers* markers, MarkedStream* stream) {
    markers->streams.SetActive(markers->streams.For(Handle(2)), true);
    wait(markers, stream);
  });
  CHECK(alone_ns > whole_ns / 4 && alone_ns < whole_ns - whole_ns / 4);
  CHECK(beside_ns == whole_ns);
}

// A kernel that waits for others on other GPUs is paid for a second long.
void MeetingEnds() {
  for (const bool meets : {false, true}) {
    const auto markers = NewMarkers();
    MarkedStream* stream = LaunchedInto(markers.get(), 1, 3'000 * kLaunchNs);
    stream->meets = meets;
    state = CUDA_ERROR_NOT_READY;
    const Looked looked = Look(markers.get());
    CHECK(looked.told);
    CHECK((looked.end_ns - looked.begin_ns > 1'500 * kLaunchNs) == !meets);
  }
}

// Of a run whose begin nobody knows nothing is told.
void UntimedIsNotTold() {
  const auto markers = NewMarkers();
  MarkedStream* stream = LaunchedInto(markers.get(), 3, 100 * kLaunchNs);
  stream->is_timed = false;
  CHECK(!Look(markers.get()).told);
  CHECK(IsIdle(markers.get(), *stream));
}

// Who waits for it tells what ran, unless it still runs.
void WaitersTell() {
  const auto markers = NewMarkers();
  MarkedStream* stream = LaunchedInto(markers.get(), 3, 100 * kLaunchNs);
  stream->awaited = true;
  CHECK(!Look(markers.get()).told);
  CHECK(Runs(*stream) && LaunchesIn(*stream) == 3 && markers->streams.IsActive(stream));

  state = CUDA_ERROR_NOT_READY;
  CHECK(Look(markers.get()).told);
}

// A run that the host's clock tells is not asked about while it may last.
void HostIsNotAsked() {
  const auto markers = NewMarkers();
  MarkedStream* stream = LaunchedInto(markers.get(), 3, 0);
  stream->by_host = true;
  stream->waited.longest_ns = 1'000 * kLaunchNs;
  stream->waited.host_begin_ns = NowNs();
  asked_relaxed = asked_otherwise = 0;
  CHECK(!Look(markers.get()).told && asked_relaxed + asked_otherwise == 0);
  CHECK(Runs(*stream) && LaunchesIn(*stream) == 3);

  stream->waited.host_begin_ns = NowNs() - 10'000 * kLaunchNs;
  CHECK(Look(markers.get()).told && asked_relaxed + asked_otherwise != 0);
}

// What another thread is about to mark is that one's.
void RecordingIsLeftAlone() {
  for (const uint32_t launches : {0u, 3u}) {
    const auto markers = NewMarkers();
    MarkedStream* stream = LaunchedInto(markers.get(), launches, 100 * kLaunchNs);
    stream->recorder = Recorder::kSelf;
    CHECK(!Look(markers.get()).told);
    CHECK(Runs(*stream) && LaunchesIn(*stream) == launches && markers->streams.IsActive(stream));
  }
}

// Behind the marker that begins a run its launch may still be under way: the stream goes idle at
// the second look, unless something was launched.
void FirstLaunchIsAwaited() {
  const auto markers = NewMarkers();
  state = CUDA_SUCCESS;
  MarkedStream* stream = markers->streams.For(Handle(1));
  CHECK(BeginRun(markers.get(), stream, Handle(1), {}, false) == Begun::kYes);
  CHECK(!Look(markers.get()).told);
  CHECK(Runs(*stream) && markers->streams.IsActive(stream));
  CHECK(!Look(markers.get()).told);
  CHECK(IsIdle(markers.get(), *stream));
}

// A stream that was left, or whose handle is gone, is not asked about.
void GoneIsNotAsked() {
  for (const bool is_gone : {false, true}) {
    const auto markers = NewMarkers();
    MarkedStream* stream = LaunchedInto(markers.get(), 3, 100 * kLaunchNs);
    if (is_gone) {
      stream->handle = 0;
    } else {
      stream->word.fetch_and(~MarkedStream::kRunning);
    }
    asked_relaxed = asked_otherwise = 0;
    CHECK(!Look(markers.get()).told && asked_relaxed + asked_otherwise == 0);
    CHECK(IsIdle(markers.get(), *stream));
  }
}

// A sample in doubt is given out once all have told, and means nothing to the stream that has the
// place by then.
void DoubtIsSettledLater() {
  const auto markers = NewMarkers();
  MarkedStream* stream = LaunchedInto(markers.get(), 1, kLaunchNs);
  const uint64_t end_ns = 1'000 * kLaunchNs;
  const uint32_t life = stream->word.load() & MarkedStream::kLife;
  const DoubtfulSample sample = {
      end_ns - kLaunchNs, end_ns, kLaunchNs, 0, markers->streams.NumberOf(stream), life};
  markers->doubtful[3] = sample;
  DoubtfulSample taken[kMostDoubtful];
  CHECK(TakeDoubtful(markers.get(), end_ns + kToldNs - 1, taken) == 0);
  CHECK(TakeDoubtful(markers.get(), end_ns + kToldNs, taken) == 1);
  CHECK(TakeDoubtful(markers.get(), end_ns + kToldNs, taken) == 0);
  CHECK(taken[0].own_ns == kLaunchNs);

  stream->samples.disturbed = 2;
  SettleSample(markers.get(), taken[0]);
  CHECK(stream->samples.disturbed == 1 && stream->samples.sum_ns == kLaunchNs);
  stream->BeginLife(1);
  stream->samples.disturbed = 2;
  SettleSample(markers.get(), taken[0]);
  CHECK(stream->samples.disturbed == 2 && stream->samples.sum_ns == 0);
}

constexpr Case kCases[] = {
    {"empty_first", EmptyFirst},
    {"busy_stay", BusyStay},
    {"taken_back_once", TakenBackOnce},
    {"done_is_reckoned", DoneIsReckoned},
    {"running_is_paid_for", RunningIsPaidFor},
    {"full_runs_on", FullRunsOn},
    {"steps_pause", StepsPause},
    {"waits_for_the_host", WaitsForTheHost},
    {"meeting_ends", MeetingEnds},
    {"untimed_is_not_told", UntimedIsNotTold},
    {"waiters_tell", WaitersTell},
    {"host_is_not_asked", HostIsNotAsked},
    {"recording_is_left_alone", RecordingIsLeftAlone},
    {"first_launch_is_awaited", FirstLaunchIsAwaited},
    {"gone_is_not_asked", GoneIsNotAsked},
    {"doubt_is_settled_later", DoubtIsSettledLater},
};

}  // namespace

int main(int argc, char** argv) { return RunCase(kCases, argc, argv); }
