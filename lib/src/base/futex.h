// Waiting: the one place where a thread of the host program sleeps on our account. Every wait has a
// bound, and the lock here is for threads of one process only.
// Must not know what is waited for.
#pragma once

#include <errno.h>
#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "base/held_locks.h"

namespace gpufence {

// The monotonic clock, in nanoseconds.
inline uint64_t NowNs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

// Sleeps while `word` is `seen`, at most `timeout_ns`; may return early. Keeps errno.
inline void FutexWait(const std::atomic<uint32_t>* word, uint32_t seen, uint64_t timeout_ns) {
  timespec timeout = {static_cast<time_t>(timeout_ns / 1'000'000'000u),
                      static_cast<long>(timeout_ns % 1'000'000'000u)};
  const int error = errno;
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, &timeout, nullptr, 0);
  errno = error;
}

// Sleeps for so long, or a little less. No cancellation point, unlike nanosleep.
inline void Nap(uint64_t ns) {
  const std::atomic<uint32_t> nobody_wakes{0};
  FutexWait(&nobody_wakes, 0, ns);
}

inline void FutexWakeAll(const std::atomic<uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

// The same for a word in memory that other processes share: sleeps until a wake that names one of
// `bits`, so that a wake that is meant for one process does not cost all of them. False where the
// word is not there any more: the kernel reads it, so that this is no signal.
inline bool FutexWaitShared(const std::atomic<uint32_t>* word, uint32_t seen, uint64_t timeout_ns,
                            uint32_t bits) {
  const uint64_t until_ns = NowNs() + timeout_ns;  // this kind takes a moment, not a span
  timespec until = {static_cast<time_t>(until_ns / 1'000'000'000u),
                    static_cast<long>(until_ns % 1'000'000'000u)};
  const int error = errno;
  const bool waited = syscall(SYS_futex, word, FUTEX_WAIT_BITSET, seen, &until, nullptr, bits) == 0;
  const bool is_there = waited || errno != EFAULT;
  errno = error;
  return is_there;
}

inline void FutexWakeShared(const std::atomic<uint32_t>* word, uint32_t bits) {
  const int error = errno;
  syscall(SYS_futex, word, FUTEX_WAKE_BITSET, INT32_MAX, nullptr, nullptr, bits);
  errno = error;
}

// How many of these locks the thread holds. What the driver calls back into meanwhile must not take
// one of them again.
inline constinit thread_local uint32_t held_futex_locks = 0;

// A lock between threads of one process that may be held across a system call, never across a call
// of the driver (base/held_locks.h). Lives in memory that is wiped on fork, where zero means free.
class FutexLock {
 public:
  void Lock() {
    CountLock();
    ++held_futex_locks;
    uint32_t free = 0;
    if (word_.compare_exchange_strong(free, kHeld, std::memory_order_acquire)) return;
    while (word_.exchange(kContended, std::memory_order_acquire) != kFree) {
      FutexWait(&word_, kContended, kLongestNapNs);
    }
  }
  void Unlock() {
    CountUnlock();
    --held_futex_locks;
    if (word_.exchange(kFree, std::memory_order_release) == kContended) FutexWakeAll(&word_);
  }

 private:
  static constexpr uint32_t kFree = 0;
  static constexpr uint32_t kHeld = 1;
  static constexpr uint32_t kContended = 2;
  static constexpr uint64_t kLongestNapNs = 100'000'000;
  std::atomic<uint32_t> word_{kFree};
};

class FutexGuard {
 public:
  explicit FutexGuard(FutexLock* lock) : lock_(lock) { lock_->Lock(); }
  ~FutexGuard() { lock_->Unlock(); }
  FutexGuard(const FutexGuard&) = delete;
  FutexGuard& operator=(const FutexGuard&) = delete;

 private:
  FutexLock* lock_;
};

}  // namespace gpufence
