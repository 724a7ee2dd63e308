// Markers on their way out: what was reached, and what that says about when the streams ran.
#include <algorithm>

#include "device/capture_mode.h"
#include "device/markers_gaps.h"
#include "device/markers_look.h"
#include "real.h"

namespace gpufence {
namespace {

constexpr uint64_t kMostLaunchesUnmarked = 256;
// What runs so much longer than before may be something else.
constexpr uint64_t kMuchLongerNs = 1'000'000;
// The base moves along, so that the driver's float of milliseconds stays exact to 30 ns.
constexpr int64_t kBaseReachNs = 500'000'000;
// A call that fails once may be chance; so often in a row, its context is dead or events are
// refused there.
constexpr uint8_t kMostFailures = 5;
// What runs is charged short of now: the clocks may disagree by so much, and the marker tells.
constexpr uint64_t kClockDoubtNs = 150'000;

constexpr size_t kMostAsked = 256;  // markers, at one look
// Intervals that are over together are read as one up to here.
constexpr uint64_t kJoinedNs = kRareLookNs;
// What is overdue is looked at again after such a part of the time that it took so far.
constexpr uint64_t kOverduePart = 8;

}  // namespace

size_t Markers::Collect(uint64_t now_ns, bool captures, BusyInterval* busy, size_t room) {
  Look look = {now_ns, captures, busy, room, 0, kNone};
  {
    const FutexGuard guard(&lock_);
    uint32_t active = 0;
    ForEachActive([&](MarkedStream*) { ++active; });
    look.alone = active <= 1;
    ForEachActive([&](MarkedStream* stream) {
      if (!contexts_[stream->context].away) CollectStream(stream, &look);
    });
  }
  if (look.context != kNone) real::cuCtxSetCurrent(nullptr);
  return look.count;
}

void Markers::CollectStream(MarkedStream* stream, Look* look) {
  if (look->context != stream->context) {
    const uint64_t handle = contexts_[stream->context].handle.load(std::memory_order_relaxed);
    real::cuCtxSetCurrent(reinterpret_cast<CUcontext>(handle));
    look->context = stream->context;
  }
  TellSettled(stream, look);
  const size_t over = CountOver(stream);
  look->now_ns = NowNs();  // what is over was so before this, not before the questions
  TakeOver(stream, over, look);
  if (stream->first == kNone) return CollectTail(stream, look);
  const Marker& next = markers_[stream->first];
  if (next.begins || !stream->is_timed) return;
  // It runs: paid for up to now.
  const uint64_t ran_ns = look->now_ns - std::min(look->now_ns, stream->run_begin_ns);
  const uint64_t host_ns = look->alone ? CaughtUpNs(*stream, next.host_ns, next.recorded_ns) : 0;
  Running(stream, {next.launches, next.steps, stream->LeadNs(), 0, host_ns},
          look->now_ns - kClockDoubtNs, look);
  if (ran_ns > 2 * next.launches * stream->ns_per_launch + kMuchLongerNs) {
    // Far longer than before: what is queued behind it may be as long.
    stream->ns_per_launch = ran_ns / std::max(next.launches, 1u);
    SpaceStream(stream, 1);
  }
}

// Its oldest markers, of which so many are over.
void Markers::TakeOver(MarkedStream* stream, size_t over, Look* look) {
  while (stream->first != kNone) {
    const uint16_t index = stream->first;
    stream->TakeBegin(&markers_[index].begin_ns);
    if (over > 1 && Join(stream)) {
      --over;
      continue;
    }
    const Marker marker = markers_[index];
    if (over == 0 && !contexts_[marker.context].blind) break;
    uint64_t at_ns = 0;
    look->gpu_ns = 0;
    if (over != 0 && !Reached(stream, marker, look, &at_ns)) {
      // As if it were seen the moment it was reached, and began when it was recorded.
      at_ns = marker.begins ? std::max(marker.recorded_ns, stream->charged_ns) : look->now_ns;
    }
    stream->first = marker.next;
    if (marker.next == kNone) stream->last = kNone;
    stream->queued -= marker.launches;
    CountReached(*stream);
    if (over != 0) {
      --over;
      TakeReached(stream, marker, at_ns, look);
    } else {
      Unmark(stream, marker);
    }
    if (contexts_[marker.context].base != index) Return(index);
  }
}

// A call about the stream failed; true when it is one too many.
bool Markers::Fails(MarkedStream* stream) {
  if (++stream->failures < kMostFailures) return false;
  stream->failures = 0;
  return true;
}

// What is known about a marker before it is asked for its time. One that cannot be asked any more
// blinds its context.
bool Markers::IsOver(MarkedStream* stream, const Marker& marker) {
  const CUresult rc = real::cuEventQuery(marker.event);
  if (rc != CUDA_SUCCESS && rc != CUDA_ERROR_NOT_READY) {
    if (Fails(stream)) contexts_[marker.context].blind = true;
    return false;
  }
  return rc == CUDA_SUCCESS;
}

// How many of its markers are over, oldest first; few are asked, since each costs the watcher.
size_t Markers::CountOver(MarkedStream* stream) {
  uint16_t pending[kMostAsked];
  size_t count = 0;
  for (uint16_t i = stream->first; i != kNone && count < kMostAsked; i = markers_[i].next) {
    pending[count++] = i;
  }
  size_t over = 0;
  while (over < count) {
    const size_t middle = (over + count) / 2;
    if (IsOver(stream, markers_[pending[middle]])) {
      over = middle + 1;
    } else {
      count = middle;
    }
  }
  return over;
}

// Two intervals of a run that are over and short together count as one: each time that is read
// costs the watcher. True when the first marker is no more.
bool Markers::Join(MarkedStream* stream) {
  const uint16_t index = stream->first;
  const Marker& marker = markers_[index];
  if (!stream->is_timed || !stream->is_trusted || marker.begins || marker.next == kNone) {
    return false;
  }
  Marker* next = &markers_[marker.next];
  const uint64_t launches = marker.launches + next->launches;
  const bool follows = !next->begins && next->begin_ns == 0;
  if (!follows || launches * stream->ns_per_launch > kJoinedNs) return false;
  next->launches += marker.launches;
  next->steps += marker.steps;
  next->host_ns += marker.host_ns;
  next->joined = static_cast<uint16_t>(next->joined + marker.joined + 1);
  stream->first = marker.next;
  Return(index);
  return true;
}

// Its launches go on as those that have no marker yet: the stream tells when they are done.
void Markers::Unmark(MarkedStream* stream, const Marker& marker) {
  if (!stream->is_timed) {
    stream->run_begin_ns = marker.recorded_ns;
    stream->charged_ns = std::max(stream->charged_ns, marker.recorded_ns);
    stream->deducted_ns = 0;
    stream->is_timed = stream->is_fresh = true;
  }
  stream->word.fetch_add(marker.launches, std::memory_order_relaxed);
  stream->steps.fetch_add(marker.steps, std::memory_order_relaxed);
  stream->word.fetch_or(MarkedStream::kRunning, std::memory_order_release);
}

// It ran until `end_ns`, and so many launches have done so since the last marker.
void Markers::Running(MarkedStream* stream, const IntervalContent& content, uint64_t end_ns,
                      Look* look) {
  if (end_ns <= stream->run_begin_ns) return;
  const uint64_t ran_ns = end_ns - stream->run_begin_ns;
  Tell(stream, PausesNs(*stream, content, ran_ns) + IdleNs(*stream, content, ran_ns), end_ns, look);
}

// All up to `end_ns` but the gaps, as far as neither was told before.
void Markers::Tell(MarkedStream* stream, uint64_t gaps_ns, uint64_t end_ns, Look* look) {
  const uint64_t since_ns = std::max(stream->charged_ns, stream->run_begin_ns);
  if (end_ns <= since_ns) return;
  const uint64_t more_ns =
      std::min(gaps_ns - std::min(gaps_ns, stream->deducted_ns), end_ns - since_ns);
  look->Add(*stream, since_ns + more_ns, end_ns);
  stream->charged_ns = end_ns;
  stream->deducted_ns += more_ns;
}

// When the marker was reached, on the monotonic clock.
bool Markers::Reached(MarkedStream* stream, const Marker& marker, Look* look, uint64_t* at_ns) {
  Context* context = &contexts_[marker.context];
  const uint16_t index = stream->first;
  int64_t gpu_ns = context->base_ns;
  uint64_t since_ns = marker.recorded_ns;
  if (context->base != kNone) {
    float ms = 0;
    if (real::cuEventElapsedTime(&ms, markers_[context->base].event, marker.event) !=
        CUDA_SUCCESS) {
      if (Fails(stream)) context->blind = true;
      // The base may be what is wrong: the next marker becomes another.
      Return(context->base);
      context->base = kNone;
      context->clock = {};
      return false;
    }
    gpu_ns += static_cast<int64_t>(static_cast<double>(ms) * 1e6);
    stream->failures = 0;
  }
  if (context->base == kNone && !marker.prompt) {
    // Nothing else tells the GPU's time; but a look ago it was not reached.
    since_ns = std::max(since_ns, look->now_ns - std::min(look->now_ns, kRareLookNs));
  }
  if (context->base == kNone || gpu_ns - context->base_ns > kBaseReachNs) {
    if (context->base != kNone) Return(context->base);
    context->base = index;
    context->base_ns = gpu_ns;
  }
  context->clock.Observe(gpu_ns, since_ns, look->now_ns, marker.prompt);
  *at_ns = std::min(context->clock.ToMonotonic(gpu_ns), look->now_ns);
  look->gpu_ns = gpu_ns;
  return true;
}

void Markers::TakeReached(MarkedStream* stream, const Marker& marker, uint64_t at_ns, Look* look) {
  if (marker.probes && stream->is_timed && look->gpu_ns != 0 && stream->begin_gpu_ns != 0) {
    const int64_t gap_ns = look->gpu_ns - stream->begin_gpu_ns;
    LearnGap(stream, static_cast<uint64_t>(std::max(gap_ns, int64_t{0})), marker.record_ns,
             marker.host_ns);
  }
  if (!marker.begins && stream->is_timed && at_ns > stream->run_begin_ns) {
    const uint64_t ran_ns = at_ns - stream->run_begin_ns;
    const uint64_t host_ns = CaughtUpNs(*stream, marker.host_ns, marker.recorded_ns);
    stream->may_idle = look->alone && host_ns > marker.host_ns / 8;
    const IntervalContent content = {marker.launches, marker.steps, marker.lead_ns, marker.joined,
                                     look->alone ? host_ns : 0};
    const uint64_t idle_ns = IdleNs(*stream, content, ran_ns);
    const uint64_t gaps_ns = PausesNs(*stream, content, ran_ns) + idle_ns;
    Tell(stream, gaps_ns, at_ns, look);
    if (stream->is_sample) stream->sample_ns = ran_ns - gaps_ns;
    stream->is_sample = false;
    stream->ran_ns = ran_ns;
    const uint64_t spacing_ns = spacing_ns_.load(std::memory_order_relaxed);
    const uint64_t each_ns = std::max(ran_ns / std::max(marker.launches, 1u), uint64_t{1});
    const bool known = stream->ns_per_launch != 0 && each_ns < 4 * stream->ns_per_launch;
    if (each_ns > longest_ns()) longest_ns_.store(each_ns, std::memory_order_relaxed);
    const uint64_t each_busy_ns = (ran_ns - idle_ns) / std::max(marker.launches, 1u);
    stream->longest_ns = std::min(std::max(stream->longest_ns, each_busy_ns), kLongestLookNs);
    LearnMean(stream, marker.launches, ran_ns, ran_ns - idle_ns);
    stream->ns_per_launch = known ? (3 * stream->ns_per_launch + each_ns) / 4 : each_ns;
    stream->is_trusted = true;
    SpaceStream(stream, static_cast<uint32_t>(std::clamp(spacing_ns / stream->ns_per_launch,
                                                         uint64_t{1}, kMostLaunchesUnmarked)));
  }
  stream->is_unread = false;
  stream->is_fresh = marker.begins;
  stream->run_begin_ns = at_ns;
  stream->begin_gpu_ns = look->gpu_ns;
  stream->deducted_ns = 0;
  // What was charged beyond its end was somebody's waiting: not charged again.
  stream->charged_ns = marker.begins ? at_ns : std::max(stream->charged_ns, at_ns);
  stream->is_timed = true;
}

// Nothing marked is left. What was launched behind the last marker runs, or the stream is idle.
void Markers::CollectTail(MarkedStream* stream, Look* look) {
  const uint32_t word = stream->word.load(std::memory_order_acquire);
  const uint32_t launches = word & MarkedStream::kLaunches;
  const uint64_t handle = stream->handle.load(std::memory_order_relaxed);
  if (launches == 0 && (word & MarkedStream::kRunning) != 0 && stream->awaits_launch) {
    stream->awaits_launch = false;  // its launch may be under way
    return;
  }
  if (launches == 0 || (word & MarkedStream::kRunning) == 0 || handle == 0) {
    Idle(stream, word, look->now_ns);
    return;
  }
  if (IsToldByHost(*stream, launches, look->now_ns)) return;
  const uint64_t estimate_ns = stream->run_begin_ns + launches * stream->ns_per_launch;
  bool is_idle = false;
  const bool is_per_thread = stream->thread.load(std::memory_order_relaxed) != 0;
  if (is_per_thread && look->captures) {
    // The legacy stream may not be asked; after a while without a call of its thread we must guess.
    is_idle = stream->tail_seen == launches && look->now_ns > estimate_ns;
    stream->tail_seen = launches;
  } else if (!look->captures || !MayBeCapturing(reinterpret_cast<CUstream>(handle))) {
    // Only its own thread can ask for it or mark it; the legacy stream is busy as long as it is.
    const uint64_t asked = is_per_thread ? kLegacyStream : handle;
    const CUresult rc = real::cuStreamQuery(reinterpret_cast<CUstream>(asked));
    // Of a context that is dead, nothing runs.
    is_idle = rc == CUDA_SUCCESS || (rc != CUDA_ERROR_NOT_READY && Fails(stream));
    if (!is_idle && !is_per_thread && MayMarkLate(*stream)) MarkLocked(stream);
  }
  if (is_idle && stream->is_waited_for) return;
  uint64_t end_ns = look->now_ns;
  if (is_idle && stream->ns_per_launch != 0) end_ns = std::min(end_ns, estimate_ns);
  if (stream->is_timed) {
    const uint32_t steps = stream->steps.load(std::memory_order_relaxed);
    if (!is_idle) end_ns -= kClockDoubtNs;
    const uint64_t host_ns = look->alone ? end_ns - std::min(end_ns, stream->run_begin_ns) : 0;
    Running(stream, {launches, steps, stream->LeadNs(), 0, host_ns}, end_ns, look);
  }
  if (is_idle) Idle(stream, word, look->now_ns);
}

// False: a launch came between.
bool Markers::Idle(MarkedStream* stream, uint32_t word, uint64_t now_ns) {
  const uint32_t idle = word & MarkedStream::kSparse;
  if (!stream->word.compare_exchange_strong(word, idle, std::memory_order_acq_rel)) return false;
  CountDown(stream, word & MarkedStream::kLaunches);
  stream->idle_since_ns = now_ns;
  stream->tail_seen = 0;
  stream->steps.store(0, std::memory_order_relaxed);
  SetActive(stream, false);
  return true;
}

uint64_t Markers::ExpectedNs(uint64_t now_ns) {
  const FutexGuard guard(&lock_);
  uint64_t soonest_ns = UINT64_MAX;
  ForEachActive([&](MarkedStream* stream) {
    if (stream->first == kNone) return;
    uint64_t left_ns = 0;  // what was not seen to begin may be over at any moment
    if (stream->is_timed && !markers_[stream->first].begins && now_ns > stream->run_begin_ns) {
      const uint64_t ran_ns = now_ns - stream->run_begin_ns;
      const uint64_t told_ns = markers_[stream->first].launches * stream->ns_per_launch;
      left_ns = told_ns > ran_ns ? told_ns - ran_ns : ran_ns / kOverduePart;
    }
    soonest_ns = std::min(soonest_ns, left_ns);
  });
  return soonest_ns;
}

uint64_t Markers::LeftNs(uint32_t ordinal, uint64_t now_ns) {
  const FutexGuard guard(&lock_);
  uint64_t least_ns = UINT64_MAX;
  ForEachActive([&](MarkedStream* stream) {
    if (stream->ordinal != ordinal) return;
    const bool begins = stream->first != kNone && markers_[stream->first].begins;
    const bool known = stream->is_timed && stream->is_trusted && !begins;
    const uint64_t end_ns = known ? stream->run_begin_ns + stream->QueuedNs() : 0;
    least_ns = std::min(least_ns, end_ns > now_ns ? end_ns - now_ns : 0);
  });
  return least_ns != UINT64_MAX ? least_ns : 0;
}

uint64_t Markers::EndsNs(uint32_t ordinal, uint64_t now_ns) {
  const FutexGuard guard(&lock_);
  uint64_t latest_ns = 0;
  bool known = true;
  ForEachActive([&](MarkedStream* stream) {
    if (stream->ordinal != ordinal) return;
    const uint32_t launches =
        stream->word.load(std::memory_order_relaxed) & MarkedStream::kLaunches;
    const uint64_t end_ns =
        stream->run_begin_ns + (stream->queued + launches) * stream->ns_per_launch;
    // What takes longer than it should may take any time.
    known &= stream->is_timed && stream->is_trusted && stream->steady == kSteadyIntervals &&
             end_ns + kClockDoubtNs > now_ns &&
             (stream->first == kNone || !markers_[stream->first].begins);
    latest_ns = std::max(latest_ns, end_ns);
  });
  return known ? latest_ns : 0;
}

uint32_t Markers::CountActive(uint32_t ordinal) {
  uint32_t count = 0;
  ForEachActive([&](MarkedStream* stream) { count += stream->ordinal == ordinal ? 1 : 0; });
  return count;
}

uint64_t Markers::LaunchNs(uint32_t ordinal) {
  uint64_t shortest_ns = 0;
  ForEachActive([&](MarkedStream* stream) {
    const uint64_t mean_ns = stream->mean_ns.load(std::memory_order_relaxed);
    if (stream->ordinal != ordinal || mean_ns == 0) return;
    shortest_ns = shortest_ns == 0 ? mean_ns : std::min(shortest_ns, mean_ns);
  });
  return shortest_ns;
}

}  // namespace gpufence
