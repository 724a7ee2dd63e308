#include "device/markers/marking.h"

#include <algorithm>

#include "device/ids.h"
#include "device/markers/gaps.h"
#include "device/markers/legacy.h"
#include "real.h"

namespace gpufence {
namespace {

// Recording takes about one; more was the making of events, or the host's own affair.
constexpr uint64_t kMostRecordNs = 3'000;

CUstream HandleOf(const MarkedStream& stream) {
  return reinterpret_cast<CUstream>(stream.handle.load(std::memory_order_relaxed));
}

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

bool RecordMarker(Markers* markers, MarkedStream* stream, uint32_t launches, bool begins,
                  bool prompt) {
  const uint64_t owner = markers->streams.ContextOf(*stream).handle.load(std::memory_order_relaxed);
  const uint16_t taken = markers->pool.Take(stream->context, reinterpret_cast<CUcontext>(owner));
  if (taken == kNoMarker) return false;
  Marker* marker = &markers->pool[taken];
  marker->recorded_ns = NowNs();
  marker->launches = launches;
  marker->steps = 0;
  marker->lead_ns = static_cast<uint32_t>(stream->LeadNs());
  marker->begin_ns = begins ? 0 : stream->waited.begin_ns;
  marker->joined = 0;
  marker->begins = begins;
  marker->prompt = prompt;
  marker->probes = false;
  marker->meets = false;
  const uint64_t host_ns =
      marker->recorded_ns - std::min(stream->gaps.host_mark_ns, marker->recorded_ns);
  marker->host_ns = host_ns - std::min(host_ns, stream->gaps.held_ns);
  marker->record_ns = stream->gaps.record_ns;
  marker->next = kNoMarker;
  if (real::cuEventRecord(marker->event, HandleOf(*stream)) != CUDA_SUCCESS) {
    markers->pool.Return(taken);
    return false;
  }
  if (stream->first == kNoMarker) {
    stream->first = taken;
  } else {
    markers->pool[stream->last].next = taken;
  }
  stream->last = taken;
  stream->waited.begin_ns = 0;
  stream->goes_on.store(true, std::memory_order_relaxed);
  stream->queued += launches;
  stream->gaps.host_mark_ns = NowNs();
  stream->gaps.record_ns = std::min(stream->gaps.host_mark_ns - marker->recorded_ns, kMostRecordNs);
  stream->gaps.held_ns = 0;
  return true;
}

bool MarkLocked(Markers* markers, MarkedStream* stream) {
  const MarkedContext& context = markers->streams.ContextOf(*stream);
  const uint32_t word = stream->word.load(std::memory_order_relaxed);
  const uint32_t launches = word & MarkedStream::kLaunches;
  if (launches == 0 || (word & MarkedStream::kRunning) == 0) return true;
  if (context.away || context.blind || !RecordMarker(markers, stream, launches, /*begins=*/false)) {
    return false;
  }
  stream->word.fetch_sub(launches, std::memory_order_relaxed);
  Marker* marker = &markers->pool[stream->last];
  NoteSpacing(stream, launches, marker->recorded_ns);
  marker->steps = stream->steps.exchange(0, std::memory_order_relaxed);
  marker->meets = stream->meets.exchange(false, std::memory_order_relaxed);
  stream->CountDown(launches);
  stream->awaits_launch = false;
  return true;
}

void LeaveLocked(Markers* markers, MarkedStream* stream) {
  if (!MarkLocked(markers, stream)) return;
  stream->word.fetch_and(~(MarkedStream::kRunning | MarkedStream::kProbe),
                         std::memory_order_relaxed);
}

void MarkStream(Markers* markers, MarkedStream* stream) {
  const FutexGuard guard(markers->streams.lock());
  MarkLocked(markers, stream);
}

void MarkInTurn(Markers* markers, MarkedStream* stream) {
  const FutexGuard guard(markers->streams.lock());
  if (!MarkLocked(markers, stream)) return;
  const uint32_t every = stream->every;
  const uint32_t drawn = std::max(every / 2 + stream->Random() % (every + 1), 1u);
  const bool is_probed = IsProbed(*stream);
  stream->mark_at.store(is_probed ? drawn : every, std::memory_order_relaxed);
  const bool is_behind = stream->behind.load(std::memory_order_relaxed) != 0;
  if (is_probed && !is_behind && IsProbeDue(stream)) {
    stream->word.fetch_or(MarkedStream::kProbe, std::memory_order_relaxed);
  }
}

void LeaveStream(Markers* markers, MarkedStream* stream) {
  if (stream->IsTouched()) {
    const FutexGuard guard(markers->streams.lock());
    LeaveLocked(markers, stream);
  }
  stream->goes_on.store(false, std::memory_order_relaxed);
}

bool LeaveContext(Markers* markers, bool waits) {
  StreamTable* streams = &markers->streams;
  if (!streams->any_active()) return false;
  bool has_marked = false;
  const uint64_t context = CurrentContext();
  const FutexGuard guard(streams->lock());
  streams->ForEachActive([&](MarkedStream* stream) {
    const uint64_t owner = streams->ContextOf(*stream).handle.load(std::memory_order_relaxed);
    if (!StreamTable::IsReachable(*stream) || owner != context) return;
    const uint16_t last = stream->last;
    const bool is_left = stream->IsTouched() && (!waits || MayMarkLate(*stream));
    if (is_left) LeaveLocked(markers, stream);
    has_marked |= stream->last != last;
    if (!waits) stream->goes_on.store(false, std::memory_order_relaxed);
  });
  return has_marked;
}

}  // namespace gpufence
