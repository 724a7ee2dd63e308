// A lock between threads of one process, held for a few instructions. Never in shared memory, never
// across a driver call. Lives in memory that is wiped on fork, where zero means free: a child
// cannot inherit it held.
#pragma once

#include <sched.h>

#include <atomic>

#include "base/futex.h"
#include "base/held_locks.h"

namespace gpufence {

// Tells the processor that this thread waits for another one's store.
inline void Relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

class SpinLock {
 public:
  void Lock() {
    if (held_.exchange(true, std::memory_order_acquire)) [[unlikely]]
      LockLate();
    CountLock();
  }
  void Unlock() {
    held_.store(false, std::memory_order_release);
    CountUnlock();
  }

 private:
  // Reads while it waits: whoever writes takes the line away from the holder, who needs it. One
  // that goes before all others (SCHED_FIFO) yields to its equals alone. The holder may be none of
  // them, and gets the processor while this one sleeps.
  [[gnu::noinline, gnu::cold]] void LockLate() {
    constexpr int kSpins = 100;
    constexpr int kYields = 32;
    constexpr uint64_t kNapNs = 20'000;
    do {
      for (int spins = 0; held_.load(std::memory_order_relaxed); ++spins) {
        if (spins < kSpins) {
          Relax();
        } else if (spins < kSpins + kYields) {
          sched_yield();
        } else {
          Nap(kNapNs);
        }
      }
    } while (held_.exchange(true, std::memory_order_acquire));
  }

  std::atomic<bool> held_{false};
};

class SpinGuard {
 public:
  explicit SpinGuard(SpinLock* lock) : lock_(lock) { lock_->Lock(); }
  ~SpinGuard() { lock_->Unlock(); }
  SpinGuard(const SpinGuard&) = delete;
  SpinGuard& operator=(const SpinGuard&) = delete;

 private:
  SpinLock* lock_;
};

}  // namespace gpufence
