// Runs: when a stream begins to run kernels, when it is left, and what gets a marker.
#include <algorithm>

#include "device/capture_mode.h"
#include "device/markers.h"
#include "device/markers_gaps.h"
#include "real.h"

namespace gpufence {
namespace {

// After so long a pause a stream may do something else than before.
constexpr uint64_t kLongPauseNs = 1'000'000;
// A run that begins by the host's clock would have had its marker so much later (H200).
constexpr uint64_t kRecordNs = 900;
constexpr uint64_t kPromptEveryNs = 4'000'000;
// A program that was held is ahead of the GPU again after some thirty launches of PyTorch's, of
// which some come half a millisecond behind the one before (H200).
constexpr uint32_t kBehindLaunches = 32;
constexpr uint64_t kBehindNs = 40'000;

}  // namespace

// A run that no marker begins, because something is in the stream already, or because nothing may
// be asked of its context, which may be about to end.
void Markers::BeginLate(MarkedStream* stream, bool was_idle) {
  const bool is_launched =
      (stream->word.load(std::memory_order_relaxed) & MarkedStream::kLaunches) != 0;
  stream->by_host = false;
  stream->began_away |= contexts_[stream->context].away != 0;
  if (stream->first == kNone) {
    // The thread that launched had to wait for a processor, or the stream would not have been idle.
    stream->BeginAt(is_launched && was_idle ? stream->idle_since_ns : stream->host_begin_ns);
  }
  stream->word.fetch_or(MarkedStream::kRunning, std::memory_order_release);
  MarkLocked(stream);
}

// What a stream that is not running does, where nothing but kernels was put into it.
Markers::Doing Markers::DoingOf(const MarkedStream& stream, bool captures) const {
  if (!stream.goes_on.load(std::memory_order_relaxed)) return Doing::kUnknown;
  if (stream.first == kNone) return Doing::kIdle;
  if (captures) return Doing::kUnknown;
  const CUresult rc = real::cuEventQuery(markers_[stream.last].event);
  if (rc == CUDA_ERROR_NOT_READY) return Doing::kKernels;
  return rc == CUDA_SUCCESS ? Doing::kIdle : Doing::kUnknown;
}

// Whether the host's clock tells well enough when a run begins in an idle stream. Where kernels are
// so short that this would matter, a marker tells, unless what others took stands for it; and now
// and then, so that the clocks agree.
bool Markers::HostCanBegin(const MarkedStream& stream) const {
  const Context& context = contexts_[stream.context];
  return stream.is_trusted && (stream.ns_per_launch >= kHostToldLaunchNs || MayGoUnread(stream)) &&
         context.clock.IsSharp() && stream.host_begin_ns - context.prompted_ns < kPromptEveryNs;
}

// What is under way goes on without a marker. False: there is none to be had.
bool Markers::BeginNow(MarkedStream* stream, bool was_idle, Doing doing) {
  if (doing == Doing::kKernels) return true;
  if (doing == Doing::kIdle && HostCanBegin(*stream)) {
    stream->is_unread = stream->ns_per_launch < kHostToldLaunchNs;
    stream->marked_ns += kRecordNs;
    stream->begin_ns = stream->host_begin_ns;
    if (stream->first == kNone) stream->TakeBegin(&stream->begin_ns);
    return true;
  }
  stream->is_unread = false;
  const bool prompt = doing != Doing::kWaits && (was_idle || doing == Doing::kIdle);
  if (!Record(stream, 0, /*begins=*/true, prompt)) return false;
  stream->marked_ns = NowNs();
  if (was_idle) stream->is_timed = false;
  if (prompt) contexts_[stream->context].prompted_ns = stream->host_begin_ns;
  return true;
}

Markers::Begun Markers::Begin(MarkedStream* stream, CUstream handle, HeldNs held, bool captures) {
  Key key;
  if (!KeyOf(handle, &key)) return Begun::kNotMarked;
  const FutexGuard guard(&lock_);
  if (!Is(*stream, key)) return Begun::kOtherStream;
  if ((stream->word.load(std::memory_order_relaxed) & MarkedStream::kRunning) != 0) {
    stream->held_ns += held.at_all;
    return held.at_all == 0 && Probe(stream) ? Begun::kProbe : Begun::kYes;
  }
  const Context& context = contexts_[stream->context];
  if (context.blind) return Begun::kNotMarked;
  const bool was_idle = !IsActive(stream);
  if (was_idle && held.is_unasked) return Begun::kMustAsk;
  if (was_idle && NowNs() - stream->idle_since_ns > kLongPauseNs + held.at_all) {
    SpaceStream(stream, 1);
    stream->is_trusted = false;
  }
  const uint64_t last_begin_ns = stream->host_begin_ns;
  stream->host_begin_ns = stream->marked_ns = stream->host_mark_ns = NowNs();
  stream->held_ns = 0;
  stream->launched_ns.store(0, std::memory_order_relaxed);
  stream->came_ns.store(stream->host_begin_ns, std::memory_order_relaxed);
  const bool waits = WaitsForLegacy(stream) || held.by_others != 0;
  stream->by_host = !waits && HostIsEnough(*stream);
  if (context.away != 0 ||
      (stream->word.load(std::memory_order_relaxed) & MarkedStream::kLaunches) != 0) {
    BeginLate(stream, was_idle);
  } else if (stream->by_host) {
    stream->BeginAt(stream->host_begin_ns);
  } else {
    const Doing doing = waits ? Doing::kWaits : DoingOf(*stream, captures);
    if (doing == Doing::kIdle) Settle(stream, last_begin_ns);
    if (!BeginNow(stream, was_idle, doing)) return Begun::kNotMarked;
  }
  if (held.at_all != 0 && !stream->by_host) stream->FallBehind();
  stream->word.fetch_or(MarkedStream::kRunning, std::memory_order_release);
  stream->awaits_launch = true;
  begun_.fetch_add(1, std::memory_order_relaxed);
  if (was_idle) SetActive(stream, true);
  return Begun::kYes;
}

void MarkedStream::FallBehind() {
  behind.store(kBehindLaunches, std::memory_order_relaxed);
  marks_each.store(true, std::memory_order_relaxed);
  word.fetch_or(kSparse, std::memory_order_relaxed);
}

// So many launches were marked last. Where that was not directly behind one of them, which a look
// does to what it finds running, each of the next is marked.
void Markers::NoteSpacing(MarkedStream* stream, uint32_t launches) {
  const uint64_t now_ns = markers_[stream->last].recorded_ns;
  const bool is_sparse = now_ns - stream->spaced_ns >= launches * kSparseNs;
  const uint64_t came_ns = stream->came_ns.load(std::memory_order_relaxed);
  const bool is_late = now_ns >= came_ns + kSparseNs;  // another thread's launch may be the newer
  stream->spaced_ns = is_late ? came_ns : now_ns;
  const uint32_t behind = stream->behind.load(std::memory_order_relaxed);
  stream->behind.store(behind - std::min(behind, launches), std::memory_order_relaxed);
  if (behind > launches) return;
  if (is_sparse) {
    stream->word.fetch_or(MarkedStream::kSparse, std::memory_order_relaxed);
  } else {
    stream->word.fetch_and(~MarkedStream::kSparse, std::memory_order_relaxed);
  }
  if (is_late || !is_sparse) stream->marks_each.store(is_sparse, std::memory_order_relaxed);
}

bool Markers::CameToIdle(MarkedStream* stream, CUstream handle, bool captures) {
  const uint64_t now_ns = NowNs();
  const uint64_t last_ns = stream->came_ns.exchange(now_ns, std::memory_order_relaxed);
  const bool runs = (stream->word.load(std::memory_order_relaxed) & MarkedStream::kRunning) != 0;
  const bool is_behind = stream->behind.load(std::memory_order_relaxed) != 0;
  const uint64_t apart_ns = is_behind ? kBehindNs : kSparseNs;
  if (!runs || now_ns < last_ns + apart_ns || captures || stream->by_host) return false;
  const CaptureRelaxed relaxed;  // another thread's capture may begin at any moment
  const bool is_idle = real::cuStreamQuery(handle) == CUDA_SUCCESS;
  stream->marks_each.store(is_idle, std::memory_order_relaxed);
  if (!is_idle) return false;
  const FutexGuard guard(&lock_);
  LeaveLocked(stream);
  return true;
}

// Without a marker to be had the launches stay counted, and the next one or the watcher tries
// again: false.
bool Markers::MarkLocked(MarkedStream* stream) {
  const Context& context = contexts_[stream->context];
  const uint32_t word = stream->word.load(std::memory_order_relaxed);
  const uint32_t launches = word & MarkedStream::kLaunches;
  if (launches == 0 || (word & MarkedStream::kRunning) == 0) return true;
  if (context.away || context.blind || !Record(stream, launches, /*begins=*/false)) return false;
  stream->word.fetch_sub(launches, std::memory_order_relaxed);
  NoteSpacing(stream, launches);
  markers_[stream->last].steps = stream->steps.exchange(0, std::memory_order_relaxed);
  CountDown(stream, launches);
  stream->awaits_launch = false;
  return true;
}

void Markers::Mark(MarkedStream* stream) {
  const FutexGuard guard(&lock_);
  MarkLocked(stream);
}

// What has no marker goes on as if nothing else were put into the stream.
void Markers::LeaveLocked(MarkedStream* stream) {
  if (!MarkLocked(stream)) return;
  stream->word.fetch_and(~(MarkedStream::kRunning | MarkedStream::kProbe),
                         std::memory_order_relaxed);
}

void Markers::Leave(MarkedStream* stream) {
  if (stream->word.load(std::memory_order_relaxed) != 0) {
    const FutexGuard guard(&lock_);
    LeaveLocked(stream);
  }
  stream->goes_on.store(false, std::memory_order_relaxed);
}

void Markers::CountReached(const MarkedStream& stream) {
  reached_[stream.ordinal % kMostMarkedDevices].fetch_add(1, std::memory_order_relaxed);
}

bool Markers::Runs(uint32_t ordinal) {
  const FutexGuard guard(&lock_);
  bool runs = false;
  ForEachActive([&](MarkedStream* stream) {
    if (stream->ordinal != ordinal || !stream->is_timed) return;
    const uint32_t word = stream->word.load(std::memory_order_relaxed);
    runs |= stream->first != kNone ? !markers_[stream->first].begins
                                   : (word & MarkedStream::kLaunches) != 0;
  });
  return runs;
}

}  // namespace gpufence
