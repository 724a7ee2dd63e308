// A lock between threads of one process, held for a few instructions. Never in shared memory, never
// across a driver call. Lives in memory that is wiped on fork, where zero means free: a child
// cannot inherit it held.
#pragma once

#include <sched.h>

#include <atomic>

namespace gpufence {

class SpinLock {
 public:
  void Lock() {
    for (int spins = 0; held_.exchange(true, std::memory_order_acquire); ++spins) {
      if (spins > 100) sched_yield();
    }
  }
  void Unlock() { held_.store(false, std::memory_order_release); }

 private:
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
