// Markers: timing events in streams, and what they tell about when the streams ran kernels
// (docs/core-limiter.md section 2). One table for the process, of fixed size.
//
// A stream is *running* from its first launch until something else (a copy, a wait) is put into it
// or it was seen idle. Launches are counted in one word; every n-th asks for a marker. All else
// happens under one lock of the process, which is also how a handle that ends is forgotten before
// the driver ends it: whoever holds the lock sees only handles that live. Must not know limits,
// turns or which call launches.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "core/futex.h"
#include "device/gpu_clock.h"
#include "driver_abi.h"

namespace gpufence {

inline constexpr uint64_t kLegacyStream = 1;     // CU_STREAM_LEGACY, as the null stream
inline constexpr uint64_t kPerThreadStream = 2;  // CU_STREAM_PER_THREAD

inline constexpr uint32_t kMostMarkedStreams = 2048;
inline constexpr uint32_t kMostMarkers = 8192;
inline constexpr uint32_t kMostMarkedContexts = 64;
inline constexpr uint32_t kMostMarkedDevices = 64;

// The pause between two kernels of a stream, in which nothing runs (measured on an H200).
inline constexpr uint64_t kLaunchGapNs = 1'700;
// ... between two of a graph, of which the second waits for the first,
inline constexpr uint64_t kStepGapNs = 950;
// ... what a marker between them adds, and what lies around a kernel between two markers where the
// first was in an idle stream, beside the time that the host took from the one to the launch.
inline constexpr uint64_t kMarkerGapNs = 2'500;
inline constexpr uint64_t kAroundRunNs = 2'000;

// Shorter launches are told by the host's clock alone, where the program waits for them; longer
// ones begin by it, and end with a marker.
inline constexpr uint64_t kHostToldLaunchNs = 40'000;

// Launches so far apart cost little if each is looked at for itself.
inline constexpr uint64_t kSparseNs = 100'000;

// From one look at what runs to the next, at most, and where there is little to hold; who sleeps
// longer is woken by a launch.
inline constexpr uint64_t kLongestLookNs = 2'000'000;
inline constexpr uint64_t kRareLookNs = 8'000'000;

// A stream was made that waits for the legacy stream of its context, and that one for it.
void NoteBlockingStream();
bool HasBlockingStreams();

// How long a launch was kept waiting before it went, and how much of that for other containers.
struct HeldNs {
  uint64_t at_all;
  uint64_t by_others;
  bool is_unasked;  // the gate was open for a stream that is looked at, and nobody asked more
};

struct IntervalContent;

struct BusyInterval {
  uint64_t begin_ns;
  uint64_t end_ns;
  uint32_t ordinal;
};

// One stream; `first` to `last` are its markers that were not seen reached yet, oldest first.
struct MarkedStream {
  static constexpr uint32_t kRunning = 1u << 31;
  static constexpr uint32_t kHeld = 1u << 30;    // enough is queued: ask before the next launch
  static constexpr uint32_t kProbe = 1u << 29;   // the next launch puts a marker before itself
  static constexpr uint32_t kSparse = 1u << 28;  // between launches it may be idle: CameToIdle
  static constexpr uint32_t kLaunches = kSparse - 1;

  std::atomic<uint64_t> handle;   // 0: none; CU_STREAM_LEGACY and CU_STREAM_PER_THREAD have a scope
  std::atomic<uint64_t> scope;    // their context
  std::atomic<uint64_t> thread;   // the per-thread stream's
  std::atomic<uint32_t> word;     // the bits above and the launches since the last marker
  std::atomic<uint32_t> mark_at;  // launches until the next marker, drawn around `every`
  std::atomic<uint32_t> steps;    // of these launches' graphs, beyond one each
  // Changed under the lock, and read without it by whoever asks how much is queued.
  std::atomic<uint32_t> queued;         // launches before the markers from first to last
  std::atomic<uint64_t> ns_per_launch;  // lately; 0: unknown
  std::atomic<uint64_t> mean_ns;        // the same over the last mean_of launches or so
  std::atomic<bool> is_trusted;         // ns_per_launch is of this run
  std::atomic<uint64_t> launched_ns;    // when this run's first launch returned; 0: unknown
  std::atomic<bool> goes_on;            // nothing that is no kernel is behind its last marker

  // kSparse: between two launches the stream may have nothing to do.
  std::atomic<bool> marks_each;   // it had: each of them has a marker of its own
  std::atomic<uint64_t> came_ns;  // when the last one did, or the one that began the run
  std::atomic<uint32_t> behind;   // so many more launches until the host may be ahead of the GPU
  uint64_t spaced_ns;             // when those came that were marked last, about
  uint32_t every;                 // launches between two markers, about
  uint32_t ordinal;
  uint16_t context;
  uint16_t first;
  uint16_t last;
  bool is_blocking;       // it waits for the legacy stream of its context ...
  uint32_t others_seen;   // ... which had so much that is no kernel when its last run began
  bool is_timed;          // run_begin_ns is known
  bool is_fresh;          // no marker of this run was reached but the one that begins it
  uint8_t failures;       // driver calls about it that failed in a row
  bool awaits_launch;     // its last marker begins a run, and nobody looked since
  uint32_t tail_seen;     // per-thread: launches that the last look found behind the last marker
  uint64_t run_begin_ns;  // when the last marker that was seen was reached, monotonic
  int64_t begin_gpu_ns;   // the same by the GPU's clock; 0: unknown
  uint64_t charged_ns;    // told as busy up to here
  uint64_t deducted_ns;   // of what was told since run_begin_ns: it lay between kernels
  uint64_t idle_since_ns;
  uint32_t mean_of;
  uint32_t steady;  // so many intervals in a row took about as long as expected
  uint64_t ran_ns;  // between the last two markers that were seen

  // Runs that are waited for (markers_waited.cpp).
  std::atomic<bool> by_host;  // no marker begins this one
  bool is_waited_for;         // by a call that will tell what ran
  bool began_away;            // while a call was under way that may have ended its context
  uint32_t marked_due;        // so many more have to be marked
  uint64_t host_begin_ns;     // before its first launch
  uint64_t marked_ns;         // the same, behind the marker that begins it
  uint64_t begin_ns;       // when a run without one began, which the next marker will tell; 0: none
  uint64_t host_extra_ns;  // from the launch's return to the wait's, without kernels; 0: unknown
  uint64_t longest_ns;     // of a launch, as markers saw it; what looks see themselves is no longer
  uint64_t since_mark_ns;  // of such runs, since one was marked

  // Short runs, each over before the next one begins (markers_sampled.cpp).
  uint64_t run_span_ns;       // from one's begin to the next one's by the host's clock, in the mean
  uint64_t sample_ns;         // of which kernels ran in the last sample
  uint32_t unread;            // so many more are charged as much; then one is read
  bool is_unread;             // this one, unless the host saw that it is none of the usual ones
  bool is_sample;             // the one whose markers are being read
  uint64_t settled_ns;        // what ran in those that were settled, for the next look to tell ...
  uint64_t settled_until_ns;  // ... until then

  // How long the GPU waits for the host between launches (markers_gaps.cpp).
  uint64_t host_mark_ns;  // when the last marker was recorded
  uint64_t record_ns;     // what that took
  uint64_t held_ns;       // of launches, since
  uint64_t idle_gap_ns;   // of the gaps probed lately ...
  uint64_t probed_ns;     // ... in so much of the host's time
  uint32_t probes;        // so many
  uint32_t unprobed;      // markers since the last one
  uint32_t random;
  bool may_idle;  // the last interval had time in which nothing was queued

  // Estimated time of what is queued and not yet done.
  uint64_t QueuedNs() const;

  // A run that no marker begins runs from here on.
  void BeginAt(uint64_t at_ns) {
    run_begin_ns = charged_ns = at_ns;
    deducted_ns = 0;
    is_timed = is_fresh = true;
  }

  // The same for what is remembered as a begin, once all before it is over; 0: nothing.
  void TakeBegin(uint64_t* at_ns) {
    if (*at_ns != 0) BeginAt(*at_ns);
    *at_ns = 0;
  }

  // One of the launches is of a graph whose kernels run in so many steps.
  void AddSteps(uint32_t count) {
    if (count > 1) steps.fetch_add(count - 1, std::memory_order_relaxed);
  }

  // It ran dry while a launch was held: each of the next has a marker, and finds out.
  void FallBehind();

  // From `marked_ns` until the run's first launch was with the GPU, for which it waited.
  uint64_t LeadNs() const;
};

class Markers {
 public:
  // The stream of a handle as launches know it (null: the legacy stream; `per_thread` reads it as
  // the calling thread's). Null when there is no context or no room.
  MarkedStream* StreamFor(CUstream stream);
  MarkedStream* Find(CUstream stream);  // null also when it was never launched into

  // Before a launch into a stream that is not running, and that was held for so long: that says
  // nothing about what it does, and after others the GPU comes from another process. Also behind a
  // launch, when the stream was seen idle meanwhile. `captures`: a capture may be open.
  // kMustAsk: nobody asked, and the stream is not looked at any more.
  enum class Begun : uint8_t { kYes, kProbe, kNotMarked, kOtherStream, kMustAsk };
  Begun Begin(MarkedStream* stream, CUstream handle, HeldNs held, bool captures);
  // After launches: marks what has no marker yet. Where that fails they stay counted.
  void Mark(MarkedStream* stream);
  // The same when `mark_at` was reached.
  void MarkInTurn(MarkedStream* stream);
  // Whether the stream, which is running, has nothing to do when a launch comes: then that begins a
  // new run, or the pause would be charged. Where launches come close together it is not asked.
  bool CameToIdle(MarkedStream* stream, CUstream handle, bool captures);
  // Behind a launch for which Begin answered kProbe.
  void Probed(MarkedStream* stream);
  // From now on a marker for about so much work.
  void Space(uint64_t work_ns) { spacing_ns_.store(work_ns, std::memory_order_relaxed); }
  // The same for runs that are waited for: one for so much work.
  void SpaceWaited(uint64_t work_ns) {
    waited_spacing_ns_.store(work_ns, std::memory_order_relaxed);
  }
  // Before something that is no kernel: marks, and the next launch begins a new run.
  void Leave(MarkedStream* stream);
  // The same for every stream of the calling thread's context. `waits`: before something that only
  // waits. True when a marker was put into one.
  bool LeaveContext(bool waits);
  // Before something that is no kernel is put into the context's legacy stream: the streams that
  // wait for that.
  void LeaveBlocking();

  // Around a wait for a stream's end. Before it: leaves the stream, unless the host's clock is
  // enough; then the launches that are waited for are returned. After it, with what was returned
  // and whether the stream has ended: what ran, as Collect, of this stream.
  uint32_t BeforeWait(MarkedStream* stream);
  size_t AfterWait(MarkedStream* stream, uint32_t launches, bool ended, BusyInterval* busy,
                   size_t room);

  // After the driver was asked whether the stream has ended, as AfterWait. Nothing is put into one
  // that has: asked again it would not be ready.
  size_t AfterAnswer(MarkedStream* stream, bool ended, BusyInterval* busy, size_t room);

  // What ran since the last look, at most `room` intervals, by stream in order. Sets the calling
  // thread's context and leaves none. `captures`: a capture may be open.
  size_t Collect(uint64_t now_ns, bool captures, BusyInterval* busy, size_t room);

  // The same of one stream of this thread's context, if all is marked and over; no capture is open.
  size_t CollectEnded(MarkedStream* stream, BusyInterval* busy, size_t room);

  bool any_active() const { return active_count_.load(std::memory_order_seq_cst) != 0; }
  // Changes whenever a stream begins to run.
  uint32_t begun() const { return begun_.load(std::memory_order_relaxed); }
  // Whether looks ask about the stream.
  bool IsActive(const MarkedStream* stream) const;
  // Markers of the device that were ever seen reached.
  uint32_t reached(uint32_t ordinal) const {
    return reached_[ordinal % kMostMarkedDevices].load(std::memory_order_relaxed);
  }
  // What the longest launch took, as far as seen.
  uint64_t longest_ns() const { return longest_ns_.load(std::memory_order_relaxed); }
  // Whether a kernel runs there, or did so when that was last seen; others may all be waiting.
  bool Runs(uint32_t ordinal);
  bool IsActive(uint32_t ordinal) { return CountActive(ordinal) != 0; }
  uint32_t CountActive(uint32_t ordinal);  // streams that run, or have markers to be seen
  // What launches into the streams that run take, in the mean of some hundred: the shortest of
  // these means; 0: not known.
  uint64_t LaunchNs(uint32_t ordinal);
  // When the first stream that runs is expected to be done with its oldest marker; where that is
  // over, a part of what it took so far.
  uint64_t ExpectedNs(uint64_t now_ns);
  // How much longer the first stream of the device runs, by the mean of its launches; 0: unknown.
  uint64_t LeftNs(uint32_t ordinal, uint64_t now_ns);
  // When all that runs on the device is expected to be done; 0 when that cannot be said.
  uint64_t EndsNs(uint32_t ordinal, uint64_t now_ns);

  // ---- what ends ----

  // Before the driver destroys a stream: its markers stay, its handle is forgotten. False when
  // what was launched into it could not be marked: then the caller must wait for its end, and
  // charge that from `*since_ns` on.
  bool Forget(CUstream stream, uint64_t* since_ns);
  // Before the driver may end contexts: no driver call is made about them until the answer is
  // known. A null handle: the primary one of the device. Returns which they are, a bit each: one
  // that is new afterwards is none of them, whoever suspended it.
  uint64_t Suspend(CUcontext context, uint32_t ordinal);
  // Afterwards. `ended`: all that was suspended is gone; what ran there ran until now.
  size_t Resume(uint64_t suspended, bool ended, uint64_t now_ns, BusyInterval* busy, size_t room);

 private:
  static constexpr uint32_t kWays = 8;
  static constexpr uint16_t kNone = 0;  // index 0 is never used, so that zeroed memory is empty

  struct Marker {
    CUevent event;
    uint64_t recorded_ns;
    uint32_t launches;  // between the marker before and this one
    uint32_t steps;     // of their graphs, beyond one each
    uint32_t lead_ns;   // of the run that the marker before begins
    uint64_t begin_ns;  // when that began by the host's clock, not by a marker; 0: it did not
    uint16_t joined;    // so many markers were between, too, and do not count any more
    uint16_t next;
    uint16_t context;
    bool begins;         // the time before it is not the stream's
    bool prompt;         // nothing was before it on the GPU
    bool probes;         // nothing was put into the stream between it and the one before
    uint64_t host_ns;    // of the host, since the one before; without holds
    uint64_t record_ns;  // what recording the one before took
  };

  struct Context {
    std::atomic<uint64_t> handle;  // 0: none
    uint32_t ordinal;
    bool is_primary;
    uint32_t away;    // calls under way that may end it
    uint32_t others;  // what is no kernel and was put into its legacy stream
    bool blind;       // events tell nothing in it: its launches are measured otherwise
    uint16_t free;    // markers to be had
    uint16_t base;    // the one whose GPU time is base_ns
    int64_t base_ns;
    GpuClock clock;
    uint64_t prompted_ns;  // when a marker was last recorded that is reached at once
  };

  struct Key {
    uint64_t handle;
    uint64_t scope;
    uint64_t thread;
  };

  static bool KeyOf(CUstream stream, Key* key);
  static bool Is(const MarkedStream& stream, const Key& key);
  MarkedStream* SetOf(const Key& key);
  MarkedStream* Lookup(const Key& key);
  MarkedStream* Insert(const Key& key);
  uint16_t ContextFor(uint64_t handle);

  uint16_t Take(uint16_t context);
  void Return(uint16_t marker);
  void Discard(uint16_t marker);
  bool Record(MarkedStream* stream, uint32_t launches, bool begins, bool prompt = false);
  bool MarkLocked(MarkedStream* stream);
  void NoteSpacing(MarkedStream* stream, uint32_t launches);
  void BeginLate(MarkedStream* stream, bool was_idle);
  void LeaveLocked(MarkedStream* stream);
  static bool IsReachable(const MarkedStream& stream);
  bool MayMarkLate(const MarkedStream& stream) const;
  bool WaitsForLegacy(MarkedStream* stream);
  enum class Doing : uint8_t { kUnknown, kKernels, kIdle, kWaits };
  Doing DoingOf(const MarkedStream& stream, bool captures) const;
  bool HostCanBegin(const MarkedStream& stream) const;
  bool BeginNow(MarkedStream* stream, bool was_idle, Doing doing);

  bool IsOnlyActive(const MarkedStream* stream) const;
  bool IsHere(const MarkedStream& stream) const;
  bool IsToldByHost(const MarkedStream& stream, uint32_t launches, uint64_t now_ns) const;
  bool HostIsEnough(const MarkedStream& stream) const;

  struct Look;
  bool TakeByHost(MarkedStream* stream, uint32_t launches, uint64_t now_ns, BusyInterval* busy,
                  size_t* count);
  size_t TakeMarked(MarkedStream* stream, uint64_t now_ns, BusyInterval* busy, size_t room);
  size_t TakeEnded(MarkedStream* stream, uint64_t now_ns, BusyInterval* busy, size_t room);
  void CollectStream(MarkedStream* stream, Look* look);
  void TakeOver(MarkedStream* stream, size_t over, Look* look);
  bool MayGoUnread(const MarkedStream& stream) const;
  bool IsWhollyUnread(const MarkedStream& stream) const;
  void Settle(MarkedStream* stream, uint64_t last_begin_ns);
  static void TellSettled(MarkedStream* stream, Look* look);
  bool Probe(MarkedStream* stream);
  void Running(MarkedStream* stream, const IntervalContent& content, uint64_t end_ns, Look* look);
  void Tell(MarkedStream* stream, uint64_t gaps_ns, uint64_t end_ns, Look* look);
  bool IsOver(MarkedStream* stream, const Marker& marker);
  size_t CountOver(MarkedStream* stream);
  bool Join(MarkedStream* stream);
  bool Fails(MarkedStream* stream);
  void Unmark(MarkedStream* stream, const Marker& marker);
  bool Reached(MarkedStream* stream, const Marker& marker, Look* look, uint64_t* at_ns);
  void CountReached(const MarkedStream& stream);
  void TakeReached(MarkedStream* stream, const Marker& marker, uint64_t at_ns, Look* look);
  void CollectTail(MarkedStream* stream, Look* look);
  bool Idle(MarkedStream* stream, uint32_t word, uint64_t now_ns);
  void Drop(uint16_t context);
  bool End(MarkedStream* stream, Look* look);
  bool IsMeant(const Context& context, CUcontext handle, uint32_t ordinal) const;

  void SetActive(const MarkedStream* stream, bool active);
  template <typename Visit>
  void ForEachActive(Visit visit);

  FutexLock lock_;
  Context contexts_[kMostMarkedContexts];
  std::atomic<uint32_t> reached_[kMostMarkedDevices];
  std::atomic<uint32_t> begun_;
  std::atomic<uint64_t> longest_ns_;
  std::atomic<uint64_t> spacing_ns_;
  std::atomic<uint64_t> waited_spacing_ns_;
  uint32_t markers_made_;
  uint16_t unused_;  // markers without an event
  Marker markers_[kMostMarkers];
  std::atomic<uint32_t> active_count_;
  std::atomic<uint64_t> active_[kMostMarkedStreams / 64];
  MarkedStream streams_[kMostMarkedStreams];
};

// Implementation.

template <typename Visit>
void Markers::ForEachActive(Visit visit) {
  for (size_t index = 0; index < kMostMarkedStreams / 64; ++index) {
    uint64_t bits = active_[index].load(std::memory_order_acquire);
    for (; bits != 0; bits &= bits - 1) {
      visit(&streams_[index * 64 + static_cast<size_t>(__builtin_ctzll(bits))]);
    }
  }
}

}  // namespace gpufence
