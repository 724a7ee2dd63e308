#include "device/markers/looks.h"

#include <algorithm>

#include "base/tuning.h"
#include "device/context_scope.h"
#include "device/markers/gaps.h"
#include "device/markers/markers.h"
#include "real.h"

namespace gpufence {
namespace {

// ---- looks ----

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

// Whether the wait for a run that no marker begins may yet tell of it, as it does of others.
bool IsToldByHost(const MarkedStream& stream, uint32_t launches, uint64_t now_ns) {
  const WaitedRuns& runs = stream.waited;
  return stream.by_host && now_ns < runs.host_begin_ns + MostSpanNs(runs, launches);
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
  const uint64_t estimate_ns = stream->run_begin_ns + launches * ApartNs(*stream);
  // Of these launches; a marker behind them takes both.
  const uint32_t inner_ns = stream->inner_ns.load(std::memory_order_relaxed);
  const bool meets = stream->meets.load(std::memory_order_relaxed);
  const bool is_idle = AskTail(markers, stream, launches, estimate_ns, look);
  if (is_idle && stream->awaited.load(std::memory_order_relaxed)) return;
  // Where the run went on behind a wait or a copy nobody knows when they were done.
  const bool mixes = stream->mixes.load(std::memory_order_relaxed);
  uint64_t end_ns = look.now_ns;
  if (is_idle && !mixes && stream->ns_per_launch != 0) end_ns = std::min(end_ns, estimate_ns);
  if (stream->is_timed) {
    if (!is_idle) end_ns -= kTuning.clock_doubt_ns;
    const uint64_t host_ns =
        look.alone && !mixes ? end_ns - std::min(end_ns, stream->run_begin_ns.load()) : 0;
    // A marker behind them would have been reached at once.
    const MarkerReached reached = is_idle ? MarkerReached::kAtOnce : MarkerReached::kUnknown;
    TellRunning(*markers, stream,
                {launches, inner_ns, stream->LeadNs(), 0, host_ns, false, 0, meets, reached,
                 stream->IsQueued()},
                end_ns, look);
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

// ---- ends ----

bool IsMeant(const MarkedContext& context, CUcontext handle, uint32_t ordinal) {
  const uint64_t seen = context.handle.load(std::memory_order_relaxed);
  if (seen == 0) return false;
  return handle != nullptr ? seen == reinterpret_cast<uint64_t>(handle)
                           : context.is_primary && context.ordinal == ordinal;
}

// Its context ended. True when the stream lives all the same: who launches while others end a
// primary context holds it as well, so that this is its next life, under the same handle.
bool End(Markers* markers, MarkedStream* stream, uint64_t now_ns, BusyList* busy) {
  TellClosed(stream, busy);
  const bool is_active = markers->streams.IsActive(stream);
  if (stream->first != kNoMarker || (stream->is_timed && is_active)) {
    const uint64_t since_ns =
        stream->is_timed ? stream->charged_ns : markers->pool[stream->first].recorded_ns;
    busy->Add(stream->ordinal, since_ns, now_ns);
  }
  stream->first = stream->last = kNoMarker;
  stream->queued = 0;
  stream->waited.begin_ns = 0;
  if (stream->waited.began_away) {
    stream->BeginAt(now_ns);
    return true;
  }
  stream->handle.store(0, std::memory_order_release);
  stream->word.fetch_and(MarkedStream::kLife, std::memory_order_relaxed);
  markers->streams.SetActive(stream, false);
  return false;
}

}  // namespace

// ---- looks ----

void CollectStream(Markers* markers, MarkedStream* stream, StreamLook* look) {
  TellClosed(stream, look->busy);
  const size_t over = CountOver(markers, stream);
  look->now_ns = NowNs();  // what is over was so before this, not before the questions
  TakeOver(markers, stream, over, look);
  if (stream->first == kNoMarker) return CollectTail(markers, stream, *look);
  const Marker& next = markers->pool[stream->first];
  if (next.begins || !stream->is_timed) return;
  const uint64_t behind_ns = look->now_ns - std::min(look->now_ns, next.recorded_ns);
  if (next.late_ns != 0 && WaitedForCall(*stream, behind_ns)) return;  // that is known soon
  // It runs: paid for up to now.
  const bool is_later = behind_ns >= kTuning.behind_ns;
  const uint64_t ran_ns = look->now_ns - std::min(look->now_ns, stream->run_begin_ns.load());
  const uint64_t host_ns = look->alone ? CaughtUpNs(*stream, next.host_ns, next.recorded_ns) : 0;
  TellRunning(
      *markers, stream,
      {next.launches, next.inner_ns, stream->LeadNs(), 0, host_ns, next.tells_late, 0, next.meets,
       is_later ? MarkerReached::kLater : MarkerReached::kUnknown, next.queued, next.IsSingle()},
      look->now_ns - kTuning.clock_doubt_ns, *look);
  if (!next.meets && ran_ns > 2 * next.launches * stream->ns_per_launch + kTuning.spacing_ns) {
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

size_t TakeDoubtful(Markers* markers, uint64_t now_ns, DoubtfulSample taken[kMostDoubtful]) {
  size_t count = 0;
  const StreamsGuard guard(&markers->streams);
  if (!guard) return 0;
  for (DoubtfulSample& sample : markers->doubtful) {
    if (sample.end_ns == 0 || now_ns < sample.end_ns + kToldNs) continue;
    taken[count++] = sample;
    sample = {};
  }
  return count;
}

void SettleSample(Markers* markers, const DoubtfulSample& sample) {
  const StreamsGuard guard(&markers->streams);
  MarkedStream* stream = &markers->streams.At(sample.stream);
  const uint32_t life = stream->word.load(std::memory_order_relaxed) & MarkedStream::kLife;
  if (guard && life == sample.life) LearnUndisturbed(stream, sample.own_ns);
}

// ---- forecasts ----

bool AllStandAtHold(Markers* markers, uint32_t ordinal) {
  const StreamsGuard guard(&markers->streams);
  if (!guard) return false;
  bool all = true;
  markers->streams.ForEachActive([&](const MarkedStream* stream) {
    if (stream->ordinal != ordinal) return;
    if (!markers->yields.IsHoldClosed(ordinal, stream->holds_at)) return;
    all &= stream->first == kNoMarker || markers->pool[stream->first].begins;
  });
  return all;
}

bool KernelsRun(Markers* markers, uint32_t ordinal) {
  const StreamsGuard guard(&markers->streams);
  if (!guard) return false;
  bool runs = false;
  markers->streams.ForEachActive([&](MarkedStream* stream) {
    if (stream->ordinal != ordinal || !stream->is_timed) return;
    const uint32_t word = stream->word.load(std::memory_order_relaxed);
    runs |= stream->first != kNoMarker ? !markers->pool[stream->first].begins
                                       : (word & MarkedStream::kLaunches) != 0;
  });
  return runs;
}

uint64_t LaunchNs(Markers* markers, uint32_t ordinal) {
  uint64_t shortest_ns = 0;
  markers->streams.ForEachActive([&](MarkedStream* stream) {
    const uint64_t mean_ns = stream->mean_ns.load(std::memory_order_relaxed);
    if (stream->ordinal != ordinal || mean_ns == 0) return;
    shortest_ns = shortest_ns == 0 ? mean_ns : std::min(shortest_ns, mean_ns);
  });
  return shortest_ns;
}

uint64_t ExpectedNs(Markers* markers, uint64_t now_ns) {
  const StreamsGuard guard(&markers->streams);
  if (!guard) return UINT64_MAX;
  uint64_t soonest_ns = UINT64_MAX;
  markers->streams.ForEachActive([&](MarkedStream* stream) {
    if (stream->first == kNoMarker) return;
    uint64_t left_ns = 0;  // what was not seen to begin may be over at any moment
    if (stream->is_timed && !markers->pool[stream->first].begins && now_ns > stream->run_begin_ns) {
      const uint64_t ran_ns = now_ns - stream->run_begin_ns;
      const uint64_t told_ns = markers->pool[stream->first].launches * stream->ns_per_launch;
      left_ns = told_ns > ran_ns ? told_ns - ran_ns : ran_ns / 8;
    }
    soonest_ns = std::min(soonest_ns, left_ns);
  });
  return soonest_ns;
}

uint64_t LeftNs(Markers* markers, uint32_t ordinal, uint64_t now_ns) {
  const StreamsGuard guard(&markers->streams);
  if (!guard) return 0;
  uint64_t least_ns = UINT64_MAX;
  markers->streams.ForEachActive([&](MarkedStream* stream) {
    if (stream->ordinal != ordinal) return;
    const bool begins = stream->first != kNoMarker && markers->pool[stream->first].begins;
    const bool known = stream->is_timed && stream->is_trusted && !begins;
    const uint64_t lately_ns = stream->QueuedLaunches() * stream->ns_per_launch;
    const uint64_t end_ns =
        known ? stream->run_begin_ns + std::min(stream->QueuedNs(), lately_ns) : 0;
    least_ns = std::min(least_ns, end_ns > now_ns ? end_ns - now_ns : 0);
  });
  return least_ns != UINT64_MAX ? least_ns : 0;
}

uint64_t EndsNs(Markers* markers, uint32_t ordinal, uint64_t now_ns) {
  const StreamsGuard guard(&markers->streams);
  if (!guard) return 0;
  uint64_t latest_ns = 0;
  bool known = true;
  markers->streams.ForEachActive([&](MarkedStream* stream) {
    if (stream->ordinal != ordinal) return;
    const uint32_t launches =
        stream->word.load(std::memory_order_relaxed) & MarkedStream::kLaunches;
    const uint64_t end_ns =
        stream->run_begin_ns + (stream->queued + launches) * stream->ns_per_launch;
    // What takes longer than it should may take any time.
    known &= stream->is_timed && stream->is_trusted && stream->steady == kTuning.enough &&
             end_ns + kTuning.clock_doubt_ns > now_ns &&
             (stream->first == kNoMarker || !markers->pool[stream->first].begins);
    latest_ns = std::max(latest_ns, end_ns);
  });
  return known ? latest_ns : 0;
}

// ---- ends ----

Forgotten ForgetStream(Markers* markers, CUstream handle, uint64_t* since_ns) {
  MarkedStream* stream = markers->streams.Find(handle);
  if (stream == nullptr) return Forgotten::kMarked;
  const StreamsGuard guard(&markers->streams);
  if (!guard) return Forgotten::kMarked;
  markers->streams.Await([stream] { return stream->recorder != Recorder::kOther; });
  const bool might_wait = MightWait(markers, *stream, Recorder::kBefore);
  const bool is_marked = MarkLocked(markers, stream, Recorder::kBefore);
  *since_ns = stream->is_timed ? stream->charged_ns : stream->waited.host_begin_ns;
  // Without a handle it must not be marked any more: that would be the legacy stream.
  stream->word.fetch_and(~MarkedStream::kRunning, std::memory_order_relaxed);
  stream->handle.store(0, std::memory_order_release);
  if (is_marked) return Forgotten::kMarked;
  return might_wait ? Forgotten::kHeldUp : Forgotten::kUnmarked;
}

// What was launched is marked, so that whoever launches from now on begins a run and is known.
uint64_t SuspendContexts(Markers* markers, CUcontext handle, uint32_t ordinal) {
  static_assert(kMostMarkedContexts <= 64);
  uint64_t suspended = 0;
  const StreamsGuard guard(&markers->streams);
  if (!guard) return 0;
  for (uint16_t i = 1; i < kMostMarkedContexts; ++i) {
    MarkedContext* context = &markers->streams.Context(i);
    if (!IsMeant(*context, handle, ordinal)) continue;
    markers->streams.ForEachActive([&](MarkedStream* stream) {
      const bool is_per_thread = stream->thread.load(std::memory_order_relaxed) != 0;
      if (stream->context == i && !is_per_thread) LeaveLocked(markers, stream, Recorder::kOther);
    });
    if (!IsMeant(*context, handle, ordinal)) continue;  // another thread's call ended it meanwhile
    ++context->away;
    suspended |= uint64_t{1} << i;
  }
  for (uint64_t left = suspended; left != 0; left &= left - 1) {
    const MarkedContext* context =
        &markers->streams.Context(static_cast<uint16_t>(__builtin_ctzll(left)));
    markers->streams.Await([context] { return context->visitors == 0; });
  }
  return suspended;
}

void ResumeContexts(Markers* markers, uint64_t suspended, bool ended, uint64_t now_ns,
                    BusyList* busy) {
  if (suspended == 0) return;
  const StreamsGuard guard(&markers->streams);
  for (; suspended != 0; suspended &= suspended - 1) {
    const auto i = static_cast<uint16_t>(__builtin_ctzll(suspended));
    MarkedContext* context = &markers->streams.Context(i);
    --context->away;
    bool lives = false;
    markers->streams.ForEachOf(i, [&](MarkedStream* stream) {
      if (ended) lives |= End(markers, stream, now_ns, busy);
      stream->waited.began_away &= context->away != 0;
    });
    if (!ended) continue;
    markers->pool.Drop(i);
    context->ForgetEvents();
    if (!lives) context->handle.store(0, std::memory_order_relaxed);
  }
}

}  // namespace gpufence
