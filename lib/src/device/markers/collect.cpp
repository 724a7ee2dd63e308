#include "device/markers/collect.h"

#include <algorithm>

#include "device/capture_mode.h"
#include "device/context_scope.h"
#include "device/markers/legacy.h"
#include "device/markers/marking.h"
#include "device/markers/recording.h"
#include "device/markers/samples.h"
#include "device/markers/settling.h"
#include "device/markers/waits.h"
#include "real.h"

namespace gpufence {
namespace {

// What runs so much longer than before may be something else.
constexpr uint64_t kMuchLongerNs = 1'000'000;

// Unless a launch came between.
void GoIdle(Markers* markers, MarkedStream* stream, uint32_t word, uint64_t now_ns) {
  const uint32_t idle = word & (MarkedStream::kSparse | MarkedStream::kLife);
  if (!stream->word.compare_exchange_strong(word, idle, std::memory_order_acq_rel)) return;
  stream->CountDown(word & MarkedStream::kLaunches);
  stream->idle_since_ns = now_ns;
  stream->tail_seen = 0;
  stream->inner_ns.store(0, std::memory_order_relaxed);
  stream->meets.store(false, std::memory_order_relaxed);
  markers->streams.SetActive(stream, false);
}

// Whether the stream has anything left.
CUresult Ask(Markers* markers, MarkedStream* stream, CUstream asked) {
  bool is_left = false;
  const CUresult rc = QueryStream(markers, stream, asked, &is_left);
  if (is_left) LeaveLocked(markers, stream, Recorder::kOther);
  return rc;
}

// Whether all that was launched is done, as far as that may be asked. What is not done is marked,
// where that is possible.
bool AskTail(Markers* markers, MarkedStream* stream, uint32_t launches, uint64_t estimate_ns,
             const StreamLook& look) {
  const uint64_t handle = stream->handle.load(std::memory_order_relaxed);
  const bool is_per_thread = stream->thread.load(std::memory_order_relaxed) != 0;
  if (is_per_thread && look.captures) {
    // The legacy stream may not be asked; after a while without a call of its thread we must guess.
    const bool is_idle = stream->tail_seen == launches && look.now_ns > estimate_ns;
    stream->tail_seen = launches;
    return is_idle;
  }
  if (look.captures && MayBeCapturing(reinterpret_cast<CUstream>(handle))) return false;
  // Only its own thread can ask for it or mark it; the legacy stream is busy as long as it is.
  const uint64_t asked = is_per_thread ? kLegacyStream : handle;
  const CUresult rc = Ask(markers, stream, reinterpret_cast<CUstream>(asked));
  // Of a context that is dead, nothing runs.
  const bool is_idle = rc == CUDA_SUCCESS || (rc != CUDA_ERROR_NOT_READY && Fails(stream));
  if (!is_idle && !is_per_thread && MayMarkLate(*stream))
    MarkLocked(markers, stream, Recorder::kOther);
  return is_idle;
}

// Nothing marked is left. What was launched behind the last marker runs, or the stream is idle.
void CollectTail(Markers* markers, MarkedStream* stream, const StreamLook& look) {
  if (stream->recorder != Recorder::kNobody) return;  // what it counted is about to be marked
  const uint32_t word = stream->word.load(std::memory_order_acquire);
  const uint32_t launches = word & MarkedStream::kLaunches;
  const uint64_t handle = stream->handle.load(std::memory_order_relaxed);
  if (launches == 0 && (word & MarkedStream::kRunning) != 0 && stream->awaits_launch) {
    stream->awaits_launch = false;  // its launch may be under way
    return;
  }
  if (launches == 0 || (word & MarkedStream::kRunning) == 0 || handle == 0) {
    GoIdle(markers, stream, word, look.now_ns);
    return;
  }
  if (IsToldByHost(*stream, launches, look.now_ns)) return;
  const uint64_t estimate_ns = stream->run_begin_ns + launches * stream->ns_per_launch;
  // Of these launches; a marker behind them takes both.
  const uint32_t inner_ns = stream->inner_ns.load(std::memory_order_relaxed);
  const bool meets = stream->meets.load(std::memory_order_relaxed);
  const bool is_idle = AskTail(markers, stream, launches, estimate_ns, look);
  if (is_idle && stream->waited.is_waited_for) return;
  uint64_t end_ns = look.now_ns;
  if (is_idle && stream->ns_per_launch != 0) end_ns = std::min(end_ns, estimate_ns);
  if (stream->is_timed) {
    if (!is_idle) end_ns -= kClockDoubtNs;
    const uint64_t host_ns = look.alone ? end_ns - std::min(end_ns, stream->run_begin_ns) : 0;
    TellRunning(*markers, stream, {launches, inner_ns, stream->LeadNs(), 0, host_ns, meets}, end_ns,
                look);
  }
  if (is_idle) GoIdle(markers, stream, word, look.now_ns);
}

// Contexts with streams that are active, a bit each.
uint64_t ActiveContexts(StreamTable* streams) {
  static_assert(kMostMarkedContexts <= 64);
  uint64_t contexts = 0;
  streams->ForEachActive([&](MarkedStream* stream) { contexts |= uint64_t{1} << stream->context; });
  return contexts;
}

// The context's streams, in it. One that the thread cannot enter is dead; its events say so.
void CollectContext(Markers* markers, uint16_t index, StreamLook* look) {
  StreamTable* streams = &markers->streams;
  MarkedContext* context = &streams->Context(index);
  if (context->away != 0) return;
  const auto handle = reinterpret_cast<CUcontext>(context->handle.load(std::memory_order_relaxed));
  ++context->visitors;
  {
    const StreamsReleased released(streams);
    const ContextScope scope(handle);
    const StreamsTaken taken(streams);
    streams->ForEachActive([&](MarkedStream* stream) {
      if (stream->context == index) CollectStream(markers, stream, look);
    });
  }
  --context->visitors;
  streams->NoteDeparture();
}

}  // namespace

void CollectStream(Markers* markers, MarkedStream* stream, StreamLook* look) {
  TellSettled(stream, look->busy);
  const size_t over = CountOver(markers, stream);
  look->now_ns = NowNs();  // what is over was so before this, not before the questions
  TakeOver(markers, stream, over, look);
  if (stream->first == kNoMarker) return CollectTail(markers, stream, *look);
  const Marker& next = markers->pool[stream->first];
  if (next.begins || !stream->is_timed) return;
  // It runs: paid for up to now.
  const uint64_t ran_ns = look->now_ns - std::min(look->now_ns, stream->run_begin_ns);
  const uint64_t host_ns = look->alone ? CaughtUpNs(*stream, next.host_ns, next.recorded_ns) : 0;
  TellRunning(*markers, stream,
              {next.launches, next.inner_ns, stream->LeadNs(), 0, host_ns, next.meets},
              look->now_ns - kClockDoubtNs, *look);
  const bool is_sampled = markers->IsBeside(stream->ordinal, look->now_ns) &&
                          SampledNs(*stream, next.launches, look->now_ns) != UINT64_MAX;
  if (!next.meets && !is_sampled &&
      ran_ns > 2 * next.launches * stream->ns_per_launch + kMuchLongerNs) {
    // Far longer than before: what is queued behind it may be as long.
    stream->ns_per_launch = ran_ns / std::max(next.launches, 1u);
    stream->Space(1);
  }
}

void CollectAll(Markers* markers, uint64_t now_ns, bool captures, BusyList* busy) {
  StreamTable* streams = &markers->streams;
  StreamLook look = {now_ns, captures, busy};
  const StreamsGuard guard(streams);
  if (!guard) return;
  look.alone = streams->active_count() <= 1;
  for (uint64_t left = ActiveContexts(streams); left != 0; left &= left - 1) {
    CollectContext(markers, static_cast<uint16_t>(__builtin_ctzll(left)), &look);
  }
}

void CollectEnded(Markers* markers, MarkedStream* stream, BusyList* busy) {
  StreamLook look = {NowNs(), /*captures=*/false, busy};
  const CaptureRelaxed relaxed;  // another thread's capture may begin at any moment
  const StreamsGuard guard(&markers->streams);
  if (!guard) return;
  const MarkedContext& context = markers->streams.ContextOf(*stream);
  const bool is_marked =
      stream->first != kNoMarker &&
      (stream->word.load(std::memory_order_relaxed) & MarkedStream::kLaunches) == 0;
  if (context.away != 0 || context.blind || !is_marked || !markers->streams.IsHere(*stream) ||
      !IsOver(markers, stream, markers->pool[stream->last])) {
    return;
  }
  look.alone = markers->streams.IsOnlyActive(stream);
  CollectStream(markers, stream, &look);
}

}  // namespace gpufence
