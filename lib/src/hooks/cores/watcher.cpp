// The watcher: what is done at every look (charging, gates, turns), when to look again, and the
// thread that does so.
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include <algorithm>

#include "base/env.h"
#include "base/futex.h"
#include "base/log.h"
#include "base/tuning.h"
#include "device/context_scope.h"
#include "device/markers/looks.h"
#include "hooks/cores/core_pace.h"
#include "hooks/cores/cores.h"
#include "hooks/graphs/capture.h"
#include "hooks/ledger_move.h"
#include "policy/share.h"

// Before glibc 2.34 these live in libpthread, which the driver brings along, but nobody must.
extern "C" {
[[gnu::weak]] int pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
[[gnu::weak]] int pthread_detach(pthread_t);
}

namespace gpufence {
namespace {

// While others wait for the turn: by how much a stream's queue is too long for one more launch.
int64_t TooLongNs(const CoreDevice& device, const MarkedStream* stream, uint64_t queued_ns,
                  uint64_t left_ns) {
  if (queued_ns == 0) return 0;
  const bool deep =
      device.others_had_ns.load(std::memory_order_relaxed) >= kTuning.short_quantum_ns;
  // Always one more behind the one that runs, so that the GPU does not wait for us.
  const uint64_t room_ns =
      std::max(deep ? kTuning.deep_turn_queue_ns : kTuning.turn_queue_ns, stream->UsualNs());
  return static_cast<int64_t>(queued_ns - std::min(left_ns + 3 * kTuning.spacing_ns / 2, room_ns));
}

// While somebody who goes first may come: the same.
int64_t BeyondShortNs(const Cores& cores, const MarkedStream* stream, uint64_t now_ns) {
  const uint64_t queued_ns =
      stream != nullptr ? stream->ShortQueueNs(cores.markers.lengths, now_ns) : 0;
  if (queued_ns == 0) return 0;
  const uint64_t room_ns = std::max(kTuning.inferior_queue_ns, stream->UsualNs());
  const uint64_t beyond_ns = queued_ns - std::min(queued_ns, room_ns);
  // Who sleeps for less is late all the same.
  return static_cast<int64_t>(beyond_ns != 0 ? std::max(beyond_ns, kTuning.close_look_ns) : 0);
}

// What a burst costs.
int64_t BurstNs(uint32_t share) {
  return std::min(static_cast<int64_t>(CostOf(kTuning.burst_work_ns, share)),
                  kTuning.most_burst_ns);
}

// Launches go until what is owed and queued costs a burst, and then none until all is paid for.
// Streams that run at once have a part of it each, or many of them would queue as many bursts.
int64_t PayingNs(CoreDevice* device, int64_t queued_ns, uint32_t share, uint32_t streams,
                 int64_t ahead_ns) {
  const int64_t owed_ns = ahead_ns + queued_ns;
  const int64_t burst_ns = BurstNs(share) / std::max(streams, 1u);
  bool paying = device->paying.load(std::memory_order_relaxed) != 0;
  // A queue that is paid for is filled again before it runs dry.
  if (paying && ahead_ns <= 0 && owed_ns <= burst_ns / 2) paying = false;
  if (owed_ns > burst_ns) paying = true;
  device->paying.store(paying ? 1 : 0, std::memory_order_relaxed);
  return paying ? std::max(ahead_ns, owed_ns - burst_ns / 2) : 0;
}

// How much may be owed while the gate is open; while a burst is paid for less than anybody can owe.
int64_t MostOwedNs(const CoreDevice& device, uint64_t now_ns) {
  if (device.seat.TurnLeftNs(now_ns) != UINT64_MAX) return 0;
  const bool paying = device.paying.load(std::memory_order_relaxed) != 0;
  if (paying) return -2 * static_cast<int64_t>(kTuning.most_credit_ns);
  return device.UsesHolds() ? -kTuning.even_ns : BurstNs(device.seat.ShareNow(now_ns));
}

// Whether the next launch must look for itself.
bool MustAsk(const CoreDevice& device, uint64_t now_ns) {
  return !device.seat.HasTurn() || device.seat.Yields(now_ns) || device.seat.HasSuperior(now_ns) ||
         device.seat.AheadNs(now_ns) > MostOwedNs(device, now_ns);
}

// Not where the launch is held: where the container's file lies on a disk, the first change of a
// page of it takes milliseconds.
void CountHeld(CoreDevice* device) {
  const uint32_t launches = device->held_launches.exchange(0, std::memory_order_acquire);
  if (launches == 0) return;
  const uint64_t ns = device->held_ns.exchange(0, std::memory_order_relaxed);
  device->activity->launches_held.fetch_add(launches, std::memory_order_relaxed);
  device->activity->held_ns.fetch_add(ns, std::memory_order_relaxed);
}

// Once, however often it comes to that.
void SayKeptOut(const CoreDevice& device, uint64_t now_ns) {
  static constinit std::atomic<bool> said{false};
  if (!device.seat.shares_device() || !device.seat.IsAlone(now_ns)) return;
  if (said.exchange(true, std::memory_order_relaxed)) return;
  GPUFENCE_LOG(
      kWarn,
      "device %u: this container got no turn for 5 s, so it goes without turns for a minute, "
      "within its own core limit. See in `gpufence top` which container keeps the turn, "
      "and restart that one",
      device.ordinal);
}

uint32_t FloorOf(uint32_t told) { return told == 0 ? kDefaultFloor : told; }

// Whether that is so of any device.
template <typename Is>
bool Any(const Cores* cores, Is is) {
  const uint32_t devices = cores->count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < devices; ++i) {
    if (is(cores->devices[i])) return true;
  }
  return false;
}

bool AnyOthers(const Cores* cores, uint64_t now_ns) {
  return Any(cores, [=](const CoreDevice& device) {
    return device.seat.TurnLeftNs(now_ns) != UINT64_MAX;
  });
}

// Whether queues must be short there, for somebody of higher priority.
bool MustBeShort(const CoreDevice& device, uint64_t now_ns) {
  return device.stands.load(std::memory_order_relaxed) == 0 && device.seat.HasSuperior(now_ns);
}

bool AnyShortQueue(const Cores* cores, uint64_t now_ns) {
  return Any(cores, [=](const CoreDevice& device) { return MustBeShort(device, now_ns); });
}

// A program that launches as fast as it can waits for the driver's locks at each look. A long
// kernel that hides between short ones is charged from the look that finds it: of such a share no
// more can hide than the rest of the GPU.
bool IsLookedAtRarely(Cores* cores, const CoreDevice& device, uint64_t share) {
  const uint64_t launch_ns = LaunchNs(&cores->markers, device.ordinal);
  return share >= kTuning.rare_look_share && !device.seat.shares_device() && launch_ns != 0 &&
         launch_ns < kTuning.brief_launch_ns;
}

uint64_t SpacingNs(Cores* cores, uint64_t now_ns) {
  // Each costs the GPU 2.5 us (H200).
  if (AnyShortQueue(cores, now_ns)) return 2 * kTuning.inferior_queue_ns / 3;
  if (AnyOthers(cores, now_ns) || cores->markers.IsFar()) return 2 * kTuning.spacing_ns;
  const uint32_t devices = cores->count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < devices; ++i) {
    const CoreDevice& device = cores->devices[i];
    if (!IsLookedAtRarely(cores, device, device.seat.ShareNow(now_ns))) return kTuning.spacing_ns;
  }
  return 2 * kTuning.spacing_ns;
}

// Whether each device has three fourths of what may be saved there, and nobody else waits for them.
bool HasSaved(const Cores* cores, uint64_t now_ns) {
  const bool lacks = Any(cores, [=](const CoreDevice& device) {
    const auto credit_ns = static_cast<int64_t>(CreditOf(device.seat.ShareNow(now_ns)));
    return device.seat.AheadNs(now_ns) > -credit_ns * 3 / 4;
  });
  return !lacks && !AnyOthers(cores, now_ns);
}

// Whether no more may be charged than was used: what was saved of a small share would pay for that
// for a moment only, and neighbours would be charged too little.
bool MustBeExact(const Cores* cores, uint64_t now_ns) {
  return Any(cores, [=](const CoreDevice& device) {
    return device.seat.ShareNow(now_ns) < kWholeShare / 2 ||
           cores->markers.IsBeside(device.ordinal, now_ns);
  });
}

// Until the device's gate may have to be closed: kernels without a pause take so long to use up
// what may still be owed, since the time in which they run pays for their share of it.
uint64_t GateTickNs(Cores* cores, const CoreDevice& device, uint64_t now_ns) {
  const uint64_t share = device.seat.ShareNow(now_ns);
  if (device.closed.load(std::memory_order_relaxed) != 0 || share >= kWholeShare) {
    return kTuning.look_ns;
  }
  const int64_t room_ns = MostOwedNs(device, now_ns) - device.seat.AheadNs(now_ns);
  if (room_ns <= 0) return kTuning.tick_ns;
  return std::clamp(
      static_cast<uint64_t>(room_ns) * share / (kWholeShare - share), kTuning.tick_ns,
      IsLookedAtRarely(cores, device, share) ? kTuning.rare_look_ns : kTuning.look_ns);
}

// While launches wait for what is queued: until one of them may go. None goes before what was
// charged is paid for. From then on the end of what a marker stands for is awaited, or half of what
// the GPU has by the mean of its launches.
uint64_t QueueTickNs(Cores* cores, const CoreDevice& device, uint64_t now_ns) {
  const int64_t unpaid_ns = device.seat.AheadNs(now_ns);
  if (unpaid_ns > 0) {
    return std::clamp(static_cast<uint64_t>(unpaid_ns), 3 * kTuning.tick_ns / 2, kTuning.look_ns);
  }
  const bool known = EndsNs(&cores->markers, device.ordinal, now_ns) != 0;
  const uint64_t left_ns = LeftNs(&cores->markers, device.ordinal, now_ns);
  const uint64_t expected_ns = ExpectedNs(&cores->markers, now_ns);
  const uint64_t next_ns =
      std::max(left_ns / 2, known ? expected_ns : std::min(expected_ns, kTuning.tick_ns));
  return std::clamp(next_ns, kTuning.close_look_ns, kTuning.look_ns);
}

// Until what is queued is over, where launches are held: those of lower priority wait for that.
uint64_t EndTickNs(Cores* cores, const CoreDevice& device, uint64_t now_ns) {
  const uint64_t ends_ns = EndsNs(&cores->markers, device.ordinal, now_ns);
  return std::max(ends_ns - std::min(ends_ns, now_ns), 2 * kTuning.close_look_ns);
}

// When all that runs on the device is done, or so little of it is left that the next container may
// launch: of short kernels nothing, or both would run for a while. 0: not known.
uint64_t PassesOnAtNs(Cores* cores, const CoreDevice& device, uint64_t now_ns) {
  const uint64_t ends_ns = EndsNs(&cores->markers, device.ordinal, now_ns);
  const uint64_t left_ns = LaunchNs(&cores->markers, device.ordinal) / 128;
  return ends_ns - std::min({left_ns, kTuning.hand_over_ns, ends_ns});
}

// Until the device's turn must be looked at: its end, and the end of what is left of it.
uint64_t TurnTickNs(Cores* cores, const CoreDevice& device, bool active, uint64_t now_ns) {
  // Pairs with AwaitTurn: whoever begins to wait sees that the watcher sleeps, or is seen here.
  if (!active && device.turn_waiters.load(std::memory_order_seq_cst) != 0) return kTuning.look_ns;
  if (!active)
    return device.seat.TurnLeftNs(now_ns) != UINT64_MAX ? kTuning.turn_idle_ns : UINT64_MAX;
  const uint64_t left_ns = device.seat.TurnLeftNs(now_ns);
  const bool draining = device.seat.IsDraining();
  if (left_ns == UINT64_MAX && !draining) return UINT64_MAX;
  // Somebody waits: whatever ends is looked at when it does.
  // Where nobody knows when, half of what is left on average is safe to sleep, but not while the
  // next container waits for nothing else.
  const uint64_t ends_ns = PassesOnAtNs(cores, device, now_ns);
  const uint64_t half_ns = LeftNs(&cores->markers, device.ordinal, now_ns) / 2;
  const uint64_t guess_ns = draining ? std::min(half_ns, kTuning.turn_idle_ns)
                                     : std::max(half_ns, 2 * kTuning.close_look_ns);
  const uint64_t next_ns =
      left_ns > kTuning.short_turn_ns ? kTuning.look_ns : std::min(left_ns, kTuning.tick_ns);
  return std::max(std::min(next_ns, ends_ns > now_ns ? ends_ns - now_ns : guess_ns),
                  kTuning.close_look_ns);
}

}  // namespace

HoldFor HoldOf(Cores* cores, CoreDevice* device, const MarkedStream* stream, uint64_t now_ns) {
  int64_t ahead_ns = device->seat.AheadNs(now_ns);
  const uint64_t queued_ns = stream != nullptr ? stream->QueuedNs() : 0;
  // What was saved is for work whose length is known, or much of what is not would be queued.
  const bool known = stream == nullptr || stream->is_trusted.load(std::memory_order_relaxed);
  if (!known && queued_ns != 0) ahead_ns = std::max<int64_t>(ahead_ns, 0);
  const bool is_active = stream != nullptr && cores->markers.streams.IsActive(stream);
  const uint64_t left_ns = device->seat.TurnLeftNs(now_ns);
  const auto wait_ns = [](int64_t ns) { return ns > 0 ? static_cast<uint64_t>(ns) : 0; };
  const uint32_t share = device->seat.ShareNow(now_ns);
  const auto cost_ns = static_cast<int64_t>(CostOf(queued_ns, share));
  const Window window = device->seat.WindowNow(now_ns);
  const bool is_short = device->seat.HasSuperior(now_ns) && !YieldsOnGpu(*cores, *device, stream);
  int64_t beyond_ns = is_short ? BeyondShortNs(*cores, stream, now_ns) : 0;
  if (window.left_ns != UINT64_MAX) {
    beyond_ns = std::max(beyond_ns, TooLongNs(*device, stream, queued_ns, window.left_ns));
  }
  if (left_ns != UINT64_MAX) {
    const int64_t too_long_ns = TooLongNs(*device, stream, queued_ns, left_ns);
    return {wait_ns(ahead_ns), wait_ns(std::max(too_long_ns, beyond_ns)), ahead_ns, cost_ns, 0, 0};
  }
  const uint32_t streams = cores->markers.streams.CountActive(device->ordinal);
  const bool is_alone = queued_ns == 0 && (streams == 0 || (streams == 1 && is_active));
  const int64_t paying_ns = PayingNs(device, cost_ns, share, streams, ahead_ns);
  const int64_t even_ns = is_alone && ahead_ns > kTuning.even_ns ? ahead_ns : 0;
  return {wait_ns(std::max(paying_ns, even_ns)),
          wait_ns(beyond_ns),
          ahead_ns,
          cost_ns,
          window.wait_ns,
          BurstNs(share)};
}

// Whoever looked before this, and waits only afterwards, finds the number changed and does not
// sleep. Pairs with AwaitProgress.
void Notify(CoreDevice* device) {
  device->progress.fetch_add(1, std::memory_order_seq_cst);
  if (device->queue_waiters.load(std::memory_order_seq_cst) == 0 &&
      device->turn_waiters.load(std::memory_order_seq_cst) == 0) {
    return;
  }
  FutexWakeAll(&device->progress);
}

// Whether other streams of the process ran when this one did. They are told that it did.
static bool RanBesideOthers(CoreDevice* device, const BusyInterval& ran) {
  const uint64_t told_ns = device->told_until_ns.load(std::memory_order_relaxed);
  if (ran.end_ns > told_ns) device->told_until_ns.store(ran.end_ns, std::memory_order_relaxed);
  return ran.since_ns < told_ns;
}

void ChargeAll(Cores* cores, BusyList* busy, uint64_t now_ns) {
  std::sort(busy->begin(), busy->end(), [](const BusyInterval& one, const BusyInterval& other) {
    return one.begin_ns < other.begin_ns;
  });
  for (const BusyInterval& ran : *busy) {
    CoreDevice* device = DeviceAt(cores, ran.ordinal);
    if (device == nullptr) continue;
    const uint64_t filled_ns = RanBesideOthers(device, ran) ? ran.between_ns : 0;
    const uint64_t begin_ns = ran.begin_ns - filled_ns;
    device->seat.Charge({ran.since_ns, begin_ns, ran.end_ns, ran.is_own, ran.idle_ns}, now_ns);
  }
}

// Where other streams run, of which looks tell, such a charge passes over what they had so far, and
// few of these gaps are remembered.
void ChargeTold(Cores* cores, const MarkedStream* stream, BusyList* busy, uint64_t now_ns) {
  if (busy->empty()) return;
  ChargeAll(cores, busy, now_ns);
  CoreDevice* device = DeviceAt(cores, stream->ordinal);
  if (device == nullptr || cores->markers.streams.IsOnlyActive(stream)) return;
  if (device->told_early.fetch_add(1, std::memory_order_relaxed) + 1 == kCoreGaps / 2) {
    cores->watcher.LookNow();
  }
}

// Long launches are told from neighbours that came between once these have told of their runs.
static void SettleSamples(Cores* cores, uint64_t now_ns) {
  DoubtfulSample samples[kMostDoubtful];
  const size_t count = TakeDoubtful(&cores->markers, now_ns, samples);
  for (size_t i = 0; i < count; ++i) {
    const DoubtfulSample& sample = samples[i];
    const CoreDevice* device = DeviceAt(cores, sample.ordinal);
    // Those directly before and behind it seem to overlap it by what clocks are in doubt.
    if (device != nullptr &&
        !device->seat.OthersMayHaveRun(sample.begin_ns + kTuning.doubt_ns,
                                       sample.end_ns - kTuning.doubt_ns, now_ns)) {
      SettleSample(&cores->markers, sample);
    }
  }
}

void TickCores(Cores* cores, uint64_t now_ns) {
  FollowLimits(cores);
  BusyIntervals<kMostIntervals> busy;
  Markers* markers = &cores->markers;
  const bool has_saved = HasSaved(cores, now_ns);
  markers->is_far.store(has_saved && !MustBeExact(cores, now_ns), std::memory_order_relaxed);
  markers->spacing_ns.store(SpacingNs(cores, now_ns), std::memory_order_relaxed);
  markers->waited_spacing_ns.store(has_saved ? kTuning.rare_look_ns : kTuning.spacing_ns,
                                   std::memory_order_relaxed);
  CollectAll(markers, now_ns, MayCapture(), &busy);
  ChargeAll(cores, &busy, NowNs());
  const uint32_t devices = cores->count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < devices; ++i) {
    CoreDevice* device = &cores->devices[i];
    device->told_early.store(0, std::memory_order_relaxed);
    LookForNeighbours(device, now_ns);
    CountHeld(device);
    const bool waits = device->turn_waiters.load(std::memory_order_relaxed) != 0;
    const bool others = device->seat.OthersWant(now_ns, kTuning.silent_ns);
    const bool active = cores->markers.streams.IsActive(device->ordinal);
    const LiveTerms& terms = cores->limits.terms;
    device->seat.Follow({RankOf(terms.priority.load(std::memory_order_relaxed)),
                         terms.weight.load(std::memory_order_relaxed),
                         FloorOf(terms.floor.load(std::memory_order_relaxed)),
                         terms.burst_ns.load(std::memory_order_relaxed)});
    if (active) device->seat.NoteLaunches(LaunchNs(&cores->markers, device->ordinal));
    device->seat.Beat(now_ns, active, active && others ? PassesOnAtNs(cores, *device, now_ns) : 0);
    if (waits) device->seat.WantTurn(now_ns);
    const bool yielded = device->seat.Yields(now_ns);
    device->seat.MoveTurn(now_ns);
    const bool has_superior = device->seat.HasSuperior(now_ns);
    if (has_superior && !device->LogsLaunches()) cores->yielder.Begin(cores);
    device->logs.store(has_superior ? 1 : 0, std::memory_order_relaxed);
    markers->calm_until_ns[device->ordinal].store(device->seat.CalmUntilNs(now_ns),
                                                  std::memory_order_relaxed);
    FollowHold(cores, device, now_ns);
    SayKeptOut(*device, now_ns);
    if (MustAsk(*device, now_ns)) {
      device->closed.store(1, std::memory_order_release);
    }
    if (!busy.empty() || (yielded && !device->seat.Yields(now_ns))) Notify(device);
  }
  SettleSamples(cores, now_ns);  // by the notices that were read just now
}

void LeaveCores(Cores* cores, uint64_t now_ns) {
  for (uint32_t i = 0; i < cores->count.load(std::memory_order_acquire); ++i) {
    cores->devices[i].seat.Leave(now_ns);
  }
}

uint64_t NextTickNs(Cores* cores, uint64_t now_ns) {
  uint64_t next_ns = UINT64_MAX;
  uint64_t tick_ns = kTuning.rare_look_ns;
  for (uint32_t i = 0; i < cores->count.load(std::memory_order_acquire); ++i) {
    const CoreDevice& device = cores->devices[i];
    const bool active = cores->markers.streams.IsActive(device.ordinal);
    next_ns = std::min(next_ns, TurnTickNs(cores, device, active, now_ns));
    if (MustBeShort(device, now_ns)) {
      const bool is_here = active || device.turn_waiters.load(std::memory_order_seq_cst) != 0;
      if (is_here) next_ns = std::min(next_ns, 2 * kTuning.close_look_ns);
    }
    const bool is_held = device.closed.load(std::memory_order_relaxed) != 0;
    if (active && is_held && device.seat.HasInferior(now_ns)) {
      next_ns = std::min(next_ns, EndTickNs(cores, device, now_ns));
    }
    tick_ns = std::min(tick_ns, GateTickNs(cores, device, now_ns));
    if (device.queue_waiters.load(std::memory_order_relaxed) != 0) {
      tick_ns = std::min(tick_ns, QueueTickNs(cores, device, now_ns));
    }
  }
  // Also a program whose runs are over whenever they are looked at is busy: who sleeps for longer
  // is woken at each of them.
  const bool active = cores->markers.streams.any_active();
  const uint32_t begun = cores->markers.begun.load(std::memory_order_relaxed);
  if (active || begun != cores->watcher.begun_seen) {
    cores->watcher.begun_seen = begun;
    cores->watcher.busy_until_ns = now_ns + kTuning.pause_ns;
  }
  if (active) return std::min(next_ns, tick_ns);
  if (next_ns != UINT64_MAX) return next_ns;
  return now_ns < cores->watcher.busy_until_ns ? tick_ns : UINT64_MAX;
}

// ---- the thread ----

namespace {

constexpr uint64_t kForeverNs = 3'600'000'000'000;
// So long a pause may not keep it from new work: whoever begins some wakes it.
constexpr uint64_t kNapNs = kTuning.rare_look_ns;
constexpr uint64_t kStopPatienceNs = 200'000'000;

constinit std::atomic<bool> exit_registered{false};

// By CUDA's own variable.
bool CallsBlock() {
  const char* value = EnvText("CUDA_LAUNCH_BLOCKING");
  return value != nullptr && strcmp(value, "0") != 0;
}

void StopAtExit() {
  Cores* cores = ActiveCores();
  if (cores == nullptr) return;
  cores->yielder.Stop();
  cores->watcher.Stop();
}

}  // namespace

void Watcher::WakeSlowly(Cores* cores) {
  uint32_t none = kNone;
  if (state_.compare_exchange_strong(none, kBegun, std::memory_order_acq_rel)) {
    if (Start(cores)) return;
    state_.store(kFailed, std::memory_order_release);
    GPUFENCE_LOG(
        kWarn,
        "the thread that measures GPU time cannot be started: launches measure it themselves, "
        "which is slower. Allow the process another thread (ulimit -u, pids.max)");
    return;
  }
  looked_ns_.store(NowNs(), std::memory_order_relaxed);
  if (awake_.exchange(1, std::memory_order_acq_rel) == 0) FutexWakeAll(&awake_);
}

void Watcher::LookNow() {
  asked_.fetch_add(1, std::memory_order_release);
  FutexWakeAll(&asked_);
}

// The program's signals are for its own threads.
bool Watcher::Start(Cores* cores) {
  cores->markers.calls_block.store(CallsBlock(), std::memory_order_relaxed);
  if (pthread_create == nullptr) return false;
  looked_ns_.store(NowNs(), std::memory_order_relaxed);
  awake_.store(1, std::memory_order_release);
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const bool begun = pthread_create(&thread, nullptr, Main, cores) == 0;
  if (begun && pthread_detach != nullptr) pthread_detach(thread);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  // Later than the driver registered its own, hence called before them.
  if (begun && !exit_registered.exchange(true)) atexit(StopAtExit);
  return begun;
}

void* Watcher::Main(void* cores) {
  prctl(PR_SET_NAME, "gpufence");
  prctl(PR_SET_TIMERSLACK, 1'000ul);
  static_cast<Cores*>(cores)->watcher.Run(static_cast<Cores*>(cores));
  return nullptr;
}

void Watcher::Run(Cores* cores) {
  ++this_thread
        .hooks;  // what a profiler's callback launches here is not held: that would be for ever
  // It asks and records while other threads capture.
  const CaptureRelaxed relaxed;
  while (!stopping()) {
    const uint64_t now_ns = NowNs();
    looked_ns_.store(now_ns, std::memory_order_relaxed);
    const uint32_t asked = asked_.load(std::memory_order_acquire);
    FollowKeptPauses(cores, now_ns);
    TickCores(cores, now_ns);
    uint64_t pause_ns = NextTickNs(cores, NowNs());
    if (pause_ns <= kNapNs) {
      if (!stopping()) FutexWait(&asked_, asked, pause_ns);
      continue;
    }
    awake_.store(0, std::memory_order_seq_cst);
    // Whoever began something before that store saw it awake.
    pause_ns = NextTickNs(cores, NowNs());
    if (pause_ns > kNapNs && !stopping()) FutexWait(&awake_, 0, std::min(pause_ns, kForeverNs));
    awake_.store(1, std::memory_order_release);
  }
  TickCores(cores, NowNs());  // what ended since the last look is paid for
  LeaveCores(cores, NowNs());
  gone_.store(1, std::memory_order_release);
  FutexWakeAll(&gone_);
}

void Watcher::Stop() {
  stopping_.store(1, std::memory_order_release);
  if (state_.load(std::memory_order_acquire) != kBegun) return;
  LookNow();
  awake_.store(1, std::memory_order_release);
  FutexWakeAll(&awake_);
  const uint64_t until_ns = NowNs() + kStopPatienceNs;
  while (gone_.load(std::memory_order_acquire) == 0 && NowNs() < until_ns) {
    FutexWait(&gone_, 0, kStopPatienceNs);
  }
  // Whatever handlers are still to come may launch as well: they look by themselves.
  if (gone_.load(std::memory_order_acquire) == 0) return;
  state_.store(kFailed, std::memory_order_release);
  stopping_.store(0, std::memory_order_release);
}

}  // namespace gpufence
