// What the times of markers tell about when a stream ran (looks.h). Must not know who looks.
#include <algorithm>

#include "base/futex.h"
#include "base/part.h"
#include "base/tuning.h"
#include "device/markers/gaps.h"
#include "device/markers/looks.h"
#include "real.h"

namespace gpufence {
namespace {

// The base moves along, so that the driver's float of milliseconds stays exact to 30 ns.
constexpr int64_t kBaseReachNs = 500'000'000;
// A call that fails once may be chance; so often in a row, its context is dead or events are
// refused there.
constexpr uint8_t kMostFailures = 5;

constexpr size_t kMostAsked = 256;  // markers, at one look
// Intervals that are over together are read as one up to here.
constexpr uint64_t kJoinedNs = kTuning.rare_look_ns;

// Two intervals of a run that are over and short together count as one: each time that is read
// costs the watcher. True when the first marker is no more.
bool Join(MarkerPool* pool, MarkedStream* stream) {
  const uint16_t index = stream->first;
  const Marker& marker = (*pool)[index];
  const bool stands_alone =
      marker.begins || marker.samples || marker.late_ns != 0 || stream->gaps.open.gap_ns != 0;
  if (!stream->is_timed || !stream->is_trusted || stands_alone || marker.next == kNoMarker) {
    return false;
  }
  Marker* next = &(*pool)[marker.next];
  const uint64_t launches = marker.launches + next->launches;
  const bool follows = !next->begins && next->begin_ns == 0 && next->late_ns == 0;
  if (!follows || launches * stream->ns_per_launch > kJoinedNs) return false;
  next->launches += marker.launches;
  next->inner_ns += marker.inner_ns;
  next->host_ns += marker.host_ns + next->record_ns;
  next->tells_late &= marker.tells_late;
  next->record_ns = marker.record_ns;
  next->meets |= marker.meets;
  next->mixes |= marker.mixes;
  next->whole |= marker.whole;
  next->joined = static_cast<uint16_t>(next->joined + marker.joined + 1);
  stream->first = marker.next;
  pool->Return(index);
  return true;
}

// Its launches go on as those that have no marker yet: the stream tells when they are done.
void Unmark(MarkedStream* stream, const Marker& marker) {
  if (!stream->is_timed) {
    stream->run_begin_ns = marker.recorded_ns;
    stream->charged_ns = std::max(stream->charged_ns, marker.recorded_ns);
    stream->deducted_ns = 0;
    stream->is_timed = stream->is_fresh = true;
  }
  stream->word.fetch_add(marker.launches, std::memory_order_relaxed);
  stream->inner_ns.fetch_add(marker.inner_ns, std::memory_order_relaxed);
  if (marker.meets) stream->meets.store(true, std::memory_order_relaxed);
  if (marker.mixes) stream->mixes.store(true, std::memory_order_relaxed);
  if (marker.whole) stream->whole.store(true, std::memory_order_relaxed);
  stream->word.fetch_or(MarkedStream::kRunning, std::memory_order_release);
}

uint64_t ChargedUntilNs(const MarkedStream& stream, bool meets, uint64_t end_ns) {
  return meets ? std::min(end_ns, stream.run_begin_ns + kTuning.most_wait_ns) : end_ns;
}

// What is learned from such an interval: others may have been late once.
uint64_t LearnedNs(const MarkedStream& stream, const Marker& marker, uint64_t ran_ns) {
  if (!marker.meets) return ran_ns;
  const uint64_t usual_ns = std::max<uint64_t>(stream.ns_per_launch, kTuning.unknown_launch_ns);
  return std::min(ran_ns, std::max(marker.launches, 1u) * 4 * usual_ns);
}

// When the marker was reached, on the monotonic clock.
bool Reached(Markers* markers, MarkedStream* stream, const Marker& marker, StreamLook* look,
             uint64_t* at_ns) {
  MarkedContext* context = &markers->streams.Context(marker.context);
  const uint16_t index = stream->first;
  int64_t gpu_ns = context->base_ns;
  uint64_t since_ns = marker.recorded_ns;
  if (context->base != kNoMarker) {
    float ms = 0;
    if (real::cuEventElapsedTime(&ms, markers->pool[context->base].event, marker.event) !=
        CUDA_SUCCESS) {
      if (Fails(stream)) context->blind = true;
      // The base may be what is wrong: the next marker becomes another.
      markers->pool.Return(context->base);
      context->base = kNoMarker;
      context->clock = {};
      return false;
    }
    gpu_ns += static_cast<int64_t>(static_cast<double>(ms) * 1e6);
    stream->failures = 0;
  }
  if (context->base == kNoMarker && !marker.prompt) {
    // Nothing else tells the GPU's time; but a look ago it was not reached.
    since_ns = std::max(since_ns, look->now_ns - std::min(look->now_ns, kTuning.rare_look_ns));
  }
  if (context->base == kNoMarker || gpu_ns - context->base_ns > kBaseReachNs) {
    if (context->base != kNoMarker) markers->pool.Return(context->base);
    context->base = index;
    context->base_ns = gpu_ns;
  }
  const uint64_t before_ns = NowNs();
  const uint64_t raw_ns = RawNowNs();
  context->clock.NoteSlew(before_ns, raw_ns, NowNs());
  context->clock.Observe(gpu_ns, since_ns, look->now_ns, marker.prompt);
  *at_ns = std::min(context->clock.ToMonotonic(gpu_ns), look->now_ns);
  look->gpu_ns = gpu_ns;
  return true;
}

// What of an interval is nobody's, or others'.
struct NotOwn {
  uint64_t ns;
  uint64_t idle_ns;     // of it the GPU was with others, or waited for the host
  uint64_t between_ns;  // of it other streams of the process may have had the GPU
  bool is_own;          // all else is surely this stream's
};

// As if the GPU had waited for nobody.
NotOwn WithoutIdle(const NotOwn& rest) {
  return {rest.ns - rest.idle_ns, 0, rest.between_ns, false};
}

// How much of a part of that is idle time.
uint64_t IdleOf(const NotOwn& rest, uint64_t ns) {
  return rest.ns == 0 ? 0 : PartOf(ns, std::min(rest.idle_ns, rest.ns), rest.ns);
}

// Since the run began, without the time in which it stood for others.
uint64_t RanNsUntil(const Markers& markers, const MarkedStream& stream, uint64_t end_ns) {
  return end_ns - stream.run_begin_ns -
         markers.StoodOf(stream.ordinal).WithinNs(stream.run_begin_ns, end_ns);
}

// What was taken for somebody's waiting while the interval ran, and was none, is told after all: of
// the front of what was told before, where it was left out.
void TellLeftOut(const Markers& markers, MarkedStream* stream, const NotOwn& rest, uint64_t told_ns,
                 const StreamLook& look) {
  uint64_t kept_ns = rest.ns;
  uint64_t more_ns = stream->deducted_ns - rest.ns;
  stream->deducted_ns = rest.ns;
  markers.StoodOf(stream->ordinal)
      .ForEachOutside(stream->run_begin_ns, told_ns, [&](uint64_t since_ns, uint64_t until_ns) {
        const uint64_t begin_ns = since_ns + std::min(kept_ns, until_ns - since_ns);
        const uint64_t end_ns = begin_ns + std::min(more_ns, until_ns - begin_ns);
        look.busy->Add(stream->ordinal, begin_ns, end_ns);
        kept_ns -= begin_ns - since_ns;
        more_ns -= end_ns - begin_ns;
      });
}

// All up to `end_ns` but that, and in which it did not stand, as far as neither was told before.
void Tell(const Markers& markers, MarkedStream* stream, const NotOwn& rest, uint64_t end_ns,
          const StreamLook& look) {
  const uint64_t told_ns = std::max(stream->charged_ns, stream->run_begin_ns.load());
  if (stream->deducted_ns > rest.ns) TellLeftOut(markers, stream, rest, told_ns, look);
  if (end_ns <= told_ns) return;
  uint64_t left_ns = rest.ns - std::min(rest.ns, stream->deducted_ns);
  markers.StoodOf(stream->ordinal)
      .ForEachOutside(told_ns, end_ns, [&](uint64_t since_ns, uint64_t until_ns) {
        const uint64_t more_ns = std::min(left_ns, until_ns - since_ns);
        left_ns -= more_ns;
        look.busy->Add({since_ns + more_ns, until_ns, stream->ordinal, since_ns, rest.is_own,
                        std::min(rest.between_ns, more_ns), IdleOf(rest, more_ns)});
        stream->deducted_ns += more_ns;
      });
  stream->charged_ns = end_ns;
}

NotOwn NotOwnOf(const Markers& markers, const MarkedStream& stream, const IntervalContent& content,
                uint64_t ran_ns, uint64_t now_ns) {
  const GpuPauses& pauses = markers.PausesOf(stream.ordinal);
  const uint64_t pauses_ns = PausesNs(pauses, stream, content, ran_ns);
  const uint64_t own_ns =
      content.inner_ns == 0 ? SampledNs(markers, stream, content.launches, now_ns) : UINT64_MAX;
  if (own_ns != UINT64_MAX) {
    const uint64_t ns = std::max(pauses_ns, ran_ns - std::min(ran_ns, own_ns));
    return {ns, ns - pauses_ns, 0, true};
  }
  const uint64_t idle_ns = IdleNs(pauses, stream, content, ran_ns);
  return {pauses_ns + idle_ns, idle_ns, BetweenNs(pauses, content), false};
}

// What a launch of such an interval took, for what comes next: how much is queued, and when the
// next marker is due. Others' part of it says nothing about that.
void LearnRun(Markers* markers, MarkedStream* stream, const Marker& marker, uint64_t ran_ns,
              const NotOwn& rest) {
  const uint64_t launches = std::max(marker.launches, 1u);
  const uint64_t learned_ns = LearnedNs(*stream, marker, ran_ns);
  const uint64_t busy_ns = learned_ns - std::min(rest.idle_ns, learned_ns);
  const uint64_t each_ns = std::max((rest.is_own ? busy_ns : learned_ns) / launches, uint64_t{1});
  const bool known = stream->ns_per_launch != 0 && each_ns < 4 * stream->ns_per_launch;
  if (each_ns > markers->longest_ns.load(std::memory_order_relaxed)) {
    markers->longest_ns.store(each_ns, std::memory_order_relaxed);
  }
  stream->waited.longest_ns =
      std::min(std::max(stream->waited.longest_ns, busy_ns / launches), kTuning.look_ns);
  LearnMean(stream, marker.launches, learned_ns, busy_ns);
  if (marker.logged != 0) {
    markers->lengths.Learn(stream->log, marker.logged, marker.launches, busy_ns);
  }
  stream->ns_per_launch = known ? (3 * stream->ns_per_launch + each_ns) / 4 : each_ns;
  stream->is_trusted = true;
  const uint64_t spacing_ns = markers->spacing_ns.load(std::memory_order_relaxed);
  // Where launches are logged, what is queued is known between markers as well.
  const uint64_t spaced_ns = marker.logged != 0 ? stream->UsualNs() : stream->ns_per_launch.load();
  stream->Space(
      static_cast<uint32_t>(std::clamp(spacing_ns / spaced_ns, uint64_t{1}, kTuning.full_queue)));
}

// Until the others have told of their runs. Where there is no room it stays disturbed.
void KeepDoubtful(Markers* markers, const MarkedStream& stream, uint64_t begin_ns, uint64_t end_ns,
                  uint64_t own_ns) {
  for (DoubtfulSample& place : markers->doubtful) {
    if (place.end_ns != 0) continue;
    const uint32_t life = stream.word.load(std::memory_order_relaxed) & MarkedStream::kLife;
    place = {begin_ns, end_ns, own_ns, stream.ordinal, markers->streams.NumberOf(&stream), life};
    return;
  }
}

// The stream ran from the marker before until this one was reached.
void TellRun(Markers* markers, MarkedStream* stream, const Marker& marker, uint64_t at_ns,
             bool is_at_once, const StreamLook& look) {
  const uint64_t ran_ns = RanNsUntil(*markers, *stream, at_ns);
  const uint64_t since_ns = marker.host_ns + (stream->is_fresh ? 0 : marker.record_ns);
  const uint64_t host_ns = CaughtUpNs(*stream, since_ns, marker.recorded_ns);
  stream->gaps.caught_up = host_ns != 0;
  const uint64_t behind_ns = at_ns - std::min(at_ns, marker.recorded_ns);
  const uint64_t late_ns = WaitedForCall(*stream, behind_ns) ? marker.late_ns : 0;
  NoteMayIdle(stream, look.alone, look.alone && host_ns > since_ns / 8);
  const IntervalContent content = {marker.launches,
                                   marker.inner_ns,
                                   marker.lead_ns,
                                   marker.joined,
                                   look.alone ? host_ns : 0,
                                   marker.tells_late,
                                   late_ns,
                                   marker.meets,
                                   is_at_once ? MarkerReached::kAtOnce : MarkerReached::kLater,
                                   marker.queued,
                                   marker.IsSingle()};
  if (marker.samples && stream->is_fresh && marker.inner_ns == 0) {
    const uint64_t lead_ns = CaughtUpNs(*stream, marker.lead_ns, marker.recorded_ns);
    const uint64_t own_ns =
        LearnSample(markers->PausesOf(stream->ordinal), stream, ran_ns, lead_ns, look.now_ns);
    const bool may_be_long = own_ns != 0 && look.alone;
    if (may_be_long) KeepDoubtful(markers, *stream, stream->run_begin_ns, at_ns, own_ns);
  }
  const NotOwn rest = NotOwnOf(*markers, *stream, content, ran_ns, look.now_ns);
  const NotOwn told = marker.whole && !rest.is_own ? WithoutIdle(rest) : rest;
  Tell(*markers, stream, told, ChargedUntilNs(*stream, marker.meets, at_ns), look);
  if (stream->closed_runs.is_sample) stream->closed_runs.sample_ns = ran_ns - rest.ns;
  stream->closed_runs.is_sample = false;
  stream->ran_ns = ran_ns;
  LearnRun(markers, stream, marker, ran_ns, rest);
}

// The marker before the launch that a probe is about, reached then. Where nothing is deducted, as
// the GPU was not yet done with what was queued before, a probe tells nothing.
void BeginProbe(const Markers& markers, MarkedStream* stream, const Marker& marker, uint64_t at_ns,
                int64_t gpu_ns) {
  const bool is_timed = stream->is_timed && gpu_ns != 0 && stream->begin_gpu_ns != 0;
  if (!marker.prompt && !(is_timed && stream->gaps.caught_up)) return;
  const bool is_sharp = markers.streams.ContextOf(*stream).clock.IsSharp();
  const int64_t gap_ns =
      marker.prompt ? INT64_MAX : std::max(gpu_ns - stream->begin_gpu_ns, int64_t{1});
  stream->gaps.open = {
      .gap_ns = static_cast<uint64_t>(gap_ns),
      .host_ns = 0,
      .ran_ns = 0,
      .call_ns = 0,
      .behind_ns = is_sharp ? at_ns - std::min(at_ns, marker.recorded_ns) : kTuning.most_wait_ns,
      .record_ns = marker.record_ns,
      .lacks_next = false,
      .is_late = false};
}

// The marker behind it. The launch behind that may be still to come. Probes whose call took long
// count as well, or a host that is late now and then would be charged for it.
void EndProbe(const Markers& markers, MarkedStream* stream, const Marker& marker, uint64_t ran_ns) {
  Probe* probe = &stream->gaps.open;
  const bool is_next_to_come = stream->next_tells == Tells::kGap;
  const bool is_late = !TellsLaunch(ran_ns, marker.host_ns);
  if (probe->gap_ns == 0 || probe->lacks_next || marker.launches != 1 || marker.inner_ns != 0 ||
      (marker.next_ns == 0 && !is_next_to_come)) {
    *probe = {};
    return;
  }
  probe->is_late = is_late;
  probe->ran_ns = ran_ns;
  probe->call_ns = marker.lead_ns;
  probe->host_ns = marker.host_ns - std::min(marker.host_ns, LeftOfRecordNs(marker.record_ns));
  probe->record_ns += marker.record_ns;
  probe->lacks_next = marker.next_ns == 0;
  if (!probe->lacks_next) {
    EndGap(markers.PausesOf(stream->ordinal), stream, marker.next_ns);
  }
}

void TakeReached(Markers* markers, MarkedStream* stream, const Marker& marker, uint64_t at_ns,
                 const StreamLook& look) {
  const bool is_sharp = markers->streams.ContextOf(*stream).clock.IsSharp();
  const bool is_at_once = is_sharp && at_ns < marker.recorded_ns + kTuning.behind_ns;
  const bool is_of_probe = marker.begins || stream->gaps.open.gap_ns != 0;
  if (!is_of_probe) CountLastGap(stream, is_at_once);
  const bool stood = markers->StoodOf(stream->ordinal).WithinNs(stream->run_begin_ns, at_ns) != 0;
  if (marker.probes && !stood) BeginProbe(*markers, stream, marker, at_ns, look.gpu_ns);
  if (!marker.begins && stream->is_timed && at_ns > stream->run_begin_ns) {
    EndProbe(*markers, stream, marker, RanNsUntil(*markers, *stream, at_ns));
    TellRun(markers, stream, marker, at_ns, is_at_once, look);
  }
  stream->closed_runs.is_unread = false;
  stream->is_fresh = marker.begins;
  stream->run_begin_ns = at_ns;
  stream->begin_gpu_ns = look.gpu_ns;
  stream->deducted_ns = 0;
  // What was charged beyond its end was somebody's waiting: not charged again.
  stream->charged_ns = marker.begins ? at_ns : std::max(stream->charged_ns, at_ns);
  stream->is_timed = true;
}

}  // namespace

bool Fails(MarkedStream* stream) {
  if (++stream->failures < kMostFailures) return false;
  stream->failures = 0;
  return true;
}

bool IsOver(Markers* markers, MarkedStream* stream, const Marker& marker) {
  const CUresult rc = real::cuEventQuery(marker.event);
  if (rc != CUDA_SUCCESS && rc != CUDA_ERROR_NOT_READY) {
    if (Fails(stream)) markers->streams.Context(marker.context).blind = true;
    return false;
  }
  return rc == CUDA_SUCCESS;
}

size_t CountOver(Markers* markers, MarkedStream* stream) {
  uint16_t pending[kMostAsked];
  size_t count = 0;
  for (uint16_t i = stream->first; i != kNoMarker && count < kMostAsked;
       i = markers->pool[i].next) {
    pending[count++] = i;
  }
  size_t over = 0;
  while (over < count) {
    const size_t middle = (over + count) / 2;
    if (IsOver(markers, stream, markers->pool[pending[middle]])) {
      over = middle + 1;
    } else {
      count = middle;
    }
  }
  return over;
}

void TakeOver(Markers* markers, MarkedStream* stream, size_t over, StreamLook* look) {
  while (stream->first != kNoMarker) {
    const uint16_t index = stream->first;
    stream->TakeBegin(&markers->pool[index].begin_ns);
    if (over > 1 && Join(&markers->pool, stream)) {
      --over;
      continue;
    }
    const Marker marker = markers->pool[index];
    if (over == 0 && !markers->streams.Context(marker.context).blind) break;
    uint64_t at_ns = 0;
    look->gpu_ns = 0;
    if (over != 0 && !Reached(markers, stream, marker, look, &at_ns)) {
      // As if it were seen the moment it was reached, and began when it was recorded.
      at_ns = marker.begins ? std::max(marker.recorded_ns, stream->charged_ns) : look->now_ns;
    }
    stream->first = marker.next;
    if (marker.next == kNoMarker) stream->last = kNoMarker;
    stream->queued -= marker.launches;
    stream->others_over = marker.others;
    markers->CountReached(*stream);
    if (over != 0) {
      --over;
      TakeReached(markers, stream, marker, at_ns, *look);
    } else {
      Unmark(stream, marker);
    }
    if (markers->streams.Context(marker.context).base != index) markers->pool.Return(index);
  }
}

void TellRunning(const Markers& markers, MarkedStream* stream, const IntervalContent& content,
                 uint64_t end_ns, const StreamLook& look) {
  if (end_ns <= stream->run_begin_ns) return;
  const uint64_t ran_ns = RanNsUntil(markers, *stream, end_ns);
  const NotOwn rest = NotOwnOf(markers, *stream, content, ran_ns, look.now_ns);
  Tell(markers, stream, rest, ChargedUntilNs(*stream, content.meets, end_ns), look);
}

// As one interval: they lie behind all that was told before, and took no longer than since then.
void TellClosed(MarkedStream* stream, BusyList* busy) {
  ClosedRuns* runs = &stream->closed_runs;
  busy->Add(stream->ordinal, runs->closed_until_ns - runs->closed_ns, runs->closed_until_ns);
  runs->closed_ns = 0;
}

}  // namespace gpufence
