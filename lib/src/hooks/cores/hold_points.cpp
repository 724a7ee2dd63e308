// Hold points in streams (docs/core-limiter-details.md, "Hold points"): a launch that is held for
// budget waits on the GPU, and the program's thread goes on.
#include <algorithm>

#include "base/futex.h"
#include "base/tuning.h"
#include "device/markers/markers.h"
#include "hooks/cores/core_pace.h"
#include "hooks/cores/cores.h"
#include "hooks/graphs/capture.h"
#include "real.h"

namespace gpufence {
namespace {

bool PutPoint(CUstream stream, CUdeviceptr word, uint32_t number) {
  CUstreamBatchMemOpParams wait = {};
  wait.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  wait.waitValue.address = word;
  wait.waitValue.value = number;
  wait.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  return real::cuStreamBatchMemOp_v2(stream, 1, &wait, 0) == CUDA_SUCCESS;
}

// Of use where the GPU waits for the host, so that what it works in between is not known exactly.
// Not beside others, whose slices would be in what is queued; nor where queues must be short; nor
// beside other streams, which may wait for this one and be charged for it.
bool MayStand(Cores* cores, const CoreDevice& device, const MarkedStream& stream,
              uint64_t owed_ns) {
  return owed_ns <= kTuning.lately_ns && stream.HasRoom() && !device.LogsLaunches() &&
         cores->markers.streams.IsOnlyActive(&stream) &&
         device.hold.beside.load(std::memory_order_relaxed) == 0 && !cores->markers.CallsBlock() &&
         !MayCapture() && WaitsForHost(&cores->markers, &stream);
}

// Whether the next launch begins a run, in which the GPU stands nowhere. Not where another thread
// puts a marker there just now.
bool Leaves(Cores* cores, MarkedStream* stream) {
  constexpr uint32_t kBits = MarkedStream::kRunning | MarkedStream::kLaunches;
  LeaveStream(&cores->markers, stream);
  return (stream->word.load(std::memory_order_relaxed) & kBits) == 0;
}

// Until it opens. What is charged meanwhile keeps it closed for a while only.
uint64_t LeftNs(const CoreDevice& device, uint64_t now_ns) {
  const auto from_now = [=](uint64_t at_ns) { return at_ns - std::min(at_ns, now_ns); };
  const uint64_t until_ns = device.hold.until_ns.load(std::memory_order_relaxed);
  const uint64_t since_ns = device.hold.since_ns.load(std::memory_order_relaxed);
  return std::min(std::max(device.seat.HeldFor(now_ns), from_now(until_ns)),
                  from_now(since_ns + 2 * kTuning.lately_ns));
}

// Returns its number.
uint32_t Close(Cores* cores, CoreDevice* device, uint64_t owed_ns, uint64_t now_ns) {
  if (!cores->markers.yields.IsHoldClosed(device->ordinal)) {
    device->hold.since_ns.store(now_ns, std::memory_order_relaxed);
    device->hold.until_ns.store(now_ns + owed_ns, std::memory_order_relaxed);
  }
  const uint32_t number = cores->markers.yields.CloseHold(device->ordinal);
  cores->yielder.Wake();
  return number;
}

}  // namespace

bool HoldOnGpu(Cores* cores, CoreDevice* device, MarkedStream* stream, uint64_t owed_ns,
               uint64_t now_ns) {
  if (stream == nullptr || !MayStand(cores, *device, *stream, owed_ns)) return false;
  if (cores->markers.yields.IsHoldClosed(device->ordinal, stream->holds_at)) return true;
  cores->yielder.Begin(cores);
  if (!cores->yielder.runs()) return false;
  FindYieldWords(cores, *stream);
  const CUdeviceptr words = YieldWordsOf(*cores, *stream);
  if (words == 0 || !Leaves(cores, stream)) return false;
  const uint32_t number = Close(cores, device, owed_ns, now_ns);
  // Pairs with the thread's end, which opens for good what is closed by then.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!cores->yielder.runs()) {
    OpenHold(cores, device, now_ns);
    return false;
  }
  const auto handle = reinterpret_cast<CUstream>(stream->handle.load(std::memory_order_relaxed));
  if (!PutPoint(handle, words + YieldPoints::kBytesToHold, number)) {
    LoseYieldWords(cores, *stream);
    return false;
  }
  // Only now: whoever launches into the stream meanwhile puts one there as well, in front of the
  // run that begins with it.
  stream->holds_at.store(number, std::memory_order_relaxed);
  return true;
}

uint64_t LeftAtHoldNs(const Cores& cores, const CoreDevice& device, const MarkedStream& stream,
                      uint64_t now_ns) {
  return cores.markers.yields.IsHoldClosed(device.ordinal, stream.holds_at) ? LeftNs(device, now_ns)
                                                                            : 0;
}

void FollowHold(Cores* cores, CoreDevice* device, uint64_t now_ns) {
  const bool is_beside = device->seat.OthersWant(now_ns, kTuning.lately_ns);
  device->hold.beside.store(is_beside ? 1 : 0, std::memory_order_relaxed);
  const uint32_t ordinal = device->ordinal;
  if (!cores->markers.yields.IsHoldClosed(ordinal) || !AllStandAtHold(&cores->markers, ordinal)) {
    return;
  }
  device->hold.until_ns.store(0, std::memory_order_relaxed);
  cores->yielder.Wake();
}

void OpenHold(Cores* cores, CoreDevice* device, uint64_t now_ns) {
  cores->markers.yields.OpenHold(device->ordinal);
  const uint64_t since_ns = device->hold.since_ns.load(std::memory_order_relaxed);
  device->held_ns.fetch_add(now_ns - std::min(since_ns, now_ns), std::memory_order_relaxed);
  device->held_launches.fetch_add(1, std::memory_order_release);
  Notify(device);
}

uint64_t OpenHolds(Cores* cores, uint64_t now_ns) {
  uint64_t next_ns = UINT64_MAX;
  const uint32_t devices = cores->count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < devices; ++i) {
    CoreDevice* device = &cores->devices[i];
    if (!cores->markers.yields.IsHoldClosed(device->ordinal)) continue;
    const uint64_t left_ns = LeftNs(*device, now_ns);
    if (left_ns != 0) {
      next_ns = std::min(next_ns, left_ns);
    } else {
      OpenHold(cores, device, now_ns);
    }
  }
  return next_ns;
}

}  // namespace gpufence
