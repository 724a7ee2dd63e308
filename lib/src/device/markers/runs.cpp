#include "device/markers/runs.h"

#include <algorithm>

#include "base/tuning.h"
#include "device/context_scope.h"
#include "device/markers/gaps.h"
#include "device/markers/looks.h"
#include "device/markers/markers.h"
#include "real.h"

namespace gpufence {
namespace {

// ---- runs that the next one closes ----

// Whether all of the run is between its begin by the host's clock and the one marker that is left,
// and nothing of it was told.
bool IsWhollyUnread(const Markers& markers, const MarkedStream& stream) {
  return stream.closed_runs.is_unread && stream.closed_runs.unread != 0 &&
         stream.first == stream.last && !markers.pool[stream.first].begins && stream.is_timed &&
         stream.charged_ns == stream.run_begin_ns;
}

// What the samples took stands for it.
void CloseUnread(Markers* markers, MarkedStream* stream, uint64_t span_ns) {
  ClosedRuns* runs = &stream->closed_runs;
  --runs->unread;
  runs->closed_ns += std::min(runs->sample_ns, span_ns);
  runs->closed_until_ns = stream->waited.host_begin_ns;
  stream->queued -= markers->pool[stream->first].launches;
  stream->others_over = markers->pool[stream->first].others;
  markers->CountReached(*stream);
  markers->pool.Return(stream->first);
  stream->first = stream->last = kNoMarker;
}

// Whether the run that begins needs no marker for that. Beside other streams all are read.
bool MayGoUnread(const Markers& markers, const MarkedStream& stream) {
  return stream.closed_runs.unread != 0 && markers.streams.IsOnlyActive(&stream);
}

// All markers of the stream, if it has any, are over, and the next run begins. The last one began
// at `last_begin_ns` by the host's clock.
void CloseLast(Markers* markers, MarkedStream* stream, uint64_t last_begin_ns) {
  // The last run alone may have been a long one.
  const uint64_t launch_ns = std::min<uint64_t>(stream->ns_per_launch, stream->mean_ns);
  if (stream->first == kNoMarker || launch_ns >= kTuning.brief_launch_ns || !stream->is_trusted ||
      !markers->streams.IsOnlyActive(stream) || !markers->streams.IsHere(*stream)) {
    return;
  }
  ClosedRuns* runs = &stream->closed_runs;
  const uint64_t span_ns = stream->waited.host_begin_ns - last_begin_ns;
  const bool is_usual = IsUsual(runs, span_ns);
  if (is_usual && IsWhollyUnread(*markers, *stream)) return CloseUnread(markers, stream, span_ns);
  const Marker& first = markers->pool[stream->first];
  runs->is_sample = is_usual && first.begins && first.next == stream->last;
  if (runs->is_sample) runs->unread = stream->Random() % (2 * kTuning.enough + 1);
  size_t over = 0;
  for (uint16_t i = stream->first; i != kNoMarker; i = markers->pool[i].next) ++over;
  BusyIntervals<1> busy;
  StreamLook look = {NowNs(), /*captures=*/false, &busy};
  look.alone = true;
  const CaptureRelaxed relaxed;  // another thread's capture may begin at any moment
  TakeOver(markers, stream, over, &look);
  for (const BusyInterval& ran : busy) {
    runs->closed_ns += ran.end_ns - ran.begin_ns;
    runs->closed_until_ns = ran.end_ns;
  }
}

// ---- runs ----

enum class Doing : uint8_t { kUnknown, kKernels, kIdle, kWaits };

// A run that no marker begins, because something is in the stream already, or because nothing may
// be asked of its context, which may be about to end.
void BeginLate(Markers* markers, MarkedStream* stream, bool was_idle) {
  const bool is_launched =
      (stream->word.load(std::memory_order_relaxed) & MarkedStream::kLaunches) != 0;
  const bool is_late = is_launched && was_idle && stream->first == kNoMarker;
  stream->by_host = false;
  stream->waited.began_away |= markers->streams.ContextOf(*stream).away != 0;
  if (stream->first == kNoMarker) {
    // The call took long, or the stream would not have been idle: since then it is the host's time.
    if (is_late) stream->gaps.host_mark_ns = stream->idle_since_ns;
    stream->BeginAt(stream->gaps.host_mark_ns);
  }
  stream->word.fetch_or(MarkedStream::kRunning, std::memory_order_release);
  const bool is_marked = MarkLocked(markers, stream, Recorder::kSelf);
  if (!is_late || !is_marked || stream->last == kNoMarker) return;
  Marker* marker = &markers->pool[stream->last];
  TellLate(*stream, marker->host_ns, marker);
}

// What a stream that is not running does, where nothing but kernels was put into it.
Doing DoingOf(const Markers& markers, const MarkedStream& stream, bool captures) {
  if (!stream.goes_on.load(std::memory_order_relaxed)) return Doing::kUnknown;
  if (stream.first == kNoMarker) return Doing::kIdle;
  if (captures) return Doing::kUnknown;
  const CaptureRelaxed relaxed;  // another thread's capture may begin at any moment
  const CUresult rc = real::cuEventQuery(markers.pool[stream.last].event);
  if (rc == CUDA_ERROR_NOT_READY) return Doing::kKernels;
  return rc == CUDA_SUCCESS ? Doing::kIdle : Doing::kUnknown;
}

// Whether the host's clock tells well enough when a run begins in an idle stream. Where kernels are
// so short that this would matter, a marker tells, unless what others took stands for it; and now
// and then, so that the clocks agree.
bool HostCanBegin(const Markers& markers, const MarkedStream& stream) {
  const MarkedContext& context = markers.streams.ContextOf(stream);
  return stream.is_trusted &&
         (stream.ns_per_launch >= kTuning.brief_launch_ns || MayGoUnread(markers, stream)) &&
         context.clock.IsSharp() &&
         stream.waited.host_begin_ns - context.prompted_ns < 2 * kTuning.look_ns;
}

// What is a sample has a marker, or waits would learn nothing. False: there is none to be had.
bool BeginNow(Markers* markers, MarkedStream* stream, bool was_idle, Doing doing, bool is_sample) {
  if (doing == Doing::kIdle && !is_sample && HostCanBegin(*markers, *stream)) {
    stream->closed_runs.is_unread = stream->ns_per_launch < kTuning.brief_launch_ns;
    stream->waited.begin_ns = stream->waited.host_begin_ns;
    if (stream->first == kNoMarker) stream->TakeBegin(&stream->waited.begin_ns);
    return true;
  }
  stream->closed_runs.is_unread = false;
  const bool prompt = doing != Doing::kWaits && (was_idle || doing == Doing::kIdle);
  if (!RecordMarker(markers, stream, Recorder::kSelf, 0, /*begins=*/true, prompt)) return false;
  stream->waited.marked_ns = stream->gaps.host_mark_ns;
  if (was_idle) stream->is_timed = false;
  if (prompt) markers->streams.ContextOf(*stream).prompted_ns = stream->waited.host_begin_ns;
  return true;
}

// The next marker stands behind so many launches, if not sooner.
void MarkWithin(MarkedStream* stream, uint32_t launches) {
  const uint32_t mark_at = stream->mark_at.load(std::memory_order_relaxed);
  stream->mark_at.store(std::min(mark_at, launches), std::memory_order_relaxed);
}

// The run that begins is as long as the last one, probably: a marker directly behind it tells when
// it ended, also where the program does something else before it waits.
void MarkBehindRun(MarkedStream* stream) {
  MarkWithin(stream, std::max(stream->waited.launches, 1u));
}

// A run that goes on for longer than those that waits told of is none of them: markers tell of it.
void MarkBeyondRun(MarkedStream* stream) {
  MarkWithin(stream, 2 * std::max(stream->waited.launches, 1u));
}

// Nothing will tell how long the gap of the last probe was.
void DropGap(MarkedStream* stream) {
  stream->next_tells = Tells::kNothing;
  if (stream->gaps.open.lacks_next) stream->gaps.open = {};
}

// The next launch was to tell something, but the run ended. The first one of this run has a marker
// in front of it as well, and takes its place. Else the first launch behind an event would never be
// a sample or a probe, however long it takes. What is behind a probe tells nothing any more: the
// pause before it is no part of a run.
void TellByFirst(Markers* markers, MarkedStream* stream, bool was_held) {
  const uint32_t word = stream->word.fetch_and(~MarkedStream::kProbe, std::memory_order_relaxed);
  const bool is_asked = (word & MarkedStream::kProbe) != 0;
  if (stream->next_tells == Tells::kGap) {
    DropGap(stream);
    return;
  }
  const bool is_marked = stream->last != kNoMarker && markers->pool[stream->last].begins;
  if (was_held || !is_marked) return;
  if (stream->next_tells != Tells::kSample) {
    if (!is_asked) return;
    stream->next_tells = Tells::kProbe;
    markers->pool[stream->last].probes = true;
  }
  MarkWithin(stream, 1);
}

// A run whose kernels the host is slower than has a probe: as short as it is, none of the markers
// that are put now and then may fall into it. Once enough of them are known, fewer have. The last
// launch has no gap behind it.
void ProbeRun(MarkedStream* stream) {
  const WaitedRuns& runs = stream->waited;
  if (!runs.is_first || !runs.is_host_bound) return;
  const bool is_known = stream->gaps.probes >= kTuning.least_probes;
  if (is_known && stream->Random() % kTuning.probes_seldom != 0) return;
  const uint32_t before = stream->Random() % (std::max(runs.launches, 2u) - 1);
  if (before != 0) return MarkWithin(stream, before);
  stream->word.fetch_or(MarkedStream::kProbe, std::memory_order_relaxed);
}

// The launch behind a probe is here.
void TellGap(Markers* markers, MarkedStream* stream) {
  const LaunchGaps& gaps = stream->gaps;
  const uint64_t came_ns = gaps.host_mark_ns + LeftOfRecordNs(gaps.record_ns);
  const uint64_t now_ns = std::max(NowNs(), came_ns + 1);
  stream->next_tells = Tells::kNothing;
  if (stream->last != kNoMarker) {
    markers->pool[stream->last].next_ns = now_ns - came_ns;
  } else if (gaps.open.lacks_next) {
    EndGap(markers->PausesOf(stream->ordinal), stream, now_ns - came_ns);
  }
}

// Puts a marker before a launch where the one before it asked for that. Of a launch that was held
// it tells nothing; but the pause is not charged.
void PutProbe(Markers* markers, MarkedStream* stream, bool was_held) {
  const bool is_sample = stream->next_tells == Tells::kSample;
  if (was_held && is_sample) return;
  const uint32_t word = stream->word.fetch_and(~MarkedStream::kProbe, std::memory_order_relaxed);
  if ((word & MarkedStream::kProbe) == 0) return;
  if (stream->next_tells == Tells::kGap) {
    const bool is_other = was_held || (word & MarkedStream::kLaunches) != 0 ||
                          stream->mixes.load(std::memory_order_relaxed);
    return is_other ? DropGap(stream) : TellGap(markers, stream);
  }
  const MarkedContext& context = markers->streams.ContextOf(*stream);
  if ((word & MarkedStream::kLaunches) != 0 || context.away != 0 || context.blind ||
      !RecordMarker(markers, stream, Recorder::kSelf, 0, /*begins=*/true)) {
    return;
  }
  if (!is_sample) stream->next_tells = was_held ? Tells::kNothing : Tells::kProbe;
  markers->pool[stream->last].probes = stream->next_tells == Tells::kProbe;
  if (!was_held) MarkWithin(stream, 1);
  stream->waited.marked_ns = stream->gaps.host_mark_ns;
  stream->launched_ns.store(0, std::memory_order_relaxed);
  stream->awaits_launch = true;
}

// All that is in the stream is over, and who waited for it knows.
void NoteOver(MarkedStream* stream) {
  stream->waited.is_over = true;
  stream->waited.others_over = stream->others_put.load(std::memory_order_relaxed);
}

// Whether nothing is in the stream but the launch that comes. Behind a copy, which nobody waited
// for, the host's clock would tell the copy's time with the kernels'.
bool IsFirst(const MarkedStream& stream) {
  return stream.waited.is_over &&
         stream.waited.others_over == stream.others_put.load(std::memory_order_relaxed);
}

// What was known of a run when the next one began, by the host's clock.
struct LastRun {
  uint64_t begin_ns;
  uint64_t marked_ns;  // when the GPU had its last marker ...
  uint64_t held_ns;    // ... and how long launches were held since
};

// A run that the host's clock begins, or a marker; or the last one goes on behind a wait, since the
// GPU is still at it: then all of the host's time since its last marker is in its next interval.
bool BeginOrGoOn(Markers* markers, MarkedStream* stream, bool was_idle, Doing doing, bool was_held,
                 const LastRun& last) {
  const bool is_sample = doing != Doing::kWaits && IsSampleOfWaits(*markers, *stream);
  if (is_sample) MarkBehindRun(stream);
  ProbeRun(stream);
  if (doing == Doing::kKernels) {
    stream->gaps.host_mark_ns = last.marked_ns;
    stream->gaps.held_ns = last.held_ns;
    PutProbe(markers, stream, was_held);
    return true;
  }
  if (doing == Doing::kIdle) CloseLast(markers, stream, last.begin_ns);
  if (!BeginNow(markers, stream, was_idle, doing, is_sample)) return false;
  TellByFirst(markers, stream, was_held);
  return true;
}

}  // namespace

Begun BeginRun(Markers* markers, MarkedStream* stream, CUstream handle, HeldNs held, bool captures,
               uint32_t uncounted) {
  const StreamsGuard guard(&markers->streams);
  if (!guard) return Begun::kYes;
  if (!StreamTable::IsOf(*stream, handle)) return Begun::kOtherStream;
  if (uncounted != 0) stream->word.fetch_add(uncounted, std::memory_order_relaxed);
  if ((stream->word.load(std::memory_order_relaxed) & MarkedStream::kRunning) != 0) {
    stream->gaps.held_ns += held.at_all;
    PutProbe(markers, stream, held.at_all != 0);
    return Begun::kYes;
  }
  if (stream->recorder != Recorder::kNobody) return Begun::kYes;  // who is there begins it
  const MarkedContext& context = markers->streams.ContextOf(*stream);
  if (context.blind) return Begun::kNotMarked;
  const bool was_idle = !markers->streams.IsActive(stream);
  if (was_idle && held.unasked_ns != 0) return Begun::kMustAsk;
  const uint64_t now_ns = held.unasked_ns != 0 ? held.unasked_ns : NowNs();
  const bool is_beside = markers->IsBeside(stream->ordinal, now_ns);
  // Beside others the first marker may be reached as late as they leave the GPU to us: who had to
  // wait for that with the rest would lose it again at once.
  if (was_idle && now_ns - stream->idle_since_ns > kTuning.pause_ns + held.at_all && !is_beside) {
    stream->Space(1);
    stream->is_trusted = false;
  }
  stream->waited.is_first = IsFirst(*stream);
  stream->waited.is_over = false;
  const LastRun last = {stream->waited.host_begin_ns, stream->gaps.host_mark_ns,
                        stream->gaps.held_ns + held.at_all};
  stream->waited.host_begin_ns = stream->waited.marked_ns = stream->gaps.host_mark_ns = now_ns;
  stream->gaps.held_ns = 0;
  stream->mixes.store(false, std::memory_order_relaxed);
  stream->whole.store(false, std::memory_order_relaxed);
  stream->launched_ns.store(held.on_gpu ? MarkedStream::kBeforehand : 0, std::memory_order_relaxed);
  stream->came_ns.store(stream->waited.host_begin_ns, std::memory_order_relaxed);
  const bool waits =
      WaitsForLegacy(markers, stream) || held.by_others != 0 || held.on_gpu || is_beside;
  stream->by_host = !waits && HostIsEnough(*markers, *stream);
  if (context.away != 0 ||
      (stream->word.load(std::memory_order_relaxed) & MarkedStream::kLaunches) != 0) {
    TellByFirst(markers, stream, /*was_held=*/true);
    BeginLate(markers, stream, was_idle);
  } else if (stream->by_host) {
    stream->BeginAt(stream->waited.host_begin_ns);
    MarkBeyondRun(stream);
    TellByFirst(markers, stream, held.at_all != 0);
  } else {
    const Doing doing = waits ? Doing::kWaits : DoingOf(*markers, *stream, captures);
    if (!BeginOrGoOn(markers, stream, was_idle, doing, held.at_all != 0, last)) {
      return Begun::kNotMarked;
    }
  }
  if (held.at_all != 0 && !held.on_gpu && !stream->by_host) stream->FallBehind();
  stream->word.fetch_or(MarkedStream::kRunning, std::memory_order_release);
  stream->awaits_launch = true;
  markers->begun.store(markers->begun.load(std::memory_order_relaxed) + 1,
                       std::memory_order_relaxed);
  if (was_idle) markers->streams.SetActive(stream, true);
  return Begun::kYes;
}

bool CameToIdle(Markers* markers, MarkedStream* stream, CUstream handle, bool captures) {
  const uint64_t now_ns = NowNs();
  const uint64_t last_ns = stream->came_ns.exchange(now_ns, std::memory_order_relaxed);
  const uint32_t word = stream->word.load(std::memory_order_relaxed);
  // A probe tells more of the pause, which is not charged either.
  const bool runs =
      (word & (MarkedStream::kRunning | MarkedStream::kProbe)) == MarkedStream::kRunning;
  const bool is_behind = stream->behind.load(std::memory_order_relaxed) != 0;
  const uint64_t pause_ns = is_behind ? kTuning.behind_ns : kTuning.sparse_launch_ns;
  const uint64_t apart_ns = markers->CallsBlock() ? 0 : pause_ns;
  if (!runs || now_ns < last_ns + apart_ns || captures || stream->by_host) return false;
  const CaptureRelaxed relaxed;  // another thread's capture may begin at any moment
  const bool is_idle = real::cuStreamQuery(handle) == CUDA_SUCCESS;
  stream->marks_each.store(is_idle, std::memory_order_relaxed);
  // What has no marker yet would have one only here, at the end of the pause.
  if (!is_idle || (word & MarkedStream::kLaunches) != 0) return false;
  const StreamsGuard guard(&markers->streams);
  if (guard) LeaveLocked(markers, stream, Recorder::kSelf);
  return true;
}

// ---- runs that the program waits for ----

namespace {

// False when the run is not what it was before the wait.
bool TakeByHost(Markers* markers, MarkedStream* stream, uint32_t launches, uint64_t now_ns,
                BusyList* busy) {
  uint32_t word = stream->word.load(std::memory_order_relaxed);
  const bool is_as_it_was =
      stream->by_host && stream->first == kNoMarker && stream->recorder == Recorder::kNobody &&
      (word & MarkedStream::kRunning) != 0 && (word & MarkedStream::kLaunches) == launches;
  if (!is_as_it_was || !stream->word.compare_exchange_strong(word, word & MarkedStream::kLife,
                                                             std::memory_order_acq_rel)) {
    return false;
  }
  WaitedRuns* runs = &stream->waited;
  const uint64_t called_ns = std::min(runs->host_begin_ns + stream->LeadNs(), now_ns);
  uint64_t span_ns = now_ns - called_ns;
  const uint64_t inner_ns = stream->TakeInner();
  const uint64_t busy_ns =
      BusyByHostNs(markers->PausesOf(stream->ordinal), runs, launches, inner_ns, &span_ns);
  runs->extra.CountTold(span_ns);
  runs->launches = launches;
  stream->is_timed = false;
  stream->meets.store(false, std::memory_order_relaxed);
  markers->CountReached(*stream);
  const uint64_t begin_ns = std::max(stream->charged_ns, called_ns + (span_ns - busy_ns) / 2);
  busy->Add(stream->ordinal, begin_ns, std::min(begin_ns + busy_ns, now_ns));
  return true;
}

// All that is in the stream is done: what is marked tells when, and of the rest it is reckoned.
void TakeEnded(Markers* markers, MarkedStream* stream, uint64_t now_ns, BusyList* busy) {
  const StreamTable& streams = markers->streams;
  if (streams.ContextOf(*stream).away != 0 || !streams.IsHere(*stream)) return;
  const CaptureRelaxed relaxed;  // another thread's capture may begin at any moment
  StreamLook look = {now_ns, /*captures=*/true, busy};
  look.alone = streams.IsOnlyActive(stream);
  CollectStream(markers, stream, &look);
}

// From a run of which the GPU's clock told `ran_ns`: what the host's adds, in the mean. A late host
// teaches as much of it as it would have cost. Runs that are marked because the one before took
// long teach nothing: a host that was late once is late again (on an H200, where waits sleep: 76 us
// behind such runs, 52 else), and the others would be charged too little.
void LearnExtra(const Markers& markers, MarkedStream* stream, uint64_t launches, uint64_t now_ns) {
  WaitedRuns* runs = &stream->waited;
  runs->longest_ns -= runs->longest_ns / (4 * kTuning.many);
  if (runs->marked_due > 0) --runs->marked_due;
  if (!runs->extra.IsDue()) return;
  const GpuPauses& pauses = markers.PausesOf(stream->ordinal);
  const uint64_t extra_ns = ExtraOf(
      pauses, *runs, {launches, now_ns - runs->marked_ns, stream->ran_ns, stream->LeadNs()});
  const uint64_t around_ns = stream->LeadNs() + pauses.around_run_ns;
  const uint64_t span_ns = stream->ran_ns - std::min(stream->ran_ns, around_ns) + extra_ns;
  runs->extra.Learn(extra_ns, span_ns, markers.waited_spacing_ns.load(std::memory_order_relaxed),
                    stream->Random());
}

// The markers of short runs are reached once these were waited for: taken here, the next run need
// not be marked because of them. One that had two tells what the host's clock adds.
void TakeMarked(Markers* markers, MarkedStream* stream, uint64_t now_ns, BusyList* busy) {
  const bool is_alone = markers->streams.IsOnlyActive(stream);
  const uint64_t most_ns = is_alone ? kTuning.host_told_launch_ns : kTuning.brief_launch_ns;
  if (stream->first == kNoMarker || stream->ns_per_launch >= most_ns) return;
  const Marker& first = markers->pool[stream->first];
  const bool is_one_run =
      first.begins && first.next == stream->last && !markers->pool[stream->last].begins;
  const uint32_t launches = markers->pool[stream->last].launches;
  const uint64_t host_ns = markers->pool[stream->last].host_ns;
  stream->ran_ns = 0;
  if (stream->closed_runs.is_unread) stream->closed_runs.unread = 0;  // the next one has both
  TakeEnded(markers, stream, now_ns, busy);
  stream->waited.launches = launches;
  if (is_one_run && stream->waited.is_first && stream->first == kNoMarker && stream->ran_ns != 0) {
    stream->waited.is_host_bound = MayWaitForHost(launches, host_ns, stream->ran_ns);
    LearnExtra(*markers, stream, launches, now_ns);
  }
}

// Whether waits have told what runs in a stream such as it is.
bool WaitsTell(const Markers& markers, const MarkedStream& stream) {
  const WaitedRuns& runs = stream.waited;
  return stream.is_trusted && runs.is_first && !runs.is_host_bound && runs.extra.ns() != 0 &&
         stream.first == kNoMarker && stream.ns_per_launch < kTuning.host_told_launch_ns &&
         markers.streams.IsOnlyActive(&stream);
}

bool IsSampleDue(const MarkedStream& stream) {
  return stream.waited.marked_due != 0 || stream.waited.extra.IsDue();
}

}  // namespace

uint32_t BeforeWait(Markers* markers, MarkedStream* stream) {
  if (!stream->IsTouched()) return 0;
  const uint32_t word = stream->word.load(std::memory_order_relaxed);
  const uint32_t launches = word & MarkedStream::kLaunches;
  const bool is_running = (word & MarkedStream::kRunning) != 0;
  // Without the lock: whether it is still so is asked after the wait.
  if (stream->by_host.load(std::memory_order_relaxed) && is_running && launches != 0) {
    stream->awaited.store(true, std::memory_order_relaxed);
    return launches;
  }
  if (GoesOn(markers, stream)) return 0;
  const StreamsGuard guard(&markers->streams);
  if (guard && MayMarkLate(*stream)) LeaveLocked(markers, stream, Recorder::kBefore);
  return 0;
}

void AfterWait(Markers* markers, MarkedStream* stream, CUstream handle, uint32_t launches,
               bool ended, uint64_t now_ns, BusyList* busy) {
  if (launches == 0 && GoesOn(markers, stream)) return;
  const StreamsGuard guard(&markers->streams);
  if (!guard || !StreamTable::IsOf(*stream, handle)) return;
  if (ended) NoteOver(stream);
  if (launches != 0) {
    stream->awaited.store(false, std::memory_order_relaxed);
    if (ended && TakeByHost(markers, stream, launches, now_ns, busy)) return;
    // The watcher marked it, or more was launched meanwhile.
    if (MayMarkLate(*stream)) LeaveLocked(markers, stream, Recorder::kOther);
  }
  if (!ended) return;
  if (MayMarkLate(*stream)) {
    TakeMarked(markers, stream, now_ns, busy);
  } else {
    TakeEnded(markers, stream, now_ns, busy);
  }
}

void AfterAnswer(Markers* markers, MarkedStream* stream, bool ended, BusyList* busy) {
  const uint32_t launches = stream->word.load(std::memory_order_relaxed) & MarkedStream::kLaunches;
  if (launches == 0 && !markers->streams.IsActive(stream)) return;
  if (!stream->by_host.load(std::memory_order_relaxed) && GoesOn(markers, stream)) return;
  const uint64_t now_ns = NowNs();
  const StreamsGuard guard(&markers->streams);
  if (!guard) return;
  if (!ended) {
    if (MayMarkLate(*stream)) LeaveLocked(markers, stream, Recorder::kOther);
    return;
  }
  NoteOver(stream);
  if (launches != 0 && TakeByHost(markers, stream, launches, now_ns, busy)) return;
  TakeMarked(markers, stream, now_ns, busy);
  TakeEnded(markers, stream, now_ns, busy);
}

bool HostIsEnough(const Markers& markers, const MarkedStream& stream) {
  return WaitsTell(markers, stream) && !IsSampleDue(stream);
}

bool IsSampleOfWaits(const Markers& markers, const MarkedStream& stream) {
  return WaitsTell(markers, stream) && IsSampleDue(stream);
}

}  // namespace gpufence
