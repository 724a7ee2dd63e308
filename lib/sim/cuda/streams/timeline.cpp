// Threads and clocks around the scheduler. Must not know: streams, handles, CUDA types.
#include "cuda/streams/timeline.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "machine/config.h"
#include "machine/machine.h"

namespace sim {

void* RunTimelineWorker(void*);

namespace {

constexpr uint32_t kMostPendingKernels = 1024;

// Real time. Shorter waits are spun, since a sleeping thread comes back 50 us late; the worker, for
// whom nobody waits, sleeps at least a nap; conditions in memory and virtual clocks are looked at
// once per nap as well.
constexpr uint64_t kSpinNs = 20'000;
constexpr uint64_t kNapNs = 100'000;
// A virtual clock moves only for those who wait. With a host function to come and nobody waiting,
// the worker waits in their place, but first lets the program go on for this long (real time).
constexpr uint64_t kGraceNs = 2'000'000;
constexpr uint64_t kPollStepNs = 1'000;  // a virtual clock's step per unsuccessful query

constinit Scheduler scheduler;
constinit bool attached = false;
constinit bool worker_started = false;
constinit uint64_t worker_wakes_real_ns = 0;  // while it sleeps: until when
// Changes when something happened that sleepers could not foresee, in this process or another one
// that makes way on a GPU: the bell of this process's slot, once it has one.
constinit std::atomic<uint32_t> early_surprise{0};
constinit std::atomic<uint32_t>* surprise = &early_surprise;

constinit thread_local bool calling_host = false;

void FutexWait(uint32_t seen, uint64_t real_deadline_ns) {
  timespec deadline{static_cast<time_t>(real_deadline_ns / 1'000'000'000u),
                    static_cast<long>(real_deadline_ns % 1'000'000'000u)};
  syscall(SYS_futex, surprise, FUTEX_WAIT_BITSET, seen,
          real_deadline_ns == kNever ? nullptr : &deadline, nullptr, FUTEX_BITSET_MATCH_ANY);
}

void WakeSleepers() {
  surprise->fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, surprise, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

void AttachDevices() {
  if (attached || !machine::ClaimSlot()) return;
  const int own_slot = machine::OwnSlot();
  for (int i = 0; i < machine::DeviceCount(); ++i) {
    machine::DeviceRecord& record = machine::Device(i);
    const TurnTaker taker{&record.compute, own_slot, machine::IsSlotAlive, machine::RingSlot};
    const SmTaker sharer{&record.sms, own_slot, machine::IsSlotAlive, machine::RingSlot};
    scheduler.device(i).Attach(taker, sharer, &machine::AllMeetings(), record.sm_count, i,
                               &machine::RecordBusy);
  }
  surprise = &machine::SlotAt(own_slot).bell;
  attached = true;
}

void StartWorker() {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  // The program's signals are for its own threads.
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  worker_started = pthread_create(&thread, nullptr, RunTimelineWorker, nullptr) == 0;
  if (worker_started) pthread_detach(thread);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

uint64_t RealDeadlineNs(uint64_t simulated_ns) {
  return simulated_ns == kNever ? kNever : ToRealNs(machine::Clock(), simulated_ns) + 1;
}

bool IsVirtual() { return machine::Clock().is_virtual != 0; }

// A number that is the same in each run of a program.
uint64_t NextDraw() {
  static constinit uint64_t state = 0x9e3779b97f4a7c15;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state >> 11;
}

// A host that has other things to do is late for a while: by so many times less in three of four
// runs of so many waits.
uint64_t LessLate(int run) {
  static constinit int left = 0;
  static constinit uint64_t less = 1;
  if (run == 0) return 1;
  if (left == 0) {
    left = run;
    less = NextDraw() % 4 == 0 ? 1 : 8;
  }
  --left;
  return less;
}

}  // namespace

TimelineLock::TimelineLock() { Acquire(); }

TimelineLock::~TimelineLock() { Let(); }

uint64_t TimelineLock::now_ns() const { return scheduler.now_ns(); }

bool TimelineLock::is_memory_undecided() const {
  return scheduler.host_pending() || scheduler.polling() || scheduler.writes_pending();
}

void TimelineLock::Acquire() {
  lock_.emplace();
  AttachDevices();
  if (attached) scheduler.AdvanceTo(NowNs(machine::Clock()));
}

// The worker must hear of anything that it would otherwise learn too late.
void TimelineLock::Let() {
  bool wake = false;
  if (worker_wakes_real_ns != 0) {
    const uint64_t next_ns = scheduler.NextEventNs();
    const bool idle = worker_wakes_real_ns == kNever;
    const bool sooner = next_ns != kNever && !IsVirtual() &&
                        worker_wakes_real_ns - kNapNs > RealDeadlineNs(next_ns);
    wake = sooner || scheduler.host_due() ||
           (idle && (next_ns != kNever || scheduler.polls_pending()));
    if (wake) worker_wakes_real_ns = 0;
  }
  lock_.reset();
  if (wake) WakeSleepers();
}

bool TimelineLock::in_host_function() { return calling_host; }

void TimelineLock::Submit(Work* work) {
  scheduler.Submit(work);
  const bool is_over = work->engine == Engine::kNone || work->state == WorkState::kDone;
  if (!worker_started && !is_over) StartWorker();
}

void TimelineLock::Sleep(uint64_t real_deadline_ns) {
  const uint32_t seen = surprise->load(std::memory_order_acquire);
  Let();
  if (real_deadline_ns > MonotonicNs() + kSpinNs) {
    FutexWait(seen, real_deadline_ns);
  } else {
    Spin(surprise, seen, real_deadline_ns);
  }
  Acquire();
}

void TimelineLock::SleepTowardsNextEvent() {
  const uint64_t next_ns = scheduler.NextEventNs();
  const bool host_first = scheduler.host_due() || scheduler.host_running();
  const bool is_for_host =
      IsVirtual() ? host_first || next_ns == kNever : scheduler.polls_pending();
  if (is_for_host) {
    Sleep(MonotonicNs() + kNapNs);
  } else if (IsVirtual()) {
    MoveVirtualClock(next_ns);
  } else {
    Sleep(RealDeadlineNs(next_ns));
  }
}

void TimelineLock::MoveVirtualClock(uint64_t to_ns) {
  AdvanceClock(machine::Clock(), to_ns);
  Let();
  Acquire();
}

void TimelineLock::Wait(Work* work) {
  if (work == nullptr) return;
  SpinUntil(work);
  WakeLate();
}

void TimelineLock::SpinUntil(Work* work) {
  RetainWork(work);
  while (work->state != WorkState::kDone) SleepTowardsNextEvent();
  ReleaseWork(work);
}

// As a thread does that gave its processor away, by the thread's own clock.
void TimelineLock::WakeLate() {
  const Config* config = GetConfig();
  if (config == nullptr || config->wake_ns == 0) return;
  const uint64_t late_ns = NextDraw() % (config->wake_ns / LessLate(config->wake_run) + 1);
  Let();
  BeBusy(late_ns);
  Acquire();
}

void TimelineLock::WaitForKernels(int device_index) {
  while (scheduler.device(device_index).pending_kernels() >= kMostPendingKernels) {
    SleepTowardsNextEvent();
  }
}

void TimelineLock::NoteUnfinished() {
  if (IsVirtual()) AdvanceClock(machine::Clock(), scheduler.now_ns() + kPollStepNs);
}

void TimelineLock::CallHostFunctions() {
  while (Work* work = scheduler.TakeHost()) {
    Let();
    calling_host = true;
    if (work->action != nullptr) work->action(*work);
    calling_host = false;
    Acquire();
    scheduler.FinishHost(work);
    WakeSleepers();
  }
}

// One round of the worker: what is due, then sleep until it may be needed again. Nobody has to wake
// it for what comes within a nap, so it takes one before it sleeps for good. Returns whether there
// was nothing to do.
bool TimelineLock::WorkOneRound(bool was_idle) {
  CallHostFunctions();
  const uint64_t before_ns = now_ns();
  const uint64_t next_ns = scheduler.NextEventNs();
  const uint64_t real_nap_ns = MonotonicNs() + (IsVirtual() ? kGraceNs : kNapNs);
  uint64_t real_deadline_ns = real_nap_ns;
  const bool is_idle = next_ns == kNever && !scheduler.polls_pending();
  if (is_idle) {
    if (was_idle) real_deadline_ns = kNever;
  } else if (!IsVirtual() && !scheduler.polls_pending() && RealDeadlineNs(next_ns) > real_nap_ns) {
    real_deadline_ns = RealDeadlineNs(next_ns);
  }
  worker_wakes_real_ns = real_deadline_ns;
  Sleep(real_deadline_ns);
  const bool is_woken = worker_wakes_real_ns == 0;
  worker_wakes_real_ns = 0;
  const bool stands_still = IsVirtual() && now_ns() == before_ns && next_ns != kNever;
  if (stands_still && scheduler.host_pending() && !scheduler.host_due()) MoveVirtualClock(next_ns);
  return is_idle && !is_woken;
}

void* RunTimelineWorker(void*) {
  prctl(PR_SET_NAME, "gpufence-sim");
  prctl(PR_SET_TIMERSLACK, 1'000ul);
  TimelineLock lock;
  for (bool is_idle = false;;) is_idle = lock.WorkOneRound(is_idle);
}

}  // namespace sim
