#include "device/markers/legacy.h"

#include <atomic>

#include "device/ids.h"
#include "device/markers/marking.h"
#include "real.h"

namespace gpufence {
namespace {

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
bool MayMarkLate(const MarkedStream& stream) {
  return stream.handle.load(std::memory_order_relaxed) != kLegacyStream || !HasBlockingStreams();
}

// What is marked here lies before what is about to be put into the legacy stream, which waits for
// all before it in any case.
void LeaveBlockingStreams(Markers* markers) {
  if (!HasBlockingStreams()) return;
  const uint64_t current = CurrentContext();
  const StreamsGuard guard(&markers->streams);
  const uint16_t context = guard ? markers->streams.IndexOf(current) : kNoContext;
  if (context == kNoContext) return;
  ++markers->streams.Context(context).others;
  markers->streams.ForEachActive([&](MarkedStream* stream) {
    const bool is_meant =
        stream->context == context && stream->is_blocking && StreamTable::IsReachable(*stream);
    if (is_meant && stream->IsTouched()) LeaveLocked(markers, stream, Recorder::kOther);
  });
}

bool WaitsForLegacy(Markers* markers, MarkedStream* stream) {
  const uint32_t others = markers->streams.ContextOf(*stream).others;
  const bool waits = stream->is_blocking && stream->others_seen != others;
  stream->others_seen = others;
  return waits;
}

}  // namespace gpufence
