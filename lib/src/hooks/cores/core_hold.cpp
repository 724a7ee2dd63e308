// Holding one launch: until there is budget for it, room in the queue, and the turn; and what one
// that may be held asks of others of its container, who meet in collectives.
#include <algorithm>

#include "base/futex.h"
#include "base/tuning.h"
#include "device/context_scope.h"
#include "device/markers/looks.h"
#include "hooks/cores/core_pace.h"
#include "hooks/cores/cores.h"
#include "hooks/graphs/capture.h"
#include "policy/share.h"

namespace gpufence {

// ---- among others in collectives ----

namespace {

// What a process owed when it saw first that others seem to wait for it: 0 where they do not. It
// may have waited for them as long, and to let them pay for waiting in turn would never end.
int64_t OwedBefore(CoreGang* gang, const GangView& view, int64_t owed_ns) {
  int64_t before_ns = gang->owed_before_ns.load(std::memory_order_relaxed);
  if (view.lead == 0 && !view.is_unfinished) {
    before_ns = 0;
  } else if (before_ns == 0) {
    before_ns = std::max(owed_ns, int64_t{1});
  }
  gang->owed_before_ns.store(before_ns, std::memory_order_relaxed);
  return before_ns;
}

// For the launches behind this one.
void Remember(CoreGang* gang, const GangView& view, GangAnswer answer) {
  if (answer.is_uncounted) {
    gang->uncounted.store(1, std::memory_order_relaxed);
    gang->awaited.store(1, std::memory_order_relaxed);
  } else if (!view.is_unfinished) {
    gang->awaited.store(0, std::memory_order_relaxed);
  }
}

}  // namespace

void NoteCollective(CoreDevice* device) {
  CoreGang& gang = device->gang;
  const uint64_t now_ns = NowNs();
  gang.met_ns.store(now_ns, std::memory_order_relaxed);
  uint32_t count = gang.count.load(std::memory_order_relaxed);
  if (gang.uncounted.exchange(0, std::memory_order_relaxed) == 0) {
    count = gang.count.fetch_add(1, std::memory_order_relaxed) + 1;
  }
  device->seat.TellCollectives(count, now_ns);
  device->closed.store(1, std::memory_order_release);
}

uint64_t GangHold::Ask(Cores* cores, CoreDevice* device, HoldFor hold, uint64_t now_ns) {
  is_outside_ = false;
  CoreGang& gang = device->gang;
  const uint64_t met_ns = gang.met_ns.load(std::memory_order_relaxed);
  count_ = gang.count.load(std::memory_order_relaxed);
  const bool is_behind = count_ != gang.asked.load(std::memory_order_relaxed);
  if (!is_behind && !IsRecent(met_ns, now_ns, kTuning.remembered_ns)) return hold.budget_ns;
  is_asked_ = true;
  GangView view = device->seat.SeeGang(count_, now_ns);
  // Directly behind one, or while others wait, it takes part however long the last one waited.
  const bool takes_part =
      is_behind || view.lead != 0 || IsRecent(met_ns, now_ns, kTuning.gang_lasts_ns);
  if (view.members == 0 || !takes_part) return hold.budget_ns;
  hold.budget_ns = std::max(hold.budget_ns, hold.window_ns);
  is_outside_ = hold.window_ns != 0;
  if (view.quiet_lead != 0) view = CountAs(device, view.quiet_lead, met_ns, now_ns);

  is_awaited_ = view.is_unfinished && gang.awaited.load(std::memory_order_relaxed) != 0;
  const auto fed_ns =
      static_cast<int64_t>(CostOf(kTuning.burst_work_ns / 2, device->seat.ShareNow(now_ns)));
  const GangAsker asker = {.wait_ns = hold.budget_ns,
                           .owed_ns = hold.owed_ns - OwedBefore(&gang, view, hold.owed_ns),
                           .queued_ns = hold.queued_ns,
                           .is_behind = is_behind,
                           .is_quiet = !cores->markers.streams.IsActive(device->ordinal),
                           .is_fed = hold.queued_ns >= fed_ns,
                           .was_awaited = is_awaited_};
  const GangAnswer answer = AskGang(view, asker, &wait_, now_ns);
  Remember(&gang, view, answer);
  if (answer.wait_ns != 0) {
    holds_ = true;
    device->seat.TellGangHeld(asker.is_behind, asker.is_quiet, now_ns);
  }
  return answer.wait_ns;
}

// Others have counted so many more of the collectives that this one launched.
GangView GangHold::CountAs(CoreDevice* device, uint32_t more, uint64_t met_ns, uint64_t now_ns) {
  CoreGang& gang = device->gang;
  gang.asked.fetch_add(more, std::memory_order_relaxed);
  count_ = gang.count.fetch_add(more, std::memory_order_relaxed) + more;
  device->seat.TellCollectives(count_, met_ns);
  return device->seat.SeeGang(count_, now_ns);
}

void GangHold::End(CoreDevice* device) {
  if (is_asked_) device->gang.asked.store(count_, std::memory_order_relaxed);
  if (holds_) device->seat.TellGangGoesOn();
}

// ---- one launch that waits ----

namespace {

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
  const uint64_t least_ns =
      std::clamp(2 * cores->markers.longest_ns.load(std::memory_order_relaxed), kTuning.patience_ns,
                 16 * kTuning.patience_ns);
  if (device->reached.exchange(reached, std::memory_order_relaxed) != reached ||
      (!runs && !waits)) {
    device->stuck_since_ns.store(now_ns, std::memory_order_relaxed);
    device->patience_ns.store(least_ns, std::memory_order_relaxed);
    return false;
  }
  const uint64_t patience_ns =
      runs ? std::max(device->patience_ns.load(std::memory_order_relaxed), least_ns)
           : kTuning.patience_ns;
  uint64_t since_ns = device->stuck_since_ns.load(std::memory_order_relaxed);
  // Another thread that waits may have read the clock later than this one.
  if (now_ns < std::max(since_ns, begin_ns) + patience_ns ||
      !device->stuck_since_ns.compare_exchange_strong(since_ns, now_ns)) {
    return false;
  }
  if (runs) {
    device->patience_ns.store(std::min(2 * patience_ns, 16 * kTuning.patience_ns),
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
  ChargeTold(cores, stream, &busy, NowNs());
  return !busy.empty();
}

// While it lives, the watcher looks at the device's neighbours, whatever runs. Null: nothing.
class WaitForOthers {
 public:
  WaitForOthers(CoreDevice* device, Cores* cores) : device_(device) {
    if (device_ == nullptr) return;
    // Pairs with the watcher, which says that it sleeps and then looks for waiters: one of the two
    // must see the other. A weaker order lets a weakly ordered machine (aarch64) ask the watcher
    // before this count is visible, so that both sleep.
    device_->turn_waiters.fetch_add(1, std::memory_order_seq_cst);
    cores->watcher.Wake(cores);
  }
  ~WaitForOthers() {
    if (device_ != nullptr) device_->turn_waiters.fetch_sub(1, std::memory_order_relaxed);
  }
  WaitForOthers(const WaitForOthers&) = delete;
  WaitForOthers& operator=(const WaitForOthers&) = delete;

 private:
  CoreDevice* device_;
};

// One launch that is held. `stream`: null where it is for another device than its stream's.
class Holding {
 public:
  Holding(Cores* cores, CoreDevice* device, MarkedStream* stream)
      : cores_(cores), device_(device), stream_(stream), begin_ns_(NowNs()) {}

  // Until it may go.
  void Wait() {
    if (stream_ != nullptr && BeginsBehindLongRun()) SawItsEnd(cores_, stream_);
    device_->seat.NoteArrival(begin_ns_, HasLaunchedNoneSinceWait());
    for (; !cores_->watcher.stopping(); FollowLimits(cores_)) {
      if (DeviceAt(cores_, device_->ordinal) == nullptr) break;
      if (IsFrozen()) {
        AwaitThaw();
        continue;
      }
      const uint32_t seen = device_->progress.load(std::memory_order_acquire);
      const uint64_t now_ns = NowNs();
      const uint64_t wait_ns = WaitNs(now_ns);
      if (GoesAhead(now_ns)) break;
      if (wait_ns != 0) {
        AwaitProgress(seen, wait_ns);
      } else if (device_->seat.Yields(now_ns) && !YieldsOnGpu(*cores_, *device_, stream_)) {
        Yield(seen);
      } else if (HasTurn(now_ns)) {
        break;
      } else {
        AwaitTurn(now_ns);
      }
    }
    gang_.End(device_);
    // Its stream may have run dry meanwhile, and nobody looked: then it begins a run.
    if (waited_ && HasQueued()) SawItsEnd(cores_, stream_);
  }

  // It goes.
  HeldNs Tell() {
    HeldNs held = {};
    held.by_others = by_others_ns_;
    if (by_others_ns_ != 0) {
      device_->others_had_ns.store(by_others_ns_, std::memory_order_relaxed);
    }
    if (waited_) {
      device_->seat.EndHold();
      held.at_all = NowNs() - begin_ns_;
      CountHeldLaunch(device_, held.at_all);
    }
    held.on_gpu = on_gpu_;
    const bool asks = device_->UsesHolds() && OwedNs() > -kTuning.even_ns;
    if (asks || cores_->watcher.runs()) {
      device_->closed.store(asks ? 1 : 0, std::memory_order_release);
    }
    if (stream_ != nullptr) {
      stream_->word.fetch_and(~MarkedStream::kHeld, std::memory_order_relaxed);
    }
    return held;
  }

 private:
  // What an exit handler launches goes: a process that ends shall end.
  bool IsFrozen() const {
    return device_->frozen.load(std::memory_order_acquire) != 0 && !cores_->watcher.ended();
  }

  // Asks for nothing meanwhile, so that no neighbour waits for this container. Whoever follows what
  // was set first wakes the others.
  void AwaitThaw() {
    if (BeginWaiting()) cores_->watcher.Wake(cores_);  // it tells when the process ends
    FutexWait(&device_->frozen, 1, kTuning.nap_ns);
    device_->stuck_since_ns.store(NowNs(),
                                  std::memory_order_relaxed);  // that was no kernel's fault
    TickHere(cores_);
  }

  // For budget, ranks of its gang and room in the queue; 0 also when it was patient long enough.
  uint64_t WaitNs(uint64_t now_ns) {
    hold_ = HoldOf(cores_, device_, stream_, now_ns);
    const uint64_t budget_ns = gang_.Ask(cores_, device_, hold_, now_ns);
    const uint64_t wait_ns = std::max({budget_ns, hold_.queue_ns, StandsForNs(now_ns)});
    if (wait_ns == 0 || impatient_) return 0;
    impatient_ = IsOutOfPatience(cores_, device_, begin_ns_, now_ns);
    return impatient_ ? 0 : wait_ns;
  }

  int64_t OwedNs() const { return hold_.owed_ns + hold_.queued_ns; }

  // Whether it goes and waits for budget on the GPU, as it waits for nothing else.
  bool GoesAhead(uint64_t now_ns) {
    const bool is_else = gang_.is_asked() || hold_.queue_ns != 0 || hold_.window_ns != 0;
    if (is_else || OwedNs() <= kTuning.even_ns || hold_.queued_ns > hold_.burst_ns / 2) {
      return false;
    }
    on_gpu_ = HoldOnGpu(cores_, device_, stream_, static_cast<uint64_t>(OwedNs()), now_ns);
    return on_gpu_;
  }

  // Until its stream goes on where that stands, and what is queued is not nearly paid for.
  uint64_t StandsForNs(uint64_t now_ns) const {
    if (stream_ == nullptr || OwedNs() <= kTuning.even_ns) return 0;
    return LeftAtHoldNs(*cores_, *device_, *stream_, now_ns);
  }

  // Whether what the program waited for is not charged yet. Short runs tell by the wait itself.
  bool BeginsBehindLongRun() const {
    return (stream_->word.load(std::memory_order_relaxed) & MarkedStream::kRunning) == 0 &&
           stream_->queued.load(std::memory_order_relaxed) != 0 &&
           stream_->ns_per_launch.load(std::memory_order_relaxed) >= kTuning.host_told_launch_ns;
  }

  // The stream that was waited for may seem to run behind that. Then launches into it go unasked.
  bool HasLaunchedNoneSinceWait() const {
    const MarkedStream* waited = device_->waited_stream.load(std::memory_order_relaxed);
    return waited != nullptr &&
           waited->QueuedLaunches() <= device_->waited_launches.load(std::memory_order_relaxed);
  }

  bool HasQueued() const { return stream_ != nullptr && stream_->QueuedNs() != 0; }

  // Before the first sleep, then true: what the stream has is marked, as it may run dry meanwhile.
  bool BeginWaiting() {
    if (waited_) return false;
    waited_ = true;
    device_->seat.BeginHold();
    if (stream_ != nullptr) MarkStream(&cores_->markers, stream_);
    return true;
  }

  // Until something was charged since `seen`, or what is owed is paid. For a window neighbours are
  // looked at, who may leave theirs.
  void AwaitProgress(uint32_t seen, uint64_t wait_ns) {
    const WaitForOthers others(gang_.is_outside() ? device_ : nullptr, cores_);
    if (!cores_->watcher.runs()) wait_ns = std::min(wait_ns, kTuning.tick_ns);
    if ((!has_looked_ || gang_.is_awaited()) && HasQueued()) {
      has_looked_ = true;
      if (SawItsEnd(cores_, stream_)) return;
    }
    const bool begins = BeginWaiting();
    const bool queued = HasQueued();
    // A debt is waited out to the moment; only for the queue somebody must look sooner. Below a
    // priority that is short, and the watcher may sleep since a moment when it was empty.
    // Pairs with Notify: it sees this one waiting, or this one sees its progress.
    device_->queue_waiters.fetch_add(queued ? 1 : 0, std::memory_order_seq_cst);
    if (begins && queued && (!stream_->is_trusted || device_->seat.HasSuperior(NowNs()))) {
      cores_->watcher.LookNow();
    }
    FutexWait(&device_->progress, seen, std::min(wait_ns, kTuning.nap_ns));
    device_->queue_waiters.fetch_sub(queued ? 1 : 0, std::memory_order_relaxed);
    TickHere(cores_);
  }

  // While a container that goes first has work.
  void Yield(uint32_t seen) {
    BeginWaiting();
    {
      const WaitForOthers others(device_, cores_);
      FutexWait(&device_->progress, seen, kTuning.soon_ns);
    }
    TickHere(cores_);
  }

  bool HasTurn(uint64_t now_ns) {
    if (!device_->seat.WantTurn(now_ns)) return false;
    device_->seat.Beat(now_ns, /*outstanding=*/true);
    return device_->seat.HasTurn();
  }

  void AwaitTurn(uint64_t since_ns) {
    BeginWaiting();
    {
      const WaitForOthers others(device_, cores_);
      device_->seat.AwaitTurn(cores_->watcher.runs() ? kTuning.nap_ns : kTuning.soon_ns);
    }
    by_others_ns_ += NowNs() - since_ns;
    TickHere(cores_);
  }

  Cores* cores_;
  CoreDevice* device_;
  MarkedStream* stream_;
  uint64_t begin_ns_;
  uint64_t by_others_ns_ = 0;
  GangHold gang_;
  HoldFor hold_ = {};
  bool on_gpu_ = false;
  bool waited_ = false;
  bool has_looked_ = false;  // for itself
  bool impatient_ = false;
};

}  // namespace

void TickHere(Cores* cores) {
  if (cores->watcher.looks(NowNs())) return;
  const CaptureRelaxed relaxed;
  TickCores(cores, NowNs());
}

HeldNs Hold(Cores* cores, CoreDevice* device, MarkedStream* stream) {
  Holding holding(cores, device, stream);
  holding.Wait();
  return holding.Tell();
}

}  // namespace gpufence
