// The words of the machine file that time needs: one clock for the machine, and where kernels of
// several processes meet. Turns on the compute engines are turns.h.
//
// Everything here is plain atomics in shared memory: nothing is ever locked.
// Must not know: streams, kernels, CUDA.
#pragma once

#include <sched.h>
#include <stdint.h>
#include <time.h>

#include <atomic>

namespace sim {

// Simulated nanoseconds. The real clock is CLOCK_MONOTONIC times `speed`; the virtual clock stands
// still until somebody waits on it. Written once, by whoever lays out the machine file, except for
// `virtual_ns`.
struct MachineClock {
  uint32_t speed_permille;           // 1000 = as fast as real
  uint32_t is_virtual;               // 0 or 1
  std::atomic<uint64_t> virtual_ns;  // only ever grows
};
static_assert(sizeof(MachineClock) == 16);

// Kernels that wait for each other, as those of a collective do: which of so many ranks of a group
// one is of. The n-th of one rank meets the n-th of each other. 0 ranks: it waits for none.
constexpr uint8_t kMeetingGroups = 8;
constexpr uint8_t kMostMeetingRanks = 16;
struct Meeting {
  uint8_t ranks;
  uint8_t group;
  uint8_t rank;
};

// When the latest of each rank began. Counts are the machine's: whoever comes after a process that
// was killed finds its own ahead or behind.
constexpr uint32_t kKeptMeetings = 64;
struct Meetings {
  std::atomic<uint64_t> count;
  std::atomic<uint64_t> began_ns[kKeptMeetings];
};
struct MeetingTable {
  Meetings of[kMeetingGroups][kMostMeetingRanks];
};

inline uint64_t MonotonicNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

// Where a test makes time virtual: its ways to do what the two functions below do.
extern "C" [[gnu::weak]] void gpufence_sim_be_busy(uint64_t ns);
extern "C" [[gnu::weak]] void gpufence_sim_spin(const std::atomic<uint32_t>* word, uint32_t seen,
                                                uint64_t until_ns);

// Passes so much of the calling thread's real time. All but the last microsecond it may be put
// aside meanwhile.
inline void BeBusy(uint64_t ns) {
  if (gpufence_sim_be_busy != nullptr) return gpufence_sim_be_busy(ns);
  const uint64_t until_ns = MonotonicNs() + ns;
  for (uint64_t now_ns = MonotonicNs(); now_ns < until_ns; now_ns = MonotonicNs()) {
    if (until_ns - now_ns > 1'000) sched_yield();
  }
}

// Reads the clock until then, or until the word, a futex whose sleepers are woken, is another one.
inline void Spin(const std::atomic<uint32_t>* word, uint32_t seen, uint64_t until_ns) {
  if (gpufence_sim_spin != nullptr) return gpufence_sim_spin(word, seen, until_ns);
  while (MonotonicNs() < until_ns && word->load(std::memory_order_acquire) == seen) {
  }
}

// Real nanoseconds to simulated ones and back. Both round down; the products pass 64 bits.
inline uint64_t ToSimulatedNs(const MachineClock& clock, uint64_t real_ns) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(real_ns) * clock.speed_permille /
                               1000u);
}
inline uint64_t ToRealNs(const MachineClock& clock, uint64_t simulated_ns) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(simulated_ns) * 1000u /
                               clock.speed_permille);
}

// What a clock shows that moves in steps of so many nanoseconds; 0: in steps of one.
inline uint64_t AtResolution(uint64_t ns, uint64_t step_ns) {
  return step_ns > 1 ? ns - ns % step_ns : ns;
}

// The machine's present, the same for every process.
inline uint64_t NowNs(const MachineClock& clock) {
  if (clock.is_virtual != 0) return clock.virtual_ns.load(std::memory_order_acquire);
  return ToSimulatedNs(clock, MonotonicNs());
}

// Moves a virtual clock forward to `simulated_ns`; a real clock moves by itself.
inline void AdvanceClock(MachineClock& clock, uint64_t simulated_ns) {
  if (clock.is_virtual == 0) return;
  uint64_t seen = clock.virtual_ns.load(std::memory_order_relaxed);
  while (seen < simulated_ns &&
         !clock.virtual_ns.compare_exchange_weak(seen, simulated_ns, std::memory_order_acq_rel)) {
  }
}

}  // namespace sim
