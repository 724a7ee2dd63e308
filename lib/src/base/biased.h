// A lock between threads of one process that takes no locked instruction while one thread alone
// comes: behind a driver call such an instruction waits for every line that is cold. Who comes
// first owns it, and then only says that it is inside. The first other thread ends that for good:
// it takes the owner's right away, has the kernel put all threads' accesses to memory in order, and
// waits until the owner is outside. From then on, and where the kernel does not offer that, this is
// a SpinLock. Must not know what it guards.
//
// Held for a few instructions, never in shared memory, never across a driver call. Lives in memory
// that is wiped on fork, where zero means free and nobody's.
#pragma once

#include <errno.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "base/futex.h"
#include "base/held_locks.h"
#include "base/spin.h"

namespace gpufence {

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
      Settle(self);
    return false;
  }

  void Unlock(bool as_owner) {
    if (!as_owner) [[unlikely]]
      return lock_.Unlock();
    inside_.store(false, std::memory_order_release);  // pairs with the load in Settle
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
  [[gnu::cold, gnu::noinline]] void Settle(uintptr_t self) {
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
