#include "device/markers/marking.h"

#include <algorithm>

#include "device/ids.h"
#include "device/markers/gaps.h"
#include "device/markers/legacy.h"
#include "device/markers/recording.h"
#include "device/markers/samples.h"

namespace gpufence {
namespace {

// So many launches were marked last. Where that was not directly behind one of them, which a look
// does to what it finds running, each of the next is marked.
void NoteSpacing(MarkedStream* stream, uint32_t launches, uint64_t now_ns) {
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

}  // namespace

bool MarkLocked(Markers* markers, MarkedStream* stream, Recorder recorder) {
  const MarkedContext& context = markers->streams.ContextOf(*stream);
  const uint32_t word = stream->word.load(std::memory_order_relaxed);
  const uint32_t launches = word & MarkedStream::kLaunches;
  if (launches == 0 || (word & MarkedStream::kRunning) == 0) return true;
  if (context.away || context.blind ||
      !RecordMarker(markers, stream, recorder, launches, /*begins=*/false)) {
    return false;
  }
  stream->word.fetch_sub(launches, std::memory_order_relaxed);
  Marker* marker = &markers->pool[stream->last];
  NoteSpacing(stream, launches, marker->recorded_ns);
  marker->inner_ns = stream->inner_ns.exchange(0, std::memory_order_relaxed);
  marker->meets = stream->meets.exchange(false, std::memory_order_relaxed);
  stream->CountDown(launches);
  stream->awaits_launch = false;
  return true;
}

bool LeaveLocked(Markers* markers, MarkedStream* stream, Recorder recorder) {
  // Whoever puts a marker there just now does the rest.
  stream->is_left |= stream->recorder != Recorder::kNobody;
  const uint16_t last = stream->last;
  if (!MarkLocked(markers, stream, recorder)) return false;
  StopRunning(stream);
  return stream->last != last;
}

void MarkStream(Markers* markers, MarkedStream* stream) {
  const StreamsGuard guard(&markers->streams);
  if (guard) MarkLocked(markers, stream, Recorder::kSelf);
}

void MarkInTurn(Markers* markers, MarkedStream* stream) {
  const StreamsGuard guard(&markers->streams);
  if (!guard || !MarkLocked(markers, stream, Recorder::kSelf)) return;
  Marker* marker = &markers->pool[stream->last];
  marker->samples = stream->samples.is_open && marker->launches == 1;
  stream->samples.is_open = false;
  const uint32_t every = stream->every;
  const uint32_t drawn = std::max(every / 2 + stream->Random() % (every + 1), 1u);
  const bool is_sampled = !marker->samples && IsSampleDue(*markers, stream, marker->launches,
                                                          marker->host_ns, marker->recorded_ns);
  const bool is_probed = !is_sampled && IsProbed(*stream);
  stream->mark_at.store(is_probed || is_sampled || marker->samples ? drawn : every,
                        std::memory_order_relaxed);
  const bool is_behind = stream->behind.load(std::memory_order_relaxed) != 0;
  if (!is_behind && (is_sampled || (is_probed && IsProbeDue(stream)))) {
    stream->samples.is_open = is_sampled;
    stream->word.fetch_or(MarkedStream::kProbe, std::memory_order_relaxed);
  }
}

void LeaveStream(Markers* markers, MarkedStream* stream) {
  if (stream->IsTouched()) {
    const StreamsGuard guard(&markers->streams);
    if (guard) LeaveLocked(markers, stream, Recorder::kBefore);
  }
  stream->others_put.fetch_add(1, std::memory_order_relaxed);
  stream->goes_on.store(false, std::memory_order_relaxed);
}

bool LeaveContext(Markers* markers, bool waits) {
  StreamTable* streams = &markers->streams;
  if (!streams->any_active()) return false;
  bool has_marked = false;
  const uint64_t context = CurrentContext();
  const StreamsGuard guard(streams);
  if (!guard) return false;
  streams->ForEachActive([&](MarkedStream* stream) {
    const uint64_t owner = streams->ContextOf(*stream).handle.load(std::memory_order_relaxed);
    if (!StreamTable::IsReachable(*stream) || owner != context) return;
    const bool is_left = stream->IsTouched() && (!waits || MayMarkLate(*stream));
    if (is_left) has_marked |= LeaveLocked(markers, stream, Recorder::kOther);
    if (!waits) stream->goes_on.store(false, std::memory_order_relaxed);
  });
  return has_marked;
}

}  // namespace gpufence
