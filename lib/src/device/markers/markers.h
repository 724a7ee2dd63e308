// Markers: timing events in streams, and what they tell about when the streams ran kernels
// (docs/core-limiter.md, "Markers"). Here: what a marker is, all that is known of them, and how one
// is put into a stream or a stream is left. Must not know limits, turns, why a marker is wanted or
// which call launches. The other parts:
//
//   gaps.h     what of an interval lies between kernels
//   looks.h    what ran since the last look (reading.cpp: by which markers), what runs now, and
//              streams and contexts that end
//   runs.h     begins runs before launches; runs that the program waits for
//
// The legacy stream and the blocking streams of its context wait for each other: a late marker in
// the legacy stream would order what the program did not, and what is no kernel there is waited for
// in the others.
//
// Recording waits where the stream's queue is full, perhaps for what another thread of the program
// is about to do: no lock is held meanwhile, and nobody waits for it but who ends the stream or its
// context.
#pragma once

#include <stdint.h>

#include <atomic>

#include "base/pauses.h"
#include "device/markers/stream_table.h"
#include "device/stood_times.h"
#include "device/yield_points.h"
#include "driver_abi.h"

namespace gpufence {

inline constexpr uint32_t kMostMarkers = 8192;

inline constexpr uint32_t kMadeAtOnce = 8;

inline constexpr uint16_t kNoMarker = 0;  // that place is never used, so that zeros are none

// A timing event, made in the context that it belongs to, some at a time, and used again.
struct Marker {
  CUevent event;
  uint64_t recorded_ns;
  uint32_t launches;  // between the marker before and this one
  uint32_t logged;    // those of the stream's log until then; 0: not all of these are logged
  uint32_t others;    // what is no kernel and was put into the stream before it
  uint32_t inner_ns;  // pauses within each of them
  uint32_t lead_ns;   // of the run that the marker before begins
  uint64_t begin_ns;  // when that began by the host's clock, not by a marker; 0: it did not
  uint16_t joined;    // so many markers were between, too, and do not count any more
  uint16_t next;
  uint16_t context;
  bool begins;         // the time before it is not the stream's
  bool prompt;         // nothing was before it on the GPU
  bool probes;         // nothing was put into the stream between it and the one before
  bool samples;        // one launch was put right between it and the one before
  bool tells_late;     // what the call of each launch took is known
  bool calls_briefly;  // that was little
  bool meets;          // a launch before it waits for kernels on other GPUs
  bool mixes;          // fills, copies or waits are among them ...
  bool whole;          // ... and all is charged
  bool queued;         // the run that the marker before begins was, before the GPU came to it
  uint64_t host_ns;    // of the host, since the one before; without holds
  uint64_t late_ns;    // in which the GPU waited for a call; tells_late: if it did
  uint64_t record_ns;  // what recording the one before took
  uint64_t next_ns;    // of the host, until the next launch, where that was asked for; 0: unknown

  // Whether there is one launch before it, whose call was short, and nothing else.
  bool IsSingle() const { return launches == 1 && calls_briefly && !mixes && !queued; }
};

// Under the table's lock; zeroed memory is a pool without markers.
class MarkerPool {
 public:
  Marker& operator[](uint16_t index) { return markers_[index]; }
  const Marker& operator[](uint16_t index) const { return markers_[index]; }

  // Makes events in a context, without the lock; returns how many.
  static uint32_t Make(CUcontext context, CUevent events[kMadeAtOnce]);

  // Adds them; what finds no place is returned as so many that are left, at the front.
  uint32_t Add(uint16_t context, CUevent events[kMadeAtOnce], uint32_t count);

  bool IsFull() const { return unused_ == kNoMarker && made_ + 1 >= kMostMarkers; }

  // One of the context; kNoMarker: some must be added first.
  uint16_t Take(uint16_t context);
  void Return(uint16_t marker);
  // The context's events are gone with it.
  void Drop(uint16_t context);

 private:
  void Discard(uint16_t marker);

  uint32_t made_;
  uint16_t unused_;                     // markers without an event
  uint16_t free_[kMostMarkedContexts];  // to be had, of each context
  Marker markers_[kMostMarkers];
};

inline constexpr uint32_t kMostMarkedDevices = 64;

// A sample of one launch that took so long that others may have come between (gaps.h).
struct DoubtfulSample {
  uint64_t begin_ns;
  uint64_t end_ns;  // 0: none
  uint64_t own_ns;  // what the launch took, if nobody did
  uint32_t ordinal;
  uint32_t stream;  // its number, and its life
  uint32_t life;
};
inline constexpr size_t kMostDoubtful = 16;

// Zeroed memory is ready for use. What is no atomic is used under the table's lock.
struct Markers {
  StreamTable streams;
  MarkerPool pool;
  LaunchLengths lengths;  // where queues must be short
  DoubtfulSample doubtful[kMostDoubtful];
  YieldPoints yields;
  StoodTimes stood[kMostMarkedDevices];     // where all streams of a device did
  std::atomic<uint32_t> begun;              // changes whenever a stream begins to run
  std::atomic<uint64_t> longest_ns;         // what the longest launch took, as far as seen
  std::atomic<uint64_t> spacing_ns;         // of work, between two markers
  std::atomic<uint64_t> waited_spacing_ns;  // the same of runs that are waited for
  // As of the last look each device is far from its limit, and nobody else has work there: more may
  // be charged than was used, so that it is measured less.
  std::atomic<bool> is_far;
  std::atomic<uint32_t> seen_reached[kMostMarkedDevices];
  // Launches return when their kernels are done (CUDA_LAUNCH_BLOCKING): the GPU runs during all of
  // a call, and waits between any two.
  std::atomic<bool> calls_block;
  // Until when nobody else has work there; 0: there is nobody else.
  std::atomic<uint64_t> calm_until_ns[kMostMarkedDevices];

  // What is known of each device; null: nothing is.
  std::atomic<const GpuPauses*> pauses[kMostMarkedDevices];

  const GpuPauses& PausesOf(uint32_t ordinal) const {
    // What it points at was written before.
    const GpuPauses* known = pauses[ordinal % kMostMarkedDevices].load(std::memory_order_acquire);
    return known != nullptr ? *known : kUnknownPauses;
  }
  bool IsFar() const { return is_far.load(std::memory_order_relaxed); }
  bool CallsBlock() const { return calls_block.load(std::memory_order_relaxed); }
  StoodTimes& StoodOf(uint32_t ordinal) { return stood[ordinal % kMostMarkedDevices]; }
  const StoodTimes& StoodOf(uint32_t ordinal) const { return stood[ordinal % kMostMarkedDevices]; }
  // Markers of the device that were ever seen reached.
  uint32_t reached(uint32_t ordinal) const {
    return seen_reached[ordinal % kMostMarkedDevices].load(std::memory_order_relaxed);
  }
  // Whether what begins to run now may have to wait for others first: then only a marker tells when
  // the GPU came to it.
  bool IsBeside(uint32_t ordinal, uint64_t now_ns) const {
    const uint64_t calm_ns =
        calm_until_ns[ordinal % kMostMarkedDevices].load(std::memory_order_relaxed);
    return calm_ns != 0 && calm_ns < now_ns;
  }
  void CountReached(const MarkedStream& stream) {
    std::atomic<uint32_t>& seen = seen_reached[stream.ordinal % kMostMarkedDevices];
    seen.store(seen.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
};

// ---- putting them there ----

// After launches: marks what has no marker yet. Where that fails they stay counted.
void MarkStream(Markers* markers, MarkedStream* stream);

// The same when `mark_at` was reached.
void MarkInTurn(Markers* markers, MarkedStream* stream);

// Whether the GPU waits for the stream's host, as probes tell.
bool WaitsForHost(Markers* markers, const MarkedStream* stream);

// Before something that is no kernel: marks, and the next launch begins a new run.
void LeaveStream(Markers* markers, MarkedStream* stream);

// Before or behind a wait. True: the stream's run goes on behind it, since that is far from the
// limit; what the program does meanwhile is charged.
bool GoesOn(Markers* markers, MarkedStream* stream);

// Before a fill or a copy within the device, which the GPU does as it does kernels. True: the run
// goes on with it, and is charged for it. It ends where the GPU may wait for the host around it, as
// that would be charged, unless that is far from the limit. `is_kernel`: the GPU pauses behind it,
// as behind kernels.
bool GoesOnWith(Markers* markers, MarkedStream* stream, bool is_kernel);

// The same for every stream of the calling thread's context. `waits`: before something that only
// waits. True when a marker was put into one.
bool LeaveContext(Markers* markers, bool waits);

// Before something that is no kernel is put into the context's legacy stream: leaves the streams
// that wait for that.
void LeaveBlockingStreams(Markers* markers);

// Whether a run that begins in the stream now wants a fill in front of its marker, and its context
// has no memory for that yet. No lock is held.
bool LacksFilled(const Markers& markers, const MarkedStream& stream);

// Gives it four bytes or more, which live as long as the context; 0: there are none to be had.
void GiveFilled(Markers* markers, const MarkedStream& stream, CUdeviceptr filled);

// ---- for the parts of markers: the lock is held ----

// Puts a marker into the stream, behind so many launches. `begins`: what was before it is not the
// stream's. `prompt`: nothing is before it on the GPU. The lock is held, and let go for a while.
// False: there is none to be had, another thread puts one there just now, or `recorder` is kOther
// and it might have to wait.
bool RecordMarker(Markers* markers, MarkedStream* stream, Recorder recorder, uint32_t launches,
                  bool begins, bool prompt = false);

// The call of the marker's one launch took so long: whether it was late.
void TellLate(const MarkedStream& stream, uint64_t call_ns, Marker* marker);

// Whether recording a marker might wait where the call in which it is recorded does not.
bool MightWait(Markers* markers, const MarkedStream& stream, Recorder recorder);

// cuStreamQuery, with the lock let go: the question waits while another thread waits for room in
// the stream's queue (H200). `*is_left`: somebody left the stream meanwhile, and what it has is to
// be marked. CUDA_ERROR_NOT_READY also when another thread puts a marker there just now, or when
// the context ended.
CUresult QueryStream(Markers* markers, MarkedStream* stream, CUstream asked, bool* is_left);

// The next launch into the stream begins a new run.
void StopRunning(MarkedStream* stream);

// As MarkStream. Without a marker to be had the launches stay counted, and the next one or the
// watcher tries again: false. As RecordMarker it lets the lock go for a while.
bool MarkLocked(Markers* markers, MarkedStream* stream, Recorder recorder);

// What has no marker goes on as if nothing else were put into the stream. True when one was put
// there.
bool LeaveLocked(Markers* markers, MarkedStream* stream, Recorder recorder);

// Whether the stream may have a marker that is not directly behind a launch.
bool MayMarkLate(const MarkedStream& stream);

// Whether what is put into the stream waits for something that is no kernel in the legacy stream;
// once for each time that it does.
bool WaitsForLegacy(Markers* markers, MarkedStream* stream);

}  // namespace gpufence
