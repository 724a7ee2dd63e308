// What happens to markers when the streams and contexts that they are of end.
#include "device/markers_look.h"
#include "real.h"

namespace gpufence {

bool Markers::Forget(CUstream handle, uint64_t* since_ns) {
  MarkedStream* stream = Find(handle);
  if (stream == nullptr) return true;
  const FutexGuard guard(&lock_);
  const bool is_marked = MarkLocked(stream);
  *since_ns = stream->is_timed ? stream->charged_ns : stream->host_begin_ns;
  // Without a handle it must not be marked any more: that would be the legacy stream.
  stream->word.fetch_and(~MarkedStream::kRunning, std::memory_order_relaxed);
  stream->handle.store(0, std::memory_order_release);
  return is_marked;
}

bool Markers::IsMeant(const Context& context, CUcontext handle, uint32_t ordinal) const {
  const uint64_t seen = context.handle.load(std::memory_order_relaxed);
  if (seen == 0) return false;
  return handle != nullptr ? seen == reinterpret_cast<uint64_t>(handle)
                           : context.is_primary && context.ordinal == ordinal;
}

// What was launched is marked, so that whoever launches from now on begins a run and is known.
uint64_t Markers::Suspend(CUcontext handle, uint32_t ordinal) {
  static_assert(kMostMarkedContexts <= 64);
  uint64_t suspended = 0;
  const FutexGuard guard(&lock_);
  for (uint16_t i = 1; i < kMostMarkedContexts; ++i) {
    if (!IsMeant(contexts_[i], handle, ordinal)) continue;
    ForEachActive([&](MarkedStream* stream) {
      const bool is_per_thread = stream->thread.load(std::memory_order_relaxed) != 0;
      if (stream->context == i && !is_per_thread) LeaveLocked(stream);
    });
    ++contexts_[i].away;
    suspended |= uint64_t{1} << i;
  }
  return suspended;
}

// The context's events are gone with it.
void Markers::Drop(uint16_t context) {
  for (uint16_t i = 1; i <= markers_made_; ++i) {
    if (markers_[i].event != nullptr && markers_[i].context == context) Discard(i);
  }
  Context* dropped = &contexts_[context];
  dropped->free = dropped->base = kNone;
  dropped->base_ns = 0;
  dropped->clock = {};
  dropped->blind = false;
}

// Its context ended. True when the stream lives all the same: who launches while others end a
// primary context holds it as well, so that this is its next life, under the same handle.
bool Markers::End(MarkedStream* stream, Look* look) {
  TellSettled(stream, look);
  if (stream->first != kNone || (stream->is_timed && IsActive(stream))) {
    const uint64_t since_ns =
        stream->is_timed ? stream->charged_ns : markers_[stream->first].recorded_ns;
    look->Add(*stream, since_ns, look->now_ns);
  }
  stream->first = stream->last = kNone;
  stream->queued = 0;
  stream->begin_ns = 0;
  if (stream->began_away) {
    stream->BeginAt(look->now_ns);
    return true;
  }
  stream->handle.store(0, std::memory_order_release);
  stream->word.store(0, std::memory_order_relaxed);
  SetActive(stream, false);
  return false;
}

size_t Markers::Resume(uint64_t suspended, bool ended, uint64_t now_ns, BusyInterval* busy,
                       size_t room) {
  Look look = {now_ns, false, busy, room, 0, kNone};
  const FutexGuard guard(&lock_);
  for (; suspended != 0; suspended &= suspended - 1) {
    const auto i = static_cast<uint16_t>(__builtin_ctzll(suspended));
    Context* context = &contexts_[i];
    --context->away;
    bool lives = false;
    for (MarkedStream& stream : streams_) {
      if (stream.context != i) continue;
      if (ended) lives |= End(&stream, &look);
      stream.began_away &= context->away != 0;
    }
    if (!ended) continue;
    Drop(i);
    if (!lives) context->handle.store(0, std::memory_order_relaxed);
  }
  return look.count;
}

}  // namespace gpufence
