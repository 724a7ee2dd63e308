#include "hooks/cores.h"

#include <algorithm>

#include "core/log.h"
#include "device/ids.h"
#include "hooks/capture_mode.h"
#include "hooks/captures.h"
#include "hooks/streams.h"
#include "policy/share.h"
#include "real.h"

namespace gpufence {
namespace {

// Queued work may run so far ahead of what is paid for: enough for the GPU not to run dry between
// two looks, and for programs that launch slower than short kernels run to get ahead of them.
constexpr int64_t kAheadNs = 8'000'000;
constexpr uint64_t kTickNs = 500'000;
constexpr uint64_t kCalmTickNs = 1'000'000;  // while half of the credit is left
constexpr uint64_t kShortTickNs = 50'000;
constexpr uint64_t kTurnTickNs = 50'000;
constexpr uint64_t kLingerNs = 5'000'000;
constexpr uint64_t kLongestNapNs = 100'000'000;
// A kernel that runs so long may wait for what we hold: then one launch goes.
constexpr uint64_t kPatienceNs = 2'000'000'000;
constexpr size_t kMostIntervals = 256;
constexpr size_t kMostWaitedIntervals = 8;  // of one stream's run

CoreDevice* DeviceAt(Cores* cores, uint32_t ordinal) {
  if (ordinal >= kMostLimitedDevices) return nullptr;
  return cores->by_ordinal[ordinal].load(std::memory_order_acquire);
}

// How far the container's debt is ahead of now; negative: credit.
int64_t AheadNs(const CoreSeat& seat, uint64_t now_ns) {
  return static_cast<int64_t>(seat.HeldFor(now_ns - kShareBurstNs)) -
         static_cast<int64_t>(kShareBurstNs);
}

// Nanoseconds until one more launch may be queued in the stream.
uint64_t HoldNs(const CoreDevice& device, const MarkedStream* stream, uint64_t now_ns) {
  int64_t wait_ns = AheadNs(device.seat, now_ns);
  const uint64_t queued_ns = stream != nullptr ? stream->QueuedNs() : 0;
  if (queued_ns != 0) {
    wait_ns += static_cast<int64_t>(CostOf(queued_ns, device.seat.ShareNow(now_ns))) - kAheadNs;
  }
  return wait_ns > 0 ? static_cast<uint64_t>(wait_ns) : 0;
}

void Notify(CoreDevice* device) {
  device->progress.fetch_add(1, std::memory_order_release);
  FutexWakeAll(&device->progress);
}

// Without a watcher.
void TickHere(Cores* cores) {
  if (cores->watcher.runs()) return;
  const CaptureRelaxed relaxed;
  CUcontext context = nullptr;
  real::cuCtxGetCurrent(&context);
  TickCores(cores, NowNs());
  real::cuCtxSetCurrent(context);
}

// One launch waited, all its naps together.
void CountHeldLaunch(const CoreDevice* device, uint64_t since_ns) {
  device->activity->launches_held.fetch_add(1, std::memory_order_relaxed);
  device->activity->held_ns.fetch_add(NowNs() - since_ns, std::memory_order_relaxed);
}

// Waits for budget, room in the queue and the turn, in this order, and opens the gate.
void Hold(Cores* cores, CoreDevice* device, MarkedStream* stream) {
  const uint64_t since_ns = NowNs();
  bool waited = false;
  uint64_t patient_since_ns = since_ns;
  uint32_t reached = cores->markers.reached();
  for (; !cores->watcher.stopping(); FollowLimits(cores)) {
    if (DeviceAt(cores, device->ordinal) == nullptr) break;
    const uint32_t seen = device->progress.load(std::memory_order_acquire);
    const uint64_t now_ns = NowNs();
    if (reached != cores->markers.reached() || !cores->markers.any_active()) {
      reached = cores->markers.reached();
      patient_since_ns = now_ns;
    }
    uint64_t wait_ns = HoldNs(*device, stream, now_ns);
    if (wait_ns != 0 && now_ns - patient_since_ns < kPatienceNs) {
      if (!cores->watcher.runs()) wait_ns = std::min(wait_ns, kTickNs);
      // The stream may run dry meanwhile: then it is known when.
      if (!waited && stream != nullptr) cores->markers.Mark(stream);
      waited = true;
      const bool queued = stream != nullptr && stream->QueuedNs() != 0;
      // A debt is waited out to the moment; only for the queue somebody must look sooner.
      device->queue_waiters.fetch_add(queued ? 1 : 0, std::memory_order_relaxed);
      FutexWait(&device->progress, seen, std::min(wait_ns, kLongestNapNs));
      device->queue_waiters.fetch_sub(queued ? 1 : 0, std::memory_order_relaxed);
      TickHere(cores);
      continue;
    }
    if (device->seat.WantTurn(now_ns)) {
      device->seat.Beat(now_ns, /*outstanding=*/true);
      if (device->seat.HasTurn()) break;
    }
    waited = true;
    device->turn_waiters.fetch_add(1, std::memory_order_relaxed);
    cores->watcher.Wake(cores);
    FutexWait(&device->progress, seen, cores->watcher.runs() ? kTickNs : kTurnTickNs);
    device->turn_waiters.fetch_sub(1, std::memory_order_relaxed);
    TickHere(cores);
  }
  if (waited) CountHeldLaunch(device, since_ns);
  if (cores->watcher.runs()) device->closed.store(0, std::memory_order_release);
  if (stream != nullptr) {
    stream->word.fetch_and(~MarkedStream::kHeld, std::memory_order_relaxed);
  }
}

void Charge(Cores* cores, BusyInterval* busy, size_t count, uint64_t now_ns) {
  std::sort(busy, busy + count, [](const BusyInterval& one, const BusyInterval& other) {
    return one.begin_ns < other.begin_ns;
  });
  for (size_t i = 0; i < count; ++i) {
    CoreDevice* device = DeviceAt(cores, busy[i].ordinal);
    if (device != nullptr) device->seat.Charge(busy[i].begin_ns, busy[i].end_ns, now_ns);
  }
}

}  // namespace

// ---- launches ----

void CoreLaunch::Enter(Cores* cores, CUstream handle) {
  stream_ = cores->markers.StreamFor(handle);
  uint32_t ordinal = stream_ != nullptr ? stream_->ordinal : CurrentDevice();
  CoreDevice* device = DeviceAt(cores, ordinal);
  if (device == nullptr) return;
  if (MayCapture() && MayBeCapturing(handle)) return;
  cores_ = cores;
  device_ = device;
  handle_ = handle;
  unmarked_since_ns_ = 0;
  constexpr uint32_t kBoth = MarkedStream::kRunning | MarkedStream::kHeld;
  if (stream_ != nullptr && device->closed.load(std::memory_order_acquire) == 0 &&
      (stream_->word.load(std::memory_order_acquire) & kBoth) == MarkedStream::kRunning) {
    return;
  }
  EnterSlowly(handle);
}

[[gnu::noinline]] void CoreLaunch::EnterSlowly(CUstream handle) {
  Hold(cores_, device_, stream_);
  while (stream_ != nullptr && !cores_->watcher.stopping()) {
    const Markers::Begun begun = cores_->markers.Begin(stream_, handle);
    if (begun == Markers::Begun::kYes) {
      cores_->watcher.Wake(cores_);
      return;
    }
    stream_ = begun == Markers::Begun::kOtherStream ? cores_->markers.StreamFor(handle) : nullptr;
  }
  if (!cores_->watcher.stopping()) unmarked_since_ns_ = NowNs();
}

// What cannot be marked is waited for, which is slow and right.
[[gnu::noinline]] static void MeasureByWaiting(CoreDevice* device, CUstream stream,
                                               uint64_t since_ns) {
  GPUFENCE_LOG(
      kWarn,
      "GPU time of a stream cannot be measured by events (too many streams or contexts, or "
      "the driver refuses them): its launches are waited for, so that the core limit holds");
  real::cuStreamSynchronize(stream);
  const uint64_t now_ns = NowNs();
  device->seat.Charge(since_ns, now_ns, now_ns);
  device->closed.store(1, std::memory_order_release);
}

void CoreLaunch::Launched() {
  if (stream_ == nullptr) {
    if (unmarked_since_ns_ != 0) MeasureByWaiting(device_, handle_, unmarked_since_ns_);
    return;
  }
  const uint32_t before = stream_->word.fetch_add(1, std::memory_order_acq_rel);
  if ((before & MarkedStream::kRunning) == 0) {
    // Seen idle while it was being launched into: measured from here on.
    if (cores_->watcher.stopping()) return;
    cores_->markers.Begin(stream_, handle_);
    cores_->watcher.Wake(cores_);
    return;
  }
  if ((before & MarkedStream::kLaunches) + 1 < stream_->every.load(std::memory_order_relaxed)) {
    return;
  }
  cores_->markers.Mark(stream_);
  if (HoldNs(*device_, stream_, NowNs()) != 0) {
    stream_->word.fetch_or(MarkedStream::kHeld, std::memory_order_relaxed);
  }
  TickHere(cores_);
}

// ---- waits ----

void CoreWait::Waited(bool ended) {
  BusyInterval busy[kMostWaitedIntervals];
  const size_t count =
      cores_->markers.AfterWait(stream_, launches_, ended, busy, kMostWaitedIntervals);
  if (count != 0) Charge(cores_, busy, count, NowNs());
}

// ---- contexts ----

CoreContextEnd::CoreContextEnd(CUcontext context, CUdevice ordinal)
    : cores_(ActiveCores()), context_(context), ordinal_(static_cast<uint32_t>(ordinal)) {
  if (cores_ != nullptr) cores_->markers.Suspend(context_, ordinal_);
}

void CoreContextEnd::Settle(bool ended) {
  if (cores_ == nullptr) return;
  BusyInterval busy[kMostIntervals];
  const uint64_t now_ns = NowNs();
  const size_t count =
      cores_->markers.Resume(context_, ordinal_, ended, now_ns, busy, kMostIntervals);
  Charge(cores_, busy, count, now_ns);
  cores_ = nullptr;
}

// ---- ticks ----

void TickCores(Cores* cores, uint64_t now_ns) {
  FollowLimits(cores);
  BusyInterval busy[kMostIntervals];
  const bool captures = MayCapture();
  const size_t count = cores->markers.Collect(now_ns, captures, busy, kMostIntervals);
  Charge(cores, busy, count, now_ns);
  const uint32_t devices = cores->count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < devices; ++i) {
    CoreDevice* device = &cores->devices[i];
    device->seat.Beat(now_ns, cores->markers.IsActive(device->ordinal));
    bool changed = false;
    if (device->turn_waiters.load(std::memory_order_relaxed) != 0) device->seat.WantTurn(now_ns);
    if (device->turn_waiters.load(std::memory_order_relaxed) != 0 ||
        device->seat.OthersWant(now_ns, kMemberSilentNs)) {
      changed = device->seat.MoveTurn(now_ns);
    }
    if (AheadNs(device->seat, now_ns) > 0 || !device->seat.HasTurn()) {
      device->closed.store(1, std::memory_order_release);
    }
    if (changed || count != 0 || device->turn_waiters.load(std::memory_order_relaxed) != 0) {
      if (device->queue_waiters.load(std::memory_order_relaxed) != 0 ||
          device->turn_waiters.load(std::memory_order_relaxed) != 0) {
        Notify(device);
      }
    }
  }
}

uint64_t NextTickNs(Cores* cores, uint64_t now_ns) {
  bool others = false;
  bool held = false;
  bool calm = true;
  for (uint32_t i = 0; i < cores->count.load(std::memory_order_acquire); ++i) {
    CoreDevice* device = &cores->devices[i];
    if (device->turn_waiters.load(std::memory_order_relaxed) != 0) return kTurnTickNs;
    others |= device->seat.OthersWant(now_ns, kMemberSilentNs);
    calm &= AheadNs(device->seat, now_ns) < -static_cast<int64_t>(kShareBurstNs / 2);
    held |= device->queue_waiters.load(std::memory_order_relaxed) != 0;
  }
  if (cores->markers.any_active()) {
    cores->watcher.busy_until_ns = now_ns + kLingerNs;
    if (others) return kTurnTickNs;
    if (held) return std::clamp(cores->markers.ExpectedNs(now_ns), kShortTickNs, kTickNs);
    return calm ? kCalmTickNs : kTickNs;
  }
  return now_ns < cores->watcher.busy_until_ns ? kTickNs : UINT64_MAX;
}

}  // namespace gpufence
