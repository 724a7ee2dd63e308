// Holding one launch: until there is budget for it, room in the queue, and the turn.
#include <algorithm>

#include "core/futex.h"
#include "device/capture_mode.h"
#include "device/markers/collect.h"
#include "device/markers/forecast.h"
#include "hooks/cores/core_pace.h"
#include "hooks/cores/cores.h"
#include "hooks/graphs/captures.h"
#include "real.h"

namespace gpufence {
namespace {

// How long a held launch sleeps at a time: for its turn it is woken, and its watcher says that it
// still waits.
constexpr uint64_t kTurnNapNs = 10'000'000;
constexpr uint64_t kBlindNapNs = 200'000;  // without a watcher
constexpr uint64_t kLongestNapNs = 100'000'000;
// What runs longer than kPatienceNs may as well be long, and what went may be as long again: the
// next one goes after twice the time, and none before twice the longest kernel that was seen, if
// that is not too long to wait in any case.
constexpr uint64_t kMostPatienceNs = 32'000'000'000;

// One launch waited, all its naps together. The next look tells the others.
void CountHeldLaunch(CoreDevice* device, uint64_t held_ns) {
  device->held_ns.fetch_add(held_ns, std::memory_order_relaxed);
  device->held_launches.fetch_add(1, std::memory_order_release);
}

// Whether one of those who wait since `begin_ns` or before goes, although it should not.
bool IsOutOfPatience(Cores* cores, CoreDevice* device, uint64_t begin_ns, uint64_t now_ns) {
  const uint32_t reached = cores->markers.reached(device->ordinal);
  const bool runs = KernelsRun(&cores->markers, device->ordinal);
  // Streams that wait add nothing to a debt: it will be paid, and then the queue alone is in the
  // way.
  const bool waits =
      device->seat.HeldFor(now_ns) == 0 && cores->markers.streams.IsActive(device->ordinal);
  const uint64_t least_ns = std::clamp(
      2 * cores->markers.longest_ns.load(std::memory_order_relaxed), kPatienceNs, kMostPatienceNs);
  if (device->reached.exchange(reached, std::memory_order_relaxed) != reached ||
      (!runs && !waits)) {
    device->stuck_since_ns.store(now_ns, std::memory_order_relaxed);
    device->patience_ns.store(least_ns, std::memory_order_relaxed);
    return false;
  }
  const uint64_t patience_ns =
      runs ? std::max(device->patience_ns.load(std::memory_order_relaxed), least_ns) : kPatienceNs;
  uint64_t since_ns = device->stuck_since_ns.load(std::memory_order_relaxed);
  // Another thread that waits may have read the clock later than this one.
  if (now_ns < std::max(since_ns, begin_ns) + patience_ns ||
      !device->stuck_since_ns.compare_exchange_strong(since_ns, now_ns)) {
    return false;
  }
  if (runs) {
    device->patience_ns.store(std::min(2 * patience_ns, kMostPatienceNs),
                              std::memory_order_relaxed);
  }
  return true;
}

// Charges what ran in a stream that has nothing left, if nobody saw that yet: true then. Without it
// a program that waits for each of its kernels would be held by their guessed lengths until the
// watcher looks.
bool SawItsEnd(Cores* cores, MarkedStream* stream) {
  if (MayCapture()) return false;
  BusyIntervals<kMostWaitedIntervals> busy;
  CollectEnded(&cores->markers, stream, &busy);
  ChargeAll(cores, &busy, NowNs());
  return !busy.empty();
}

}  // namespace

void TickHere(Cores* cores) {
  if (cores->watcher.looks(NowNs())) return;
  const CaptureRelaxed relaxed;
  CUcontext context = nullptr;
  real::cuCtxGetCurrent(&context);
  TickCores(cores, NowNs());
  real::cuCtxSetCurrent(context);
}

HeldNs Hold(Cores* cores, CoreDevice* device, MarkedStream* stream) {
  const uint64_t begin_ns = NowNs();
  HeldNs held = {};
  bool waited = false;
  bool has_seen = false;
  bool impatient = false;
  GangHold gang;
  for (; !cores->watcher.stopping(); FollowLimits(cores)) {
    if (DeviceAt(cores, device->ordinal) == nullptr) break;
    const uint32_t seen = device->progress.load(std::memory_order_acquire);
    const uint64_t now_ns = NowNs();
    const HoldFor hold = HoldOf(cores, device, stream, now_ns);
    uint64_t wait_ns = std::max(gang.Ask(cores, device, hold, now_ns), hold.queue_ns);
    if (wait_ns != 0 && !impatient) impatient = IsOutOfPatience(cores, device, begin_ns, now_ns);
    if (wait_ns != 0 && !impatient) {
      if (!cores->watcher.runs()) wait_ns = std::min(wait_ns, kTickNs);
      if (!has_seen && stream != nullptr && stream->QueuedNs() != 0) {
        has_seen = true;
        if (SawItsEnd(cores, stream)) continue;
      }
      const bool is_first = !waited;
      waited = true;
      // The stream may run dry meanwhile: then it is known when.
      if (is_first && stream != nullptr) MarkStream(&cores->markers, stream);
      const bool queued = stream != nullptr && stream->QueuedNs() != 0;
      // A debt is waited out to the moment; only for the queue somebody must look sooner.
      device->queue_waiters.fetch_add(queued ? 1 : 0, std::memory_order_relaxed);
      if (is_first && queued && !stream->is_trusted) cores->watcher.LookNow();
      FutexWait(&device->progress, seen, std::min(wait_ns, kLongestNapNs));
      device->queue_waiters.fetch_sub(queued ? 1 : 0, std::memory_order_relaxed);
      TickHere(cores);
      continue;
    }
    if (device->seat.WantTurn(now_ns)) {
      device->seat.Beat(now_ns, /*outstanding=*/true);
      if (device->seat.HasTurn()) break;
    }
    // What it still has is marked, so that its end is seen.
    if (!waited && stream != nullptr) MarkStream(&cores->markers, stream);
    waited = true;
    device->turn_waiters.fetch_add(1, std::memory_order_relaxed);
    cores->watcher.Wake(cores);
    device->seat.AwaitTurn(cores->watcher.runs() ? kTurnNapNs : kBlindNapNs);
    device->turn_waiters.fetch_sub(1, std::memory_order_relaxed);
    held.by_others += NowNs() - now_ns;
    TickHere(cores);
  }
  gang.End(device);
  if (held.by_others != 0) {
    device->others_had_ns.store(held.by_others, std::memory_order_relaxed);
  }
  if (waited) {
    held.at_all = NowNs() - begin_ns;
    CountHeldLaunch(device, held.at_all);
  }
  if (cores->watcher.runs()) device->closed.store(0, std::memory_order_release);
  if (stream != nullptr) {
    stream->word.fetch_and(~MarkedStream::kHeld, std::memory_order_relaxed);
  }
  return held;
}

}  // namespace gpufence
