// The watcher: one thread per process that looks at what is outstanding while anything is, and
// sleeps otherwise. Must not know what it looks at.
#pragma once

#include <stdint.h>

#include <atomic>

namespace gpufence {

struct Cores;

// Zeroed memory is a watcher that was not begun.
class Watcher {
 public:
  // Wakes it; the first call begins it, all signals blocked. One load while it is awake.
  void Wake(Cores* cores) {
    if (awake_.load(std::memory_order_seq_cst) == 0) WakeSlowly(cores);
  }

  // Somebody waits for what nobody can foretell: ends a nap.
  void LookNow();

  // False: no thread could be had, or the process is ending, and whoever launches must look.
  bool runs() const { return state_.load(std::memory_order_relaxed) != kFailed; }

  // False where it does not run, and where it should have looked long ago: a debugger may have
  // stopped it alone, and whoever launches must not wait for it.
  bool looks(uint64_t now_ns) const {
    return runs() && (awake_.load(std::memory_order_relaxed) == 0 ||
                      now_ns < looked_ns_.load(std::memory_order_relaxed) + kLateNs);
  }

  // True while the thread is being ended, or cannot be: nobody waits, and no driver call is made.
  bool stopping() const { return stopping_.load(std::memory_order_relaxed) != 0; }

  // True behind Stop: exit handlers run, or have.
  bool ended() const { return gone_.load(std::memory_order_relaxed) != 0; }

  // Before the driver's own exit handlers: ends the thread. What is launched later is still held.
  void Stop();

  uint64_t busy_until_ns;  // its own: until when it goes on looking though nothing is outstanding
  uint32_t begun_seen;     // its own: runs that had begun when it looked last

 private:
  static constexpr uint64_t kLateNs = 100'000'000;

  enum State : uint32_t { kNone = 0, kBegun, kFailed };

  void WakeSlowly(Cores* cores);
  bool Start(Cores* cores);
  void Run(Cores* cores);
  static void* Main(void* cores);

  std::atomic<uint32_t> state_;
  std::atomic<uint32_t> awake_;      // 0: asleep, or not begun
  std::atomic<uint64_t> looked_ns_;  // when its last look began, or it was woken for one
  std::atomic<uint32_t> asked_;      // changes when a nap has to end
  std::atomic<uint32_t> stopping_;
  std::atomic<uint32_t> gone_;
};

}  // namespace gpufence
