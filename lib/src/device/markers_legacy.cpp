// What the legacy stream and the blocking streams of its context, which wait for each other, mean
// for markers: a late one in the legacy stream would order what the program did not, and what is no
// kernel there is waited for in the others. Must not know which call puts what into a stream.
#include "device/ids.h"
#include "device/markers_look.h"
#include "real.h"

namespace gpufence {
namespace {

// Also by the per-thread stream.
constinit std::atomic<bool> has_blocking_streams{false};

}  // namespace

void NoteBlockingStream() { has_blocking_streams.store(true, std::memory_order_relaxed); }

bool HasBlockingStreams() { return has_blocking_streams.load(std::memory_order_relaxed); }

bool IsBlockingStream(uint64_t handle) {
  if (!HasBlockingStreams()) return false;
  if (handle <= kPerThreadStream) return handle == kPerThreadStream;
  unsigned int flags = 0;
  const CUresult rc = real::cuStreamGetFlags(reinterpret_cast<CUstream>(handle), &flags);
  return rc == CUDA_SUCCESS && (flags & CU_STREAM_NON_BLOCKING) == 0;
}

// Directly behind a launch blocking streams wait for each other anyway; later the program may count
// on them going on side by side.
bool Markers::MayMarkLate(const MarkedStream& stream) const {
  return stream.handle.load(std::memory_order_relaxed) != kLegacyStream || !HasBlockingStreams();
}

// What is marked here lies before what is about to be put into the legacy stream, which waits for
// all before it in any case.
void Markers::LeaveBlocking() {
  if (!HasBlockingStreams()) return;
  const uint64_t current = CurrentContext();
  const FutexGuard guard(&lock_);
  uint16_t context = kNone;
  for (uint16_t i = 1; i < kMostMarkedContexts; ++i) {
    if (contexts_[i].handle.load(std::memory_order_relaxed) == current) context = i;
  }
  if (current == 0 || context == kNone) return;
  ++contexts_[context].others;
  ForEachActive([&](MarkedStream* stream) {
    const bool is_meant = stream->context == context && stream->is_blocking && IsReachable(*stream);
    if (is_meant && stream->word.load(std::memory_order_relaxed) != 0) LeaveLocked(stream);
  });
}

// Once for each time that it was.
bool Markers::WaitsForLegacy(MarkedStream* stream) {
  const uint32_t others = contexts_[stream->context].others;
  const bool waits = stream->is_blocking && stream->others_seen != others;
  stream->others_seen = others;
  return waits;
}

}  // namespace gpufence
