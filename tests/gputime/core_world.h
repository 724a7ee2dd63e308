// Containers that share a GPU, in virtual time: processes that launch, their watchers, deaths and
// stops, all in one thread. Each container has a time file in memory, and its notice in a folder
// that they share. The clock is a number; nothing waits.
#pragma once

#include <stdlib.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <queue>
#include <vector>

#include "base/tuning.h"
#include "policy/core_seat.h"
#include "policy/gpu_time.h"
#include "policy/share.h"
#include "support/state_program.h"

namespace coretest {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

inline constexpr uint64_t kUs = 1'000;
inline constexpr uint64_t kMs = 1'000'000;
inline constexpr uint64_t kSecond = 1'000'000'000;
inline constexpr uint64_t kBegin = 1000 * kSecond;  // what the clock says first

inline constexpr uint64_t kLaunchNs = 5 * kUs;        // between two launches of a thread
inline constexpr uint64_t kTickNs = kTuning.tick_ns;  // of a watcher
inline constexpr uint64_t kShortTickNs = kTuning.close_look_ns;
inline constexpr uint64_t kWaitingTickNs = kTuning.look_ns;
inline constexpr uint64_t kWakeNs = 60 * kUs;  // from a hand-over to who waits for it
// H200, driver 580: from one process to another, and for so long while others have work.
using gpufence::kSliceNs;
using gpufence::kSwitchNs;
inline constexpr uint64_t kTurnTailNs = 3 * kTuning.spacing_ns / 2;
inline constexpr uint64_t kQueueNs =
    kTuning.turn_queue_ns;  // of work that a process queues at most

// What a process does: launches kernels of one length, waits for them, pauses, and begins again.
struct Work {
  uint64_t kernel_ns;
  uint64_t batch = UINT64_MAX;  // kernels between two pauses
  uint64_t pause_ns = 0;
};

// A CPU quota: the process runs for the first part of each period, and not at all for the rest.
struct Quota {
  uint64_t runs_ns = 0;
  uint64_t period_ns = 0;  // 0: none
};

struct Process {
  uint32_t tenant;
  CoreSeat seat;
  Work work;
  Quota quota;
  bool alive = true;
  bool stopped = false;
  bool gate_open = false;
  bool is_held = false;     // its next launch
  bool is_paying = false;   // for a burst
  bool launch_due = false;  // a launch event is under way
  uint64_t launched = 0;    // of the batch
  uint64_t paused_until_ns = 0;
  uint32_t outstanding = 0;
  std::deque<uint64_t> queue;  // what is left of its kernels, the one that runs first
  std::vector<std::pair<uint64_t, uint64_t>> ran;  // not yet charged
  uint64_t uncharged_ns = 0;  // begin of what runs and is not yet charged; 0: nothing
  uint64_t next_tick_ns = 0;
  uint64_t last_progress_ns = 0;
};

class World {
 public:
  // `bare`: without limits, turns or charges, as a measure for what these cost.
  explicit World(uint64_t seed, bool bare = false) : random_(seed), bare_(bare) {
    CHECK(mkdtemp(node_) != nullptr);
  }
  ~World() {
    for (auto& process : processes_) process->seat.Part();
    for (TimeBytes* region : regions_) UnmapWipedOnFork(region, sizeof(TimeBytes));
    std::filesystem::remove_all(node_);
  }

  // Returns the container's number here.
  uint32_t AddTenant(uint32_t percent, uint32_t soft_percent = 0) {
    regions_.push_back(static_cast<TimeBytes*>(MapWipedOnFork(sizeof(TimeBytes))));
    percents_.push_back({percent * 1000, std::max(percent, soft_percent) * 1000});
    busy_ns_.push_back(0);
    return static_cast<uint32_t>(percents_.size() - 1);
  }

  uint32_t AddProcess(uint32_t tenant, Work work) {
    auto process = std::make_unique<Process>();
    process->tenant = tenant;
    process->work = work;
    process->last_progress_ns = now_ns_;
    TimeFile file;
    file.region = regions_[tenant];
    file.member = static_cast<uint32_t>(processes_.size());
    file.region->header.high_member.store(file.member + 1);
    char name[32];
    snprintf(name, sizeof name, "container-%u", tenant);
    char why[200];
    TimePlace place;
    CHECK(JoinTimeRow(file, name, kUuid, percents_[tenant], now_ns_, &place, why, sizeof why));
    process->seat.Sit(file, place);
    CHECK(bare_ || process->seat.Meet(node_, why, sizeof why));
    processes_.push_back(std::move(process));
    const uint32_t index = file.member;
    At(now_ns_ + random_.Below(kTickNs), [this, index] { Tick(index); });
    return index;
  }

  void Kill(uint32_t index) {
    Process& process = *processes_[index];
    process.alive = false;
    process.seat.Part();
    idle_wanted_ = false;  // others say it again at their next tick
    Forget(index);
  }

  void Throttle(uint32_t index, Quota quota) { processes_[index]->quota = quota; }

  // Calls something again and again, such as what a neighbour does that follows no rules.
  void Each(uint64_t ns, const std::function<void()>& body) {
    At(now_ns_ + ns, [this, ns, body] {
      body();
      Each(ns, body);
    });
  }

  void Stop(uint32_t index) {
    processes_[index]->stopped = true;
    idle_wanted_ = false;
  }

  // A process that was between looking at the gate and launching does launch.
  void Continue(uint32_t index) {
    Process& process = *processes_[index];
    process.stopped = false;
    process.last_progress_ns = now_ns_;
    At(now_ns_, [this, index] { Tick(index); });
    if (process.gate_open && process.alive && random_.Below(2) == 0) {
      if (!process.seat.HasTurn()) ++raced_launches_;
      Enqueue(index);
    }
  }

  void RunFor(uint64_t ns) {
    const uint64_t end_ns = now_ns_ + ns;
    while (!events_.empty() && events_.top().at_ns <= end_ns) {
      const std::function<void()> body = events_.top().body;
      now_ns_ = events_.top().at_ns;
      events_.pop();
      body();
    }
    now_ns_ = end_ns;
  }

  // Starts a new measurement.
  void Reset() {
    for (size_t tenant = 0; tenant < busy_ns_.size(); ++tenant) busy_ns_[tenant] = 0;
    begin_ns_ = now_ns_;
    longest_wait_ns_ = 0;
    longest_idle_ns_ = 0;
    switches_ = 0;
    for (auto& process : processes_) process->last_progress_ns = now_ns_;
  }

  // Percent of the time since Reset during which kernels of the tenant ran.
  double Percent(uint32_t tenant) const {
    return 100.0 * static_cast<double>(busy_ns_[tenant]) / static_cast<double>(now_ns_ - begin_ns_);
  }
  double Sum() const {
    double sum = 0;
    for (uint32_t tenant = 0; tenant < busy_ns_.size(); ++tenant) sum += Percent(tenant);
    return sum;
  }

  // The longest time for which the device was idle while a living process wanted it and could pay.
  uint64_t longest_idle_ns() const { return longest_idle_ns_; }
  // The longest time for which a process that could pay waited for its turn.
  uint64_t longest_wait_ns() const { return longest_wait_ns_; }

  // Launches of processes that did not have the turn; those that were stopped on their way to it.
  uint64_t launches_without_turn() const { return launches_without_turn_; }
  uint64_t raced_launches() const { return raced_launches_; }

  // From one container to another.
  uint64_t switches() const { return switches_; }

  uint64_t now_ns() const { return now_ns_; }
  size_t process_count() const { return processes_.size(); }
  Process& process(uint32_t index) { return *processes_[index]; }
  TimeBytes* region(uint32_t tenant) { return regions_[tenant]; }
  const char* node() const { return node_; }
  // Whether the container thinks that the turn is its own, closing or not.
  bool Holds(uint32_t tenant) const {
    return UnpackTurn(regions_[tenant]->rows[0].turn.load()).tenant == kOwnTenant;
  }
  Random& random() { return random_; }

 private:
  struct Event {
    uint64_t at_ns;
    uint64_t order;
    std::function<void()> body;
    bool operator<(const Event& other) const {
      return at_ns != other.at_ns ? at_ns > other.at_ns : order > other.order;
    }
  };

  void At(uint64_t at_ns, std::function<void()> body) {
    events_.push({at_ns, order_++, std::move(body)});
  }

  // ---- the GPU: one process at a time, for a slice while others have work ----

  void Enqueue(uint32_t index) {
    Process& process = *processes_[index];
    if (!process.seat.HasTurn()) ++launches_without_turn_;
    process.queue.push_back(process.work.kernel_ns);
    ++process.outstanding;
    ++process.launched;
    process.last_progress_ns = now_ns_;
    if (owner_ == kNobody) {
      TakeGpu(index);
    } else {
      Work();
      ScheduleGpu();
    }
  }

  bool OthersHaveWork(uint32_t index) const {
    for (uint32_t i = 0; i < processes_.size(); ++i) {
      if (i != index && !processes_[i]->queue.empty()) return true;
    }
    return false;
  }

  // From one process of a container to another it counts as the container's.
  bool IsSwitch(uint32_t index) const {
    return processes_[index]->tenant != processes_[last_owner_]->tenant;
  }

  void TakeGpu(uint32_t index) {
    if (idle_wanted_) {
      longest_idle_ns_ = std::max(longest_idle_ns_, now_ns_ - std::max(idle_since_ns_, begin_ns_));
    }
    idle_wanted_ = false;
    slice_ns_ = worked_ns_ = now_ns_ + (IsSwitch(index) ? kSwitchNs : 0);
    if (IsSwitch(index)) ++switches_;
    owner_ = last_owner_ = index;
    Process& process = *processes_[index];
    if (process.uncharged_ns == 0) process.uncharged_ns = slice_ns_;
    ScheduleGpu();
  }

  // What ran until now.
  void Work() {
    if (owner_ == kNobody || now_ns_ <= worked_ns_) return;
    Process& process = *processes_[owner_];
    const uint64_t ns = now_ns_ - worked_ns_;
    busy_ns_[process.tenant] +=
        ns - std::min(ns, begin_ns_ > worked_ns_ ? begin_ns_ - worked_ns_ : 0);
    process.queue.front() -= ns;
    worked_ns_ = now_ns_;
  }

  void ScheduleGpu() {
    const Process& process = *processes_[owner_];
    uint64_t next_ns = std::max(now_ns_, worked_ns_) + process.queue.front();
    if (OthersHaveWork(owner_)) {
      next_ns = std::min(next_ns, std::max(now_ns_, slice_ns_ + kSliceNs));
    }
    const uint64_t order = ++gpu_order_;
    At(next_ns, [this, order] {
      if (order == gpu_order_) StepGpu();
    });
  }

  void StepGpu() {
    Work();
    const uint32_t index = owner_;
    Process& process = *processes_[index];
    if (process.queue.front() == 0) Finish(index);
    const bool is_over = now_ns_ >= slice_ns_ + kSliceNs;
    if (!process.queue.empty() && (!is_over || !OthersHaveWork(index))) {
      if (is_over) slice_ns_ = now_ns_;
      return ScheduleGpu();
    }
    owner_ = kNobody;
    for (uint32_t i = 1; i <= processes_.size(); ++i) {
      const uint32_t next = (index + i) % static_cast<uint32_t>(processes_.size());
      if (!processes_[next]->queue.empty()) return TakeGpu(next);
    }
    idle_since_ns_ = now_ns_;
  }

  // When all that a process has outstanding is done, as its watcher expects it.
  uint64_t EndsNs(uint32_t index) const {
    uint64_t ends_ns = owner_ == index ? worked_ns_ : now_ns_;
    for (const uint64_t left_ns : processes_[index]->queue) ends_ns += left_ns;
    return ends_ns;
  }

  void Finish(uint32_t index) {
    Process& process = *processes_[index];
    process.queue.pop_front();
    if (!process.alive) return;
    process.ran.push_back({process.uncharged_ns, now_ns_});
    process.uncharged_ns = process.queue.empty() ? 0 : now_ns_;
    --process.outstanding;
    if (process.outstanding == 0 && process.launched == process.work.batch) {
      process.launched = 0;
      process.paused_until_ns = now_ns_ + process.work.pause_ns;
      At(process.paused_until_ns, [this, index] { Wake(index); });
    } else if (!process.launch_due) {
      process.launch_due = true;
      At(now_ns_ + kLaunchNs, [this, index] { Launch(index); });
    }
  }

  // What a dead process had queued is gone; what runs ends.
  void Forget(uint32_t index) {
    std::deque<uint64_t>& queue = processes_[index]->queue;
    if (owner_ == index) {
      queue.resize(1);
    } else {
      queue.clear();
    }
  }

  // ---- a process ----

  bool WantsToLaunch(const Process& process) const {
    if (now_ns_ < process.paused_until_ns || process.launched == process.work.batch) return false;
    const uint64_t queued_ns = process.outstanding * process.work.kernel_ns;
    const uint64_t left_ns = process.seat.TurnLeftNs(now_ns_);
    if (left_ns != UINT64_MAX && queued_ns > left_ns + kTurnTailNs) return false;
    return process.outstanding < 2 || queued_ns < kQueueNs;
  }

  // Nanoseconds until the process may run again; 0: it runs.
  uint64_t ThrottledNs(const Process& process) const {
    if (process.quota.period_ns == 0) return 0;
    const uint64_t at_ns = now_ns_ % process.quota.period_ns;
    return at_ns < process.quota.runs_ns ? 0 : process.quota.period_ns - at_ns;
  }

  void Launch(uint32_t index) {
    Process& process = *processes_[index];
    if (const uint64_t ns = ThrottledNs(process); ns > 0) {
      At(now_ns_ + ns, [this, index] { Launch(index); });
      return;
    }
    process.launch_due = false;
    if (!process.alive || process.stopped || !WantsToLaunch(process)) return;
    if (!process.gate_open) return;
    // A launch that ends idleness says so, then looks whether the turn is still there.
    if (process.outstanding == 0) {
      if (!process.is_held) process.seat.NoteArrival(now_ns_, /*waited=*/false);
      process.seat.Beat(now_ns_, true);
    }
    if (!process.seat.HasTurn()) {
      process.seat.Beat(now_ns_, process.outstanding > 0);
      process.gate_open = false;
      return;
    }
    Release(&process);
    Enqueue(index);
    process.launch_due = true;
    At(now_ns_ + kLaunchNs, [this, index] { Launch(index); });
  }

  // A call that wants to launch wakes its watcher.
  void Wake(uint32_t index) {
    processes_[index]->next_tick_ns = now_ns_;
    Tick(index);
  }

  void ChargeAll(Process* process) {
    for (const auto& [begin_ns, end_ns] : process->ran) {
      process->seat.Charge(begin_ns, end_ns, now_ns_);
    }
    process->ran.clear();
    if (process->uncharged_ns == 0) return;
    process->seat.Charge(process->uncharged_ns, now_ns_, now_ns_);
    process->uncharged_ns = std::max(now_ns_, process->uncharged_ns);
  }

  void Tick(uint32_t index) {
    Process& process = *processes_[index];
    if (!process.alive || process.stopped) return;
    if (process.next_tick_ns > now_ns_) return;
    if (const uint64_t ns = ThrottledNs(process); ns > 0) {
      process.next_tick_ns = now_ns_ + ns;
      At(process.next_tick_ns, [this, index] { Tick(index); });
      return;
    }
    if (!bare_) ChargeAll(&process);
    process.seat.NoteLaunches(process.work.kernel_ns);
    process.seat.Beat(now_ns_, process.outstanding > 0, EndsNs(index));
    const bool wants = WantsToLaunch(process) || process.outstanding > 0;
    bool has_turn = process.seat.HasTurn();
    if (wants && !has_turn) {
      const uint64_t before = regions_[process.tenant]->rows[0].turn.load();
      has_turn = process.seat.WantTurn(now_ns_);
      if (regions_[process.tenant]->rows[0].turn.load() != before) WakeWaiting();
    }
    if (process.seat.MoveTurn(now_ns_)) WakeWaiting();
    has_turn = process.seat.HasTurn();
    const bool can_pay = CanPay(&process);
    process.gate_open = has_turn && can_pay;
    HoldOrRelease(&process);
    NoteWaiting(&process, wants, can_pay);
    if (process.gate_open && WantsToLaunch(process) && !process.launch_due) {
      process.launch_due = true;
      At(now_ns_, [this, index] { Launch(index); });
    }
    process.next_tick_ns = now_ns_ + NextTickNs(index);
    At(process.next_tick_ns, [this, index] { Tick(index); });
  }

  // As hooks/cores/watcher.cpp has it: who takes no turns may owe a burst, and pays for all of it.
  bool CanPay(Process* process) {
    const CoreSeat& seat = process->seat;
    if (seat.TurnLeftNs(now_ns_) != UINT64_MAX) return seat.HeldFor(now_ns_) == 0;
    const uint32_t share = seat.ShareNow(now_ns_);
    const uint64_t burst_ns = std::min(CostOf(kTuning.burst_work_ns, share),
                                       static_cast<uint64_t>(kTuning.most_burst_ns));
    const int64_t ahead_ns = seat.AheadNs(now_ns_);
    if (ahead_ns <= 0) process->is_paying = false;
    if (ahead_ns > static_cast<int64_t>(burst_ns)) process->is_paying = true;
    return !process->is_paying;
  }

  // As hooks/cores/core_hold.cpp has it: a launch is held from when it comes until it goes.
  void HoldOrRelease(Process* process) {
    if (!WantsToLaunch(*process)) return Release(process);
    if (process->gate_open || process->is_held) return;
    process->seat.NoteArrival(now_ns_, /*waited=*/false);
    process->seat.BeginHold();
    process->is_held = true;
  }

  void Release(Process* process) {
    if (process->is_held) process->seat.EndHold();
    process->is_held = false;
  }

  // As hooks/cores/watcher.cpp has it.
  uint64_t NextTickNs(uint32_t index) const {
    const Process& process = *processes_[index];
    if (process.outstanding == 0)
      return process.seat.HasTurn() ? kTuning.turn_idle_ns : kWaitingTickNs;
    const uint64_t left_ns = process.seat.TurnLeftNs(now_ns_);
    if (left_ns == UINT64_MAX && !process.seat.IsDraining()) return kTickNs;
    const uint64_t ends_ns = EndsNs(index) - now_ns_;
    return std::max(std::min({left_ns, ends_ns, kTickNs}), kShortTickNs);
  }

  void NoteWaiting(Process* process, bool wants, bool can_pay) {
    if (!wants || !can_pay || process->outstanding > 0) process->last_progress_ns = now_ns_;
    longest_wait_ns_ = std::max(longest_wait_ns_, now_ns_ - process->last_progress_ns);
    if (owner_ == kNobody && wants && can_pay && !idle_wanted_) {
      idle_wanted_ = true;
      idle_since_ns_ = now_ns_;
    }
  }

  // The futex: whoever waits for a notice to change looks again.
  void WakeWaiting() {
    for (uint32_t index = 0; index < processes_.size(); ++index) {
      Process& process = *processes_[index];
      if (!process.alive || process.stopped) continue;
      if (!process.seat.HasTurn() && !WantsToLaunch(process)) continue;
      At(now_ns_ + kWakeNs, [this, index] { Wake(index); });
    }
  }

  char node_[64] = "/dev/shm/gpufence-world-XXXXXX";
  std::vector<TimeBytes*> regions_;
  Random random_;
  bool bare_;
  std::vector<CoreShares> percents_;
  std::vector<uint64_t> busy_ns_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::priority_queue<Event> events_;
  uint64_t order_ = 0;
  uint64_t now_ns_ = kBegin;
  uint64_t begin_ns_ = kBegin;
  static constexpr uint32_t kNobody = UINT32_MAX;
  uint32_t owner_ = kNobody;  // the process that has the GPU
  uint32_t last_owner_ = 0;
  uint64_t slice_ns_ = kBegin;   // when its slice began
  uint64_t worked_ns_ = kBegin;  // until when its kernel ran
  uint64_t gpu_order_ = 0;
  uint64_t switches_ = 0;
  bool idle_wanted_ = false;
  uint64_t idle_since_ns_ = kBegin;
  uint64_t longest_idle_ns_ = 0;
  uint64_t longest_wait_ns_ = 0;
  uint64_t launches_without_turn_ = 0;
  uint64_t raced_launches_ = 0;
};

}  // namespace coretest
