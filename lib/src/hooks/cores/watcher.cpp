#include "hooks/cores/watcher.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include <algorithm>

#include "base/futex.h"
#include "base/log.h"
#include "device/capture_mode.h"
#include "hooks/cores/cores.h"
#include "hooks/ledger_move.h"

// Before glibc 2.34 these live in libpthread, which the driver brings along, but nobody must.
extern "C" {
[[gnu::weak]] int pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
[[gnu::weak]] int pthread_detach(pthread_t);
}

namespace gpufence {
namespace {

constexpr uint64_t kForeverNs = 3'600'000'000'000;
// So long a pause may not keep it from new work: whoever begins some wakes it.
constexpr uint64_t kNapNs = kRareLookNs;
constexpr uint64_t kStopPatienceNs = 200'000'000;

constinit std::atomic<bool> exit_registered{false};

void StopAtExit() {
  Cores* cores = ActiveCores();
  if (cores != nullptr) cores->watcher.Stop();
}

}  // namespace

void Watcher::WakeSlowly(Cores* cores) {
  uint32_t none = kNone;
  if (state_.compare_exchange_strong(none, kBegun, std::memory_order_acq_rel)) {
    if (Start(cores)) return;
    state_.store(kFailed, std::memory_order_release);
    GPUFENCE_LOG(kWarn,
                 "no thread could be started to watch the GPU: launches measure by themselves, "
                 "which makes them slower. Allow the process another thread (ulimit -u, pids.max)");
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
