// One stream as the core limit sees it: what was launched into it, and what is known of when that
// runs (docs/core-limiter.md, "Markers"). Must not know how streams are found or marked.
//
// A stream is *running* from its first launch until something else (a copy, a wait) is put into it
// or it was seen idle. Launches are counted in one word; every n-th asks for a marker. What is no
// atomic is changed under the lock of the table (stream_table.h) alone.
#pragma once

#include <stdint.h>

#include <algorithm>
#include <atomic>

#include "base/tuning.h"
#include "device/markers/lengths.h"

namespace gpufence {

// What the host's clock adds to a run that is waited for, learned from some that are marked as
// well. Pure.
//
// Which runs are marked is drawn, by their number alone. A host is late for a while: if one were
// marked after so much time, or because the one before took long, more of those would be marked
// that are late, and the others be charged too little (waits that sleep, H200: 14 % at 10).
//
// A run that the host saw for longer than the marked ones had longer kernels, or the host was late.
// How much of such differences was lateness among the marked ones, it is among the others. Where
// the marked ones do not differ all of it is: then each run is charged what their kernels took, and
// what marking one does to the wait for it does not matter.
class HostExtra {
 public:
  // From the launch's return to the wait's, without kernels, in the mean; 0: unknown.
  uint64_t ns() const { return ns_; }

  // The same of a run that the host saw for so long.
  uint64_t OfNs(uint64_t span_ns) const {
    const int64_t late_ns = Difference(span_ns, marked_span_ns_) * late_parts_ / kWhole;
    return static_cast<uint64_t>(std::max(static_cast<int64_t>(ns_) + late_ns, int64_t{0}));
  }

  // Whether the next run is to be marked, and teaches.
  bool IsDue(const Tuning& tuning = kTuning) const {
    return learned_ < tuning.enough / 2 || left_ == 0;
  }

  // A run that was not.
  void CountTold(uint64_t span_ns, const Tuning& tuning = kTuning) {
    span_ns_ = span_ns_ == 0 ? span_ns : (span_ns_ * (tuning.many - 1) + span_ns) / tuning.many;
    left_ -= left_ != 0 ? 1 : 0;
  }

  // From a run that was, and that without its markers the host would have seen for `span_ns`. One
  // is due after `spacing_ns` of them in the mean.
  void Learn(uint64_t extra_ns, uint64_t span_ns, uint64_t spacing_ns, uint32_t random,
             const Tuning& tuning = kTuning) {
    learned_ += learned_ < 2 * tuning.enough ? 1 : 0;
    LearnLateness(extra_ns, span_ns);
    const uint64_t parts = std::min<uint64_t>(learned_, tuning.enough);
    ns_ = std::max(((parts - 1) * ns_ + extra_ns) / parts, uint64_t{1});
    marked_span_ns_ = ((parts - 1) * marked_span_ns_ + span_ns) / parts;
    // Those that come first are alike, whatever others are: the next ones follow sooner.
    const uint64_t spaced_ns = spacing_ns * learned_ / (2 * tuning.enough);
    const uint64_t mean =
        span_ns_ != 0 ? std::min<uint64_t>(spaced_ns / span_ns_, 8 * tuning.many) : 0;
    left_ = 1 + random % static_cast<uint32_t>(2 * mean + 1);
  }

 private:
  static constexpr int64_t kWhole = 4'096;
  // What clocks round is lateness: a microsecond, squared.
  static constexpr double kRounded = 1e6;

  static int64_t Difference(uint64_t ns, uint64_t mean_ns) {
    return static_cast<int64_t>(ns) - static_cast<int64_t>(mean_ns);
  }

  void LearnLateness(uint64_t extra_ns, uint64_t span_ns) {
    if (learned_ == 1) return;
    const auto more_ns = static_cast<double>(Difference(extra_ns, ns_));
    const auto longer_ns = static_cast<double>(Difference(span_ns, marked_span_ns_));
    late_ += (more_ns * longer_ns - late_) / learned_;
    square_ += (longer_ns * longer_ns - square_) / learned_;
    const double part = (std::max(late_, 0.0) + kRounded) / (square_ + kRounded);
    late_parts_ = static_cast<int64_t>(std::min(part, 1.0) * kWhole);
  }

  uint64_t ns_;
  uint64_t marked_span_ns_;  // of those that ns_ is of
  double late_;              // how much they differ, in the mean: extra times span ...
  double square_;            // ... and span times span, in ns squared
  int64_t late_parts_;       // of how much a span differs, kWhole: all
  uint64_t span_ns_;         // of a run that was not marked, in the mean over the last many or so
  uint32_t left_;            // runs until one is due
  uint32_t learned_;         // from so many, up to twice enough
};

inline constexpr uint64_t kLegacyStream = 1;     // CU_STREAM_LEGACY, as the null stream
inline constexpr uint64_t kPerThreadStream = 2;  // CU_STREAM_PER_THREAD

// Who puts a marker into a stream. kSelf: in a launch, which waits for room as the marker does.
// kBefore: in another call of the program's about this stream, which may wait for that, and not for
// others. kOther: on behalf of whoever waits or looks, so that it must not wait.
enum class Recorder : uint8_t { kNobody, kSelf, kBefore, kOther };

// Runs that are waited for (runs.h).
struct WaitedRuns {
  bool is_over;            // the last one was waited for, and nothing was launched since
  bool is_first;           // this one began so, and not because the GPU was idle between launches
  bool is_host_bound;      // as markers told last, the GPU may have waited between launches
  bool began_away;         // while a call was under way that may have ended its context
  uint32_t marked_due;     // so many more have to be marked, to see whether runs became long
  uint32_t others_over;    // what is no kernel and had been put into the stream by then
  uint32_t launches;       // of the last one
  uint64_t host_begin_ns;  // before the first launch of this one
  uint64_t marked_ns;      // when the GPU had the marker that begins it, or the same
  uint64_t begin_ns;       // when a run without one began, which the next marker will tell; 0: none
  HostExtra extra;         // from the launch's return to the wait's, without kernels
  uint64_t short_ns;       // of waits that took less than that: the next are charged so much less
  uint64_t longest_ns;     // of a launch, as markers saw it; what looks see themselves is no longer
};

// Short runs, each over before the next one begins (runs.h).
struct ClosedRuns {
  uint64_t run_span_ns;      // from one's begin to the next one's by the host's clock, in the mean
  uint64_t sample_ns;        // of which kernels ran in the last sample
  uint32_t unread;           // so many more are charged as much; then one is read
  bool is_unread;            // this one, unless the host saw that it is none of the usual ones
  bool is_sample;            // the one whose markers are being read
  uint64_t closed_ns;        // what ran in those that were closed, for the next look to tell ...
  uint64_t closed_until_ns;  // ... until then
};

// Of three markers the first is behind a launch, the others are right around the next one (gaps.h).
struct Probe {
  uint64_t gap_ns;     // of the GPU, from the first to the second
  uint64_t host_ns;    // of the host, from this launch to the next one, without recording markers
  uint64_t ran_ns;     // of the GPU, from the second to the third
  uint64_t call_ns;    // of the host, until the launch returned
  uint64_t behind_ns;  // the second was recorded so long before the GPU came to it ...
  uint64_t record_ns;  // ... and recording it and the first took the host so long
  bool lacks_next;     // all markers are read, and the next launch has not come
  bool is_late;        // its call took long, and does not tell what the launch took
};

// Of the host's time from launch to launch, where that was probed: how long the GPU waited.
struct GapShare {
  uint64_t idle_ns;
  uint64_t host_ns;
};

// What the next launch tells. kProbe, kSample: it has a marker right before and right behind it.
// kGap: it is the one behind a probe, whose gap it ends.
enum class Tells : uint8_t { kNothing, kProbe, kSample, kGap };

// How long the GPU waits for the host between launches (gaps.h).
struct LaunchGaps {
  uint64_t host_mark_ns;  // when the GPU had the last marker
  uint64_t record_ns;     // what recording it took until then
  uint64_t held_ns;       // of launches, since
  Probe open;             // whose launch was not told yet; without a gap: none
  GapShare at_once;       // of gaps next to a marker that was reached when it was recorded ...
  GapShare later;         // ... or later, as the GPU had work left or nobody knows
  GapShare brief;         // of all in which the host took less than behind_ns
  GapShare late;          // of those whose call took long, which are in none of the others
  GapShare last;          // the last one: the next marker counts it as well
  bool is_at_once;        // so was the last marker that was reached
  uint32_t probes;        // so many
  uint32_t asked;         // so many were begun
  uint32_t unprobed;      // markers since the last one
  bool caught_up;         // the GPU was at the last interval before its last launch was made
  uint32_t may_idle;      // intervals until there are no probes any more: of the last ones one had
                          // time in which nothing was queued
};

// What a launch takes the GPU, by samples of one (gaps.h).
struct LaunchSamples {
  uint64_t sum_ns;     // of ...
  uint32_t count;      // ... so many
  uint32_t disturbed;  // so many others took so long that somebody had the GPU meanwhile
  uint64_t at_ns;      // when the last one was taken
  uint64_t apart_ns;   // from launch to launch of the host's time, in the mean
  uint32_t unsampled;  // markers since
};

// `first` to `last` are its markers that were not seen reached yet, oldest first.
struct alignas(64) MarkedStream {
  static constexpr uint32_t kRunning = 1u << 31;
  static constexpr uint32_t kHeld = 1u << 30;  // enough is queued: ask before the next launch
  static constexpr uint32_t kProbe = 1u
                                     << 29;  // the next launch is a probe, a sample or behind one
  static constexpr uint32_t kSparse = 1u << 28;  // between launches it may be idle: CameToIdle
  static constexpr uint32_t kLifeOne = 1u << 22;
  static constexpr uint32_t kLife = kSparse - kLifeOne;  // whose place this is: changes with that
  static constexpr uint32_t kLaunches = kLifeOne - 1;

  // What every launch asks and tells: one line of the cache, which looks leave alone.
  std::atomic<uint64_t> handle;   // 0: none; CU_STREAM_LEGACY and CU_STREAM_PER_THREAD have a scope
  std::atomic<uint32_t> word;     // the bits above and the launches since the last marker
  std::atomic<uint32_t> mark_at;  // launches until the next marker, drawn around `every`
  uint32_t ordinal;
  std::atomic<uint32_t> inner_ns;  // of these launches: pauses within each
  std::atomic<uint64_t>
      launched_ns;  // when this run's first launch returned; 0: unknown; or kBeforehand
  std::atomic<uint64_t> came_ns;  // kSparse: when the last one did, or the one that began the run
  std::atomic<uint32_t> behind;   // so many more launches until the host may be ahead of the GPU
  std::atomic<bool> marks_each;   // kSparse: each of them has a marker of its own
  std::atomic<bool> by_host;      // no marker begins this run: the wait for it tells (runs.h)
  std::atomic<bool> awaited;      // by a call that will tell what ran
  std::atomic<bool> meets;        // one of them waits for kernels on other GPUs
  std::atomic<uint64_t> scope;    // the context of a stream whose handle means one in each
  std::atomic<uint64_t> thread;   // the per-thread stream's

  // Changed at looks under the lock, and read without it by whoever asks how much is queued.
  alignas(64) std::atomic<uint64_t> ns_per_launch;  // lately; 0: unknown
  std::atomic<uint64_t> mean_ns;                    // the same over the last mean_of launches or so
  std::atomic<uint64_t> run_begin_ns;  // when the last marker seen was reached, monotonic
  std::atomic<uint32_t> queued;        // launches before the markers from first to last
  std::atomic<bool> is_trusted;        // ns_per_launch is of this run
  std::atomic<bool> goes_on;           // nothing that is no kernel is behind its last marker
  std::atomic<bool> mixes;             // fills, copies or waits are among the launches since ...
  std::atomic<bool> whole;             // ... and all is charged
  std::atomic<uint32_t> others_put;    // what is no kernel and was put into it ...

  uint64_t spaced_ns;  // when those came that were marked last, about
  uint32_t every;      // launches between two markers, about
  uint16_t context;
  uint16_t first;
  uint16_t last;
  std::atomic<uint32_t> others_over;  // ... of which so much is over
  Recorder recorder;                  // in the middle of it, without the lock ...
  bool is_left;                       // ... and somebody left the stream meanwhile
  bool is_blocking;                   // it waits for the legacy stream of its context ...
  uint32_t others_seen;  // ... which had so much that is no kernel when its last run began
  bool is_timed;         // run_begin_ns is known
  bool is_fresh;         // no marker of this run was reached but the one that begins it
  uint8_t failures;      // driver calls about it that failed in a row
  bool awaits_launch;    // its last marker begins a run, and nobody looked since
  Tells next_tells;      // what the next launch is to tell
  uint32_t tail_seen;    // per-thread: launches that the last look found behind the last marker
  int64_t begin_gpu_ns;  // the same by the GPU's clock; 0: unknown
  uint64_t charged_ns;   // told as busy up to here
  uint64_t deducted_ns;  // of what was told since run_begin_ns: it lay between kernels
  uint64_t idle_since_ns;
  uint32_t mean_of;
  uint32_t steady;  // so many intervals in a row took about as long as expected
  uint64_t ran_ns;  // between the last two markers that were seen
  uint32_t random;

  WaitedRuns waited;
  ClosedRuns closed_runs;
  LaunchGaps gaps;
  LaunchSamples samples;
  LaunchLog log;                   // where the queue must be short
  uint32_t logged;                 // launches of it when the last marker was recorded
  uint32_t yields_at;              // ... and when the last yield point was put there
  uint32_t yields_of;              // what YieldPoints::ChangesOf told then
  std::atomic<uint32_t> holds_at;  // the last hold point's number

  // A stream that nothing is known of; all but its names and where it is.
  void BeginLife(uint32_t seed);

  // False: nothing was launched that has no marker, and nothing is known that runs.
  bool IsTouched() const { return (word.load(std::memory_order_relaxed) & ~kLife) != 0; }

  // The place was another stream's before, whose launch was counted here: `counted_in` is the word
  // then. What a marker counted meanwhile stays.
  void Uncount(uint32_t counted_in);

  // Whether a marker surely finds room in its queue, so that recording it waits for nothing.
  bool HasRoom() const;

  // Whether its queue is full, or nearly, of what has not moved for a while: whoever puts something
  // there may have to wait for long.
  bool IsStuck() const;

  // Estimated time of what is queued and not yet done, with a doubt about what is not known; and,
  // where the queue must be short, by what each launch takes.
  uint64_t QueuedNs() const;
  uint64_t ShortQueueNs(const LaunchLengths& lengths, uint64_t now_ns) const;

  uint64_t QueuedLaunches() const;
  uint64_t UsualNs() const;  // of a launch

  // The GPU had this run's first launch before it came to the run.
  static constexpr uint64_t kBeforehand = 1;

  // From `marked_ns` until the run's first launch was with the GPU, for which it waited.
  uint64_t LeadNs() const;

  // Whether the run was queued before the GPU came to it.
  bool IsQueued() const { return launched_ns.load(std::memory_order_relaxed) == kBeforehand; }

  // It ran dry while a launch was held: each of the next has a marker, and finds out.
  void FallBehind();

  // From now on a marker after about so many launches.
  void Space(uint32_t launches);

  // So many launches need not be counted any more.
  void CountDown(uint32_t launches);

  // The next one of its random numbers.
  uint32_t Random();

  // A run that no marker begins runs from here on.
  void BeginAt(uint64_t at_ns) {
    run_begin_ns = at_ns;
    charged_ns = at_ns;
    deducted_ns = 0;
    is_timed = is_fresh = true;
  }

  // The same for what is remembered as a begin, once all before it is over; 0: nothing.
  void TakeBegin(uint64_t* at_ns) {
    if (*at_ns != 0) BeginAt(*at_ns);
    *at_ns = 0;
  }

  // One of the launches has so long pauses in itself.
  void AddInner(uint32_t ns) {
    if (ns != 0) inner_ns.fetch_add(ns, std::memory_order_relaxed);
  }

  // What that came to since the last time. Few launches have any.
  uint32_t TakeInner() {
    return inner_ns.load(std::memory_order_relaxed) != 0
               ? inner_ns.exchange(0, std::memory_order_relaxed)
               : 0;
  }
};

}  // namespace gpufence
