#include "device/markers/ends.h"

#include "device/markers/marking.h"
#include "device/markers/recording.h"
#include "device/markers/settling.h"

namespace gpufence {
namespace {

bool IsMeant(const MarkedContext& context, CUcontext handle, uint32_t ordinal) {
  const uint64_t seen = context.handle.load(std::memory_order_relaxed);
  if (seen == 0) return false;
  return handle != nullptr ? seen == reinterpret_cast<uint64_t>(handle)
                           : context.is_primary && context.ordinal == ordinal;
}

// Its context ended. True when the stream lives all the same: who launches while others end a
// primary context holds it as well, so that this is its next life, under the same handle.
bool End(Markers* markers, MarkedStream* stream, uint64_t now_ns, BusyList* busy) {
  TellSettled(stream, busy);
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
