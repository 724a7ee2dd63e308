// Launches, and what ends.
#include "hooks/cores/cores.h"

#include <algorithm>
#include <initializer_list>

#include "core/futex.h"
#include "core/log.h"
#include "device/capture_mode.h"
#include "device/context_scope.h"
#include "device/ids.h"
#include "hooks/cores/core_pace.h"
#include "hooks/cores/streams.h"
#include "hooks/graphs/captures.h"
#include "real.h"

namespace gpufence {
namespace {

// How long a held launch sleeps at a time: for its turn it is woken, and its watcher says that it
// still waits.
constexpr uint64_t kTurnNapNs = 10'000'000;
constexpr uint64_t kBlindNapNs = 200'000;  // without a watcher
constexpr uint64_t kLongestNapNs = 100'000'000;
// What runs so long without an end may wait for what we hold: then one launch goes. It may as well
// be long, and what went may be as long again: the next one goes after twice the time, and none
// before twice the longest kernel that was seen, if that is not too long to wait in any case.
constexpr uint64_t kPatienceNs = 2'000'000'000;
constexpr uint64_t kMostPatienceNs = 32'000'000'000;
constexpr size_t kMostWaitedIntervals = 8;  // of one stream's run

// Without a watcher that looks.
void TickHere(Cores* cores) {
  if (cores->watcher.looks(NowNs())) return;
  const CaptureRelaxed relaxed;
  CUcontext context = nullptr;
  real::cuCtxGetCurrent(&context);
  TickCores(cores, NowNs());
  real::cuCtxSetCurrent(context);
}

// One launch waited, all its naps together. The next look tells the others.
void CountHeldLaunch(CoreDevice* device, uint64_t held_ns) {
  device->held_ns.fetch_add(held_ns, std::memory_order_relaxed);
  device->held_launches.fetch_add(1, std::memory_order_release);
}

// Whether one of those who wait since `begin_ns` or before goes, although it should not.
bool IsOutOfPatience(Cores* cores, CoreDevice* device, uint64_t begin_ns, uint64_t now_ns) {
  const uint32_t reached = cores->markers.reached(device->ordinal);
  const bool runs = cores->markers.Runs(device->ordinal);
  // Streams that wait add nothing to a debt: it will be paid, and then the queue alone is in the
  // way.
  const bool waits = device->seat.HeldFor(now_ns) == 0 && cores->markers.IsActive(device->ordinal);
  const uint64_t least_ns =
      std::clamp(2 * cores->markers.longest_ns(), kPatienceNs, kMostPatienceNs);
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
  BusyInterval busy[kMostWaitedIntervals];
  const size_t count = cores->markers.CollectEnded(stream, busy, kMostWaitedIntervals);
  ChargeAll(cores, busy, count, NowNs());
  return count != 0;
}

// Waits for budget, room in the queue and the turn, in this order, and opens the gate. Returns how
// long it waited.
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
      if (is_first && stream != nullptr) cores->markers.Mark(stream);
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
    if (!waited && stream != nullptr) cores->markers.Mark(stream);
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

}  // namespace

// ---- launches ----

void CoreLaunch::Enter(Cores* cores, CUstream handle) {
  // Before the stream is known: it may be asked for its flags then, which ends a capture in it.
  if (MayCapture() && MayBeCapturing(handle)) return;
  stream_ = cores->markers.StreamFor(handle);
  uint32_t ordinal = stream_ != nullptr ? stream_->ordinal : CurrentDevice();
  CoreDevice* device = DeviceAt(cores, ordinal);
  if (device == nullptr) return;
  cores_ = cores;
  device_ = device;
  handle_ = handle;
  unmarked_since_ns_ = 0;
  begins_run_ = false;
  is_probe_ = false;
  using Stream = MarkedStream;
  constexpr uint32_t kAll = Stream::kRunning | Stream::kHeld | Stream::kProbe | Stream::kSparse;
  bool may_go = false;
  if (stream_ != nullptr) {
    const uint32_t bits = stream_->word.load(std::memory_order_acquire) & kAll;
    const bool goes_on =
        (bits & Stream::kSparse) == 0 || !cores->markers.CameToIdle(stream_, handle, MayCapture());
    may_go = (bits & ~(Stream::kRunning | Stream::kSparse)) == 0 &&
             device->closed.load(std::memory_order_acquire) == 0 && device->seat.HasTurn();
    if (may_go && goes_on && (bits & Stream::kRunning) != 0) return;
  }
  EnterSlowly(may_go);
}

// `may_go`: as far as the last look told, which is enough for one of many short runs that are
// waited for.
[[gnu::noinline]] void CoreLaunch::EnterSlowly(bool may_go) {
  const bool is_unasked = may_go && stream_->by_host.load(std::memory_order_relaxed) &&
                          cores_->markers.IsActive(stream_);
  const HeldNs held = is_unasked ? HeldNs{0, 0, true} : Hold(cores_, device_, stream_);
  begins_run_ = BeginRun(held, /*launches=*/0);
  if (!begins_run_) unmarked_since_ns_ = NowNs();
}

// Of the stream that the handle is of now. False when it cannot be marked; then it is null.
// `launches`: so many were counted in the stream, and are counted again where that is another one.
bool CoreLaunch::BeginRun(HeldNs held, uint32_t launches) {
  while (stream_ != nullptr && !cores_->watcher.stopping()) {
    const Markers::Begun begun = cores_->markers.Begin(stream_, handle_, held, MayCapture());
    if (begun == Markers::Begun::kYes || begun == Markers::Begun::kProbe) {
      is_probe_ = begun == Markers::Begun::kProbe;
      cores_->watcher.Wake(cores_);
      return true;
    }
    if (begun == Markers::Begun::kMustAsk) {
      held = Hold(cores_, device_, stream_);
      continue;
    }
    stream_ = begun == Markers::Begun::kOtherStream ? cores_->markers.StreamFor(handle_) : nullptr;
    if (stream_ != nullptr) stream_->word.fetch_add(launches, std::memory_order_acq_rel);
  }
  return cores_->watcher.stopping();
}

// What cannot be marked is waited for, which is slow and right.
[[gnu::noinline]] static void MeasureByWaiting(CoreDevice* device, CUstream stream,
                                               uint64_t since_ns) {
  static constinit std::atomic<bool> said{false};
  const CUresult rc = real::cuStreamSynchronize(stream);
  // Of a launch that failed, or a context that died, there is nothing to say.
  if (rc == CUDA_SUCCESS && !said.exchange(true, std::memory_order_relaxed)) {
    GPUFENCE_LOG(
        kWarn,
        "GPU time of a stream cannot be measured by events (too many streams or contexts, or "
        "the driver refuses them): its launches are waited for, so that the core limit holds");
  }
  const uint64_t now_ns = NowNs();
  device->seat.Charge(since_ns, now_ns, now_ns);
  device->closed.store(1, std::memory_order_release);
}

void CoreLaunch::Launched() {
  if (stream_ == nullptr) {
    if (unmarked_since_ns_ != 0) MeasureByWaiting(device_, handle_, unmarked_since_ns_);
    return;
  }
  if (begins_run_ && stream_->launched_ns.load(std::memory_order_relaxed) == 0) {
    stream_->launched_ns.store(NowNs(), std::memory_order_relaxed);
  }
  if (is_probe_) cores_->markers.Probed(stream_);
  const uint32_t before = stream_->word.fetch_add(1, std::memory_order_acq_rel);
  if ((before & MarkedStream::kRunning) == 0) {
    // Seen idle while it was being launched into: this thread had to wait for a processor.
    if (cores_->watcher.stopping()) return;
    const uint64_t now_ns = NowNs();
    if (!BeginRun({}, /*launches=*/1)) MeasureByWaiting(device_, handle_, now_ns);
    device_->seat.Beat(now_ns, /*outstanding=*/true);
    return;
  }
  const bool marks_it = (before & MarkedStream::kSparse) != 0 &&
                        stream_->marks_each.load(std::memory_order_relaxed) &&
                        !stream_->by_host.load(std::memory_order_relaxed);
  if (!marks_it &&
      (before & MarkedStream::kLaunches) + 1 < stream_->mark_at.load(std::memory_order_relaxed)) {
    return;
  }
  cores_->markers.MarkInTurn(stream_);
  if (HoldOf(cores_, device_, stream_, NowNs()).most_ns() != 0) {
    stream_->word.fetch_or(MarkedStream::kHeld, std::memory_order_relaxed);
  }
  TickHere(cores_);
}

// ---- graphs on several devices ----

namespace {

// Until it has nothing left, or for as long as one would be patient with kernels: it may wait for
// what the host does behind this very launch.
void AwaitStream(CUstream stream, uint64_t since_ns) {
  constexpr uint64_t kNapNs = 50'000;
  while (real::cuStreamQuery(stream) == CUDA_ERROR_NOT_READY && NowNs() < since_ns + kPatienceNs) {
    Nap(kNapNs);
  }
}

}  // namespace

void CoreElsewhere::Enter(uint64_t ordinals, CUstream stream) {
  Cores* cores = ordinals != 0 ? LaunchCores() : nullptr;
  if (cores == nullptr || (MayCapture() && MayBeCapturing(stream))) return;
  const MarkedStream* known = cores->markers.StreamFor(stream);
  const uint32_t own = known != nullptr ? known->ordinal : CurrentDevice();
  for (; ordinals != 0; ordinals &= ordinals - 1) {
    const auto ordinal = static_cast<uint32_t>(__builtin_ctzll(ordinals));
    CoreDevice* device = ordinal != own ? DeviceAt(cores, ordinal) : nullptr;
    if (device == nullptr) continue;
    Hold(cores, device, nullptr);
    ordinals_ |= uint64_t{1} << ordinal;
  }
  if (ordinals_ == 0) return;
  const CaptureRelaxed relaxed;  // other streams may capture
  cores_ = cores;
  stream_ = stream;
  begin_ = Mark();
  since_ns_ = NowNs();
}

// A timing event in the stream, whose context need not be the current one; null: none to be had.
CUevent CoreElsewhere::Mark() {
  CUcontext context = nullptr;
  CUevent event = nullptr;
  if (real::cuStreamGetCtx(stream_, &context) != CUDA_SUCCESS) return nullptr;
  const ContextScope scope(context);
  if (!scope || real::cuEventCreate(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) return nullptr;
  if (real::cuEventRecord(event, stream_) == CUDA_SUCCESS) return event;
  real::cuEventDestroy_v2(event);
  return nullptr;
}

// By the GPU's clock, since this thread may wait for a processor; by the host's where that fails.
uint64_t CoreElsewhere::RanNs(CUevent end) {
  const uint64_t waited_ns = NowNs() - since_ns_;
  float ms = 0;
  const bool known = begin_ != nullptr && end != nullptr &&
                     real::cuEventElapsedTime(&ms, begin_, end) == CUDA_SUCCESS;
  for (const CUevent event : {begin_, end}) {
    if (event != nullptr) real::cuEventDestroy_v2(event);
  }
  return known ? std::min(waited_ns, static_cast<uint64_t>(static_cast<double>(ms) * 1e6))
               : waited_ns;
}

void CoreElsewhere::WaitAndCharge() {
  GPUFENCE_LOG(kInfo,
               "a graph has kernels on several GPUs: its launches are waited for, so that the "
               "core limit holds on each of them");
  const CaptureRelaxed relaxed;
  const CUevent end = Mark();
  AwaitStream(stream_, since_ns_);
  const uint64_t ran_ns = RanNs(end);
  const uint64_t now_ns = NowNs();
  for (; ordinals_ != 0; ordinals_ &= ordinals_ - 1) {
    CoreDevice* device = DeviceAt(cores_, static_cast<uint32_t>(__builtin_ctzll(ordinals_)));
    if (device == nullptr) continue;
    device->seat.Charge(now_ns - ran_ns, now_ns, now_ns);
    device->closed.store(1, std::memory_order_release);
  }
}

// ---- waits ----

void CoreWait::Waited(bool ended) {
  BusyInterval busy[kMostWaitedIntervals];
  const size_t count =
      cores_->markers.AfterWait(stream_, launches_, ended, busy, kMostWaitedIntervals);
  if (count != 0) ChargeAll(cores_, busy, count, NowNs());
}

void TellAnswer(CUstream stream, bool ended) {
  Cores* cores = ActiveCores();
  MarkedStream* known = cores != nullptr ? cores->markers.Find(stream) : nullptr;
  if (known == nullptr) return;
  BusyInterval busy[kMostWaitedIntervals];
  const size_t count = cores->markers.AfterAnswer(known, ended, busy, kMostWaitedIntervals);
  if (count != 0) ChargeAll(cores, busy, count, NowNs());
}

// ---- streams and contexts ----

void EndCoreStream(Cores* cores, CUstream stream) {
  MarkedStream* known = cores->markers.Find(stream);
  CoreDevice* device = known != nullptr ? DeviceAt(cores, known->ordinal) : nullptr;
  uint64_t since_ns = 0;
  if (cores->markers.Forget(stream, &since_ns) || device == nullptr) return;
  MeasureByWaiting(device, stream, since_ns);
}

CoreContextEnd::CoreContextEnd(CUcontext context, CUdevice ordinal) : cores_(ActiveCores()) {
  if (cores_ == nullptr) return;
  suspended_ = cores_->markers.Suspend(context, static_cast<uint32_t>(ordinal));
}

void CoreContextEnd::Settle(bool ended) {
  if (cores_ == nullptr) return;
  BusyInterval busy[kMostIntervals];
  const uint64_t now_ns = NowNs();
  const size_t count = cores_->markers.Resume(suspended_, ended, now_ns, busy, kMostIntervals);
  ChargeAll(cores_, busy, count, now_ns);
  cores_ = nullptr;
}

}  // namespace gpufence
