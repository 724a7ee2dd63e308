// Locks between threads of one process: SpinLock and BiasedLock for a few instructions, FutexLock
// across system calls too. Never in shared memory, and never held across a call of the driver
// (base/held_locks.h). Each lives in memory that is wiped on fork, where zero means free: a child
// cannot inherit it held. Must not know what they guard.
#pragma once

#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "base/futex.h"
#include "base/held_locks.h"

namespace gpufence {

// How many of these locks the thread holds. What the driver calls back into meanwhile must not take
// one of them again.
inline constinit thread_local uint32_t held_futex_locks = 0;

// May be held across a system call: who waits sleeps.
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

// Tells the processor that this thread waits for another one's store.
inline void Relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// For a few instructions: who waits spins first, and sleeps where that takes long.
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

// For a few instructions, without a locked one while one thread alone comes: behind a driver call
// such an instruction waits for every line that is cold. Who comes first owns the lock, and then
// only says that it is inside. The first other thread ends that for good: it takes the owner's
// right away, has the kernel put all threads' accesses to memory in order, and waits until the
// owner is outside. From then on, and where the kernel does not offer that, this is a SpinLock.
class BiasedLock {
 public:
  // While the process has one thread only, the kernel is told for nothing that it will be asked to
  // order accesses: then the first other thread costs microseconds. Later that would take as long
  // as asking it unprepared, some 20 ms, once for each lock that several threads take. To be called
  // before the driver starts threads of its own.
  static void Prepare() {
    struct stat tasks = {};
    constexpr nlink_t kOneTask = 3;  // a folder's own two, and one
    if (stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink == kOneTask) {
      Membarrier(kRegisterPrivateExpedited);
    }
  }

  // Returns what Unlock is to be told.
  bool Lock() {
    const uintptr_t self = Self();
    if (owner_.load(std::memory_order_relaxed) == self) [[likely]] {
      inside_.store(true, std::memory_order_relaxed);
      // Orders the two for the compiler. For the processor the kernel does, when somebody else
      // comes: then either this load sees that the right is gone, or that thread sees the store.
      std::atomic_signal_fence(std::memory_order_seq_cst);
      if (owner_.load(std::memory_order_relaxed) == self) [[likely]] {
        CountLock();
        return true;
      }
      inside_.store(false, std::memory_order_release);
    }
    lock_.Lock();
    if (owner_.load(std::memory_order_relaxed) != kShared) [[unlikely]]
      ClaimOrShare(self);
    return false;
  }

  void Unlock(bool as_owner) {
    if (!as_owner) [[unlikely]]
      return lock_.Unlock();
    inside_.store(false, std::memory_order_release);  // pairs with the load in ClaimOrShare
    CountUnlock();
  }

 private:
  static constexpr uintptr_t kNobody = 0;
  static constexpr uintptr_t kShared = 1;  // no thread's

  // A number that no two living threads have.
  static uintptr_t Self() {
#if defined(__x86_64__)
    uintptr_t self = 0;
    __asm__("mov %%fs:0, %0" : "=r"(self));
    return self;
#else
    return reinterpret_cast<uintptr_t>(__builtin_thread_pointer());
#endif
  }

  // Under the lock.
  [[gnu::cold, gnu::noinline]] void ClaimOrShare(uintptr_t self) {
    if (owner_.load(std::memory_order_relaxed) == kNobody) {
      owner_.store(CanOrder() ? self : kShared, std::memory_order_relaxed);
      return;
    }
    owner_.store(kShared, std::memory_order_seq_cst);
    Order();
    constexpr uint64_t kNapNs = 20'000;
    for (int looks = 0; inside_.load(std::memory_order_acquire); ++looks) {
      if (looks < 100) {
        Relax();
      } else {
        Nap(kNapNs);
      }
    }
  }

  // Of membarrier(2). The quick kind works where the process has registered for it (Prepare).
  static constexpr int kQuery = 0;
  static constexpr int kGlobal = 1;
  static constexpr int kPrivateExpedited = 8;
  static constexpr int kRegisterPrivateExpedited = 16;
  static long Membarrier(int command) {
    const int error = errno;
    const long answer = syscall(SYS_membarrier, command, 0, 0);
    errno = error;
    return answer;
  }

  static bool CanOrder() {
#if defined(__SANITIZE_THREAD__)
    return false;  // it knows nothing of the kernel's part
#else
    const long offered = Membarrier(kQuery);
    return offered > 0 && (offered & kGlobal) != 0;
#endif
  }

  // Where a filter of system calls came since, time is all that is left: no processor keeps a store
  // to itself as long, and none runs a thread that long without the kernel.
  static void Order() {
    constexpr uint64_t kLongNs = 20'000'000;
    if (Membarrier(kPrivateExpedited) != 0 && Membarrier(kGlobal) != 0) Nap(kLongNs);
  }

  std::atomic<uintptr_t> owner_;
  std::atomic<bool> inside_;  // the owner is, by its right
  SpinLock lock_;             // everybody else's
};

class BiasedGuard {
 public:
  explicit BiasedGuard(BiasedLock* lock) : lock_(lock), as_owner_(lock->Lock()) {}
  ~BiasedGuard() { lock_->Unlock(as_owner_); }
  BiasedGuard(const BiasedGuard&) = delete;
  BiasedGuard& operator=(const BiasedGuard&) = delete;

 private:
  BiasedLock* lock_;
  bool as_owner_;
};

}  // namespace gpufence
