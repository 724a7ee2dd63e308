// The parts of markers over a driver made of a few lines, each case a promise.
// sources: device/markers/*.cpp
// flags: -pthread
//
//   marker_cases CASE
//
// Ends with 1 and says which line did not hold.
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "device/markers/looks.h"
#include "device/markers/markers.h"
#include "device/markers/runs.h"
#include "marker_world.h"

namespace {

using namespace markertest;  // NOLINT(google-build-using-namespace): a test program's own helpers

// ---- cases ----

// A full list charges each device for what it ran, and too much rather than too little.
void FullList() {
  BusyIntervals<4> busy;
  busy.Add(0, 100, 110);
  busy.Add(0, 120, 130);
  busy.Add(1, 200, 210);
  busy.Add(1, 220, 230);

  busy.Add(0, 140, 150);
  CHECK(busy.begin()[1].begin_ns == 130 && busy.begin()[1].end_ns == 150);
  CHECK(busy.begin()[1].since_ns == 120);  // what lies between is a pause
  CHECK(busy.begin()[3].begin_ns == 220 && busy.begin()[3].end_ns == 230);

  busy.Add(0, 90, 95);  // of another stream
  CHECK(busy.begin()[1].begin_ns == 90 && busy.begin()[1].end_ns == 150);

  busy.Add(2, 300, 310);
  CHECK(busy.end() - busy.begin() == 4);
  CHECK(busy.begin()[2].ordinal == 1 && busy.begin()[2].begin_ns == 200);
  CHECK(busy.begin()[2].end_ns == 230);
  CHECK(busy.begin()[3].ordinal == 2 && busy.begin()[3].begin_ns == 300);
}

// A stream that loses its place: whoever found it there learns that behind its launch.
void LostPlace() {
  const auto markers = NewMarkers();
  uintptr_t other = 0;
  while (other < 4 * kMostMarkedStreams) markers->streams.For(Handle(++other));
  MarkedStream* lost = markers->streams.For(Handle(0));  // the first place of a full set
  const uint32_t found = lost->word.load();
  while (StreamTable::IsOf(*lost, Handle(0))) markers->streams.For(Handle(++other));
  lost->word.fetch_add(2);  // the other stream's own launches

  const uint32_t before = lost->word.fetch_add(1);
  CHECK(((before ^ found) & MarkedStream::kLife) != 0);
  lost->Uncount(before);
  CHECK((lost->word.load() & MarkedStream::kLaunches) == 2);

  // A marker counted all three of them: it keeps the third.
  lost->word.fetch_sub(2);
  lost->Uncount(before);
  CHECK((lost->word.load() & MarkedStream::kLaunches) == 0);

  CHECK(BeginRun(markers.get(), lost, Handle(0), {}, false, 1) == Begun::kOtherStream);
  CHECK((lost->word.load() & MarkedStream::kLaunches) == 0);
  MarkedStream* anew = markers->streams.For(Handle(0));
  CHECK(BeginRun(markers.get(), anew, Handle(0), {}, false, 1) == Begun::kYes);
  CHECK(anew->first != kNoMarker || (anew->word.load() & MarkedStream::kLaunches) == 1);
}

// While a thread records, others do all that they do, and put no marker into the same stream.
void FullQueue() {
  const auto markers = NewMarkers();
  MarkedStream* other = RunningStream(markers.get(), 2, 0);
  MarkedStream* full = RunningStream(markers.get(), 1, 3);
  other->word.fetch_or(MarkedStream::kRunning);
  other->word.fetch_add(5);
  uint16_t seen = 1;
  state = CUDA_ERROR_NOT_READY;
  in_record = [&] {
    OnAnotherThread([&] {
      full->word.fetch_add(1);
      MarkInTurn(markers.get(), full);
      seen = full->first;
      MarkInTurn(markers.get(), other);
      CHECK(LaunchesIn(*other) == 0);
      CHECK(markers->streams.For(Handle(3)) != nullptr);
      LeaveContext(markers.get(), /*waits=*/true);
      BusyIntervals<8> busy;
      CollectAll(markers.get(), NowNs(), false, &busy);
      KernelsRun(markers.get(), 0);
    });
  };

  MarkInTurn(markers.get(), full);

  CHECK(seen == kNoMarker);
  CHECK(full->first != kNoMarker && full->first == full->last);
  CHECK(markers->pool[full->first].launches == 3 && LaunchesIn(*full) == 1);
  CHECK(full->recorder == Recorder::kNobody);
}

// Who finds another thread's marker under way leaves the stream all the same.
void LeftMeanwhile() {
  const auto markers = NewMarkers();
  MarkedStream* stream = RunningStream(markers.get(), 1, 3);
  state = CUDA_ERROR_NOT_READY;
  in_record = [&] { OnAnotherThread([&] { LeaveStream(markers.get(), stream); }); };

  MarkInTurn(markers.get(), stream);

  CHECK(LaunchesIn(*stream) == 0 && !Runs(*stream) && !stream->goes_on.load());

  // Only then.
  stream->word.fetch_or(MarkedStream::kRunning);
  stream->word.fetch_add(1);
  MarkInTurn(markers.get(), stream);
  CHECK(Runs(*stream) && stream->goes_on.load());
}

// On behalf of others nothing is put where it might wait.
void NoRoom() {
  const auto markers = NewMarkers();
  state = CUDA_SUCCESS;
  MarkedStream* stream = RunningStream(markers.get(), 1, 100);
  CHECK(LeaveContext(markers.get(), /*waits=*/true) && LaunchesIn(*stream) == 0);

  stream->word.fetch_or(MarkedStream::kRunning);
  stream->word.fetch_add(1'000);
  CHECK(!LeaveContext(markers.get(), /*waits=*/true) && LaunchesIn(*stream) == 1'000);
  LeaveStream(markers.get(), stream);
  CHECK(LaunchesIn(*stream) == 0);
  BusyIntervals<8> busy;
  CollectAll(markers.get(), NowNs(), false, &busy);

  // Copies count as well, until a marker behind them is over.
  MarkedStream* copied = RunningStream(markers.get(), 2, 0);
  for (int i = 0; i < 1'000; ++i) LeaveStream(markers.get(), copied);
  copied->word.fetch_or(MarkedStream::kRunning);
  copied->word.fetch_add(1);
  CHECK(!LeaveContext(markers.get(), /*waits=*/true));
  MarkInTurn(markers.get(), copied);
  CollectAll(markers.get(), NowNs(), false, &busy);
  copied->word.fetch_or(MarkedStream::kRunning);
  copied->word.fetch_add(1);
  markers->streams.SetActive(copied, true);
  CHECK(LeaveContext(markers.get(), /*waits=*/true));

  // What was in the stream before its first launch is not known.
  MarkedStream* unknown = markers->streams.For(Handle(3));
  unknown->word.fetch_or(MarkedStream::kRunning);
  unknown->word.fetch_add(1);
  markers->streams.SetActive(unknown, true);
  LeaveContext(markers.get(), /*waits=*/true);
  CHECK(LaunchesIn(*unknown) == 1);
}

// While somebody waits for room in a stream of the context, only launches have markers there: those
// wait as well.
void HeldUp() {
  const auto markers = NewMarkers();
  MarkedStream* other = RunningStream(markers.get(), 2, 0);
  MarkedStream* stream = RunningStream(markers.get(), 1, 3);
  markers->streams.SetActive(other, true);
  state = CUDA_ERROR_NOT_READY;
  stream->others_put = stream->others_over = 0;
  const auto nobody_marks = [&] {
    uint64_t since_ns = 0;
    bool is_left = false;
    CHECK(!LeaveContext(markers.get(), /*waits=*/true));
    CHECK(BeforeWait(markers.get(), stream) == 0);
    LeaveStream(markers.get(), stream);
    asked_relaxed = asked_otherwise = 0;
    CHECK(QueryStream(markers.get(), stream, Handle(1), &is_left) == CUDA_ERROR_NOT_READY);
    CHECK(asked_relaxed + asked_otherwise == 0);
    CHECK(LaunchesIn(*stream) == 3 && stream->first == kNoMarker);
    return ForgetStream(markers.get(), Handle(1), &since_ns) == Forgotten::kHeldUp;
  };
  const auto live_again = [&] {
    stream->handle = reinterpret_cast<uint64_t>(Handle(1));
    stream->word.fetch_or(MarkedStream::kRunning);
  };

  markers->streams.BeginPut(stream->context);
  CHECK(nobody_marks());
  live_again();
  markers->streams.EndPut(stream->context);

  // Of what it has queued nothing ended for a while.
  other->queued = 1'000;
  other->run_begin_ns = NowNs() - 1'000'000'000;
  CHECK(nobody_marks());
  live_again();

  markers->streams.BeginPut(stream->context);
  MarkInTurn(markers.get(), stream);
  CHECK(LaunchesIn(*stream) == 0 && stream->first != kNoMarker);
  markers->streams.EndPut(stream->context);

  // It moves on, or there is room.
  for (const uint32_t queued : {1'000u, 500u}) {
    stream->word.fetch_or(MarkedStream::kRunning);
    stream->word.fetch_add(1);
    other->queued = queued;
    other->run_begin_ns = queued == 500 ? NowNs() - 1'000'000'000 : NowNs();
    LeaveStream(markers.get(), stream);
    CHECK(LaunchesIn(*stream) == 0);
  }
}

bool Sleeps(pid_t thread) {
  const std::string path = "/proc/self/task/" + std::to_string(thread) + "/stat";
  FILE* file = fopen(path.c_str(), "r");
  char letter = 0;
  const int count = file != nullptr ? fscanf(file, "%*d (%*[^)]) %c", &letter) : 0;
  if (file != nullptr) fclose(file);
  return count == 1 && letter == 'S';
}

// Who ends a stream or a context waits for what others just put there.
void EndsWait(void (*end)(Markers*)) {
  const auto markers = NewMarkers();
  RunningStream(markers.get(), 1, 3);
  std::atomic<pid_t> who{0};
  std::atomic<bool> has_ended{false};
  std::thread ending;
  in_record = [&] {
    ending = std::thread([&] {
      who = static_cast<pid_t>(syscall(SYS_gettid));
      end(markers.get());
      has_ended = true;
    });
    while (!has_ended && (who == 0 || !Sleeps(who))) std::this_thread::yield();
    CHECK(!has_ended);
  };

  LeaveContext(markers.get(), /*waits=*/true);

  ending.join();
  CHECK(has_ended);
}

void StreamEnds() {
  EndsWait([](Markers* markers) {
    uint64_t since_ns = 0;
    CHECK(ForgetStream(markers, Handle(1), &since_ns) == Forgotten::kMarked);
  });
}

void ContextEnds() {
  EndsWait([](Markers* markers) {
    BusyIntervals<8> busy;
    const uint64_t suspended = SuspendContexts(markers, kContext, 0);
    CHECK(suspended != 0);
    ResumeContexts(markers, suspended, /*ended=*/true, NowNs(), &busy);
  });
}

// A program that ends a context while it launches there has itself to blame; markers of the next
// context are whole.
void ContextEndsInLaunch() {
  const auto markers = NewMarkers();
  MarkedStream* stream = RunningStream(markers.get(), 1, 3);
  in_record = [&] {
    OnAnotherThread([&] {
      BusyIntervals<8> busy;
      const uint64_t suspended = SuspendContexts(markers.get(), kContext, 0);
      ResumeContexts(markers.get(), suspended, /*ended=*/true, NowNs(), &busy);
    });
  };

  MarkInTurn(markers.get(), stream);

  CHECK(stream->first == kNoMarker && stream->recorder == Recorder::kNobody);
  state = CUDA_ERROR_NOT_READY;
  MarkedStream* next = markers->streams.For(Handle(2));
  CHECK(BeginRun(markers.get(), next, Handle(2), {}, false) == Begun::kYes);
  for (int i = 0; i < 20; ++i) {
    next->word.fetch_add(1);
    MarkInTurn(markers.get(), next);
  }
  int count = 0;
  for (uint16_t i = next->first; i != kNoMarker && count < 100; i = markers->pool[i].next) ++count;
  CHECK(count == 21);
}

// All that a callback may call, on the thread that made a call of ours.
void CallEverything(Markers* markers) {
  BusyIntervals<8> busy;
  uint64_t since_ns = 0;
  MarkedStream* stream = markers->streams.Find(Handle(1));
  CHECK(stream != nullptr);
  markers->streams.For(Handle(9));
  BeginRun(markers, stream, Handle(1), {}, false);
  MarkStream(markers, stream);
  MarkInTurn(markers, stream);
  LeaveStream(markers, stream);
  LeaveContext(markers, false);
  LeaveBlockingStreams(markers);
  AfterWait(markers, stream, Handle(1), BeforeWait(markers, stream), true, NowNs(), &busy);
  AfterAnswer(markers, stream, true, &busy);
  CollectAll(markers, NowNs(), false, &busy);
  CollectEnded(markers, stream, &busy);
  KernelsRun(markers, 0);
  ExpectedNs(markers, NowNs());
  LeftNs(markers, 0, NowNs());
  EndsNs(markers, 0, NowNs());
  ForgetStream(markers, Handle(8), &since_ns);
  ResumeContexts(markers, SuspendContexts(markers, kContext, 0), false, NowNs(), &busy);
}

// A profiler's callback on the n-th driver call of a few launches, looks and waits.
void Callbacks() {
  NoteBlockingStream();
  for (int skipped = 0; skipped < 60; ++skipped) {
    const auto markers = NewMarkers();
    MarkedStream* stream = RunningStream(markers.get(), 1, 3);
    int left = skipped;
    std::function<void()> wait;
    wait = [&] {
      if (left-- > 0) {
        in_any_call = wait;
      } else {
        CallEverything(markers.get());
      }
    };
    in_any_call = wait;
    BusyIntervals<8> busy;
    MarkInTurn(markers.get(), stream);
    state = CUDA_ERROR_NOT_READY;
    stream->word.fetch_add(1);
    CollectAll(markers.get(), NowNs(), false, &busy);
    state = CUDA_SUCCESS;
    LeaveContext(markers.get(), /*waits=*/true);
    AfterWait(markers.get(), stream, Handle(1), BeforeWait(markers.get(), stream), true, NowNs(),
              &busy);
    BeginRun(markers.get(), stream, Handle(1), {}, false);
    in_any_call = nullptr;
    CHECK(!StreamsGuard::is_inside());
  }
}

// While no capture is open, another thread may begin one at any moment.
void AsksRelaxed() {
  const auto markers = NewMarkers();
  MarkedStream* stream = RunningStream(markers.get(), 1, 3);
  BusyIntervals<8> busy;
  const auto asks = [&](auto call) {
    stream->word.fetch_or(MarkedStream::kRunning);
    stream->word.fetch_add(1);
    MarkInTurn(markers.get(), stream);
    markers->streams.SetActive(stream, true);
    stream->ns_per_launch = 1;  // however long this machine took for the launches before
    asked_relaxed = asked_otherwise = 0;
    call();
    CHECK(asked_relaxed != 0 && asked_otherwise == 0);
    CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
  };

  asks([&] { CollectEnded(markers.get(), stream, &busy); });
  asks([&] { AfterAnswer(markers.get(), stream, /*ended=*/true, &busy); });
  asks([&] {
    stream->word.fetch_and(~MarkedStream::kRunning);
    BeginRun(markers.get(), stream, Handle(1), {}, false);
  });
  asks([&] { AfterWait(markers.get(), stream, Handle(1), 0, /*ended=*/true, NowNs(), &busy); });
}

constexpr Case kCases[] = {
    {"asks_relaxed", AsksRelaxed}, {"callbacks", Callbacks},
    {"context_ends", ContextEnds}, {"context_ends_in_launch", ContextEndsInLaunch},
    {"full_list", FullList},       {"full_queue", FullQueue},
    {"held_up", HeldUp},           {"left_meanwhile", LeftMeanwhile},
    {"lost_place", LostPlace},     {"no_room", NoRoom},
    {"stream_ends", StreamEnds},
};

}  // namespace

int main(int argc, char** argv) { return RunCase(kCases, argc, argv); }
