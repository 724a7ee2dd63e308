// Waiting: the one place where a thread of the host program sleeps on our account, each time with a
// bound, and how a thread is kept from being cancelled in a stretch of ours. Also the clock that
// all of this counts by. Must not know what is waited for.
#pragma once

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace gpufence {

// What a clock says, in nanoseconds.
inline uint64_t ClockNs(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

// The monotonic clock, in nanoseconds.
inline uint64_t NowNs() { return ClockNs(CLOCK_MONOTONIC); }

// The same, for what must not be done too often: costs a few nanoseconds, and moves every few
// milliseconds. Never 0.
inline uint64_t CoarseNowNs() { return ClockNs(CLOCK_MONOTONIC_COARSE) + 1; }

// A clock that NTP does not slew, in nanoseconds from some moment.
inline uint64_t RawNowNs() { return ClockNs(CLOCK_MONOTONIC_RAW); }

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

// A stretch of ours in which the calling thread cannot be cancelled (pthread_cancel): nobody
// unwinds our frames, so a lock held there, or a step half done, would stay so. A request that
// comes meanwhile acts at the program's next cancellation point. For slow paths; what is short has
// no cancellation point, nor have the waits above.
class Uncancelled {
 public:
  Uncancelled() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~Uncancelled() { pthread_setcancelstate(before_, nullptr); }
  Uncancelled(const Uncancelled&) = delete;
  Uncancelled& operator=(const Uncancelled&) = delete;

 private:
  int before_;
};

}  // namespace gpufence
