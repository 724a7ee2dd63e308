// The words of the machine file that time needs: one clock for the machine, and one compute engine
// per device, which its processes take turns on.
//
// Everything here is plain atomics in shared memory: nothing is ever locked, so a process killed on
// any line leaves at most the turns that it had already reserved (two slices).
// Must not know: streams, kernels, CUDA.
#pragma once

#include <stdint.h>
#include <time.h>

#include <atomic>

namespace sim {

// A turn of a process on a compute engine while others want it too, and what the engine loses when
// it changes hands. Two busy processes got 44.9 % each on an H200 with driver 580: a tenth is lost.
constexpr uint64_t kSliceNs = 2'000'000;
constexpr uint64_t kSwitchNs = 220'000;

// Simulated nanoseconds. The real clock is CLOCK_MONOTONIC times `speed`; the virtual clock stands
// still until somebody waits on it. Written once, by whoever lays out the machine file, except for
// `virtual_ns`.
struct MachineClock {
  uint32_t speed_permille;           // 1000 = as fast as real
  uint32_t is_virtual;               // 0 or 1
  std::atomic<uint64_t> virtual_ns;  // only ever grows
};
static_assert(sizeof(MachineClock) == 16);

// The compute engine of one device: a queue of reserved turns, of which only the end is kept.
struct DeviceTimeline {
  std::atomic<uint64_t> free_ns;     // first instant that nobody has reserved
  std::atomic<uint32_t> last_owner;  // slot of the process that reserved last; a hint
  uint32_t padding;
};
static_assert(sizeof(DeviceTimeline) == 16);

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

// A reserved turn, [start_ns, end_ns).
struct Turn {
  uint64_t start_ns;
  uint64_t end_ns;
};

inline uint64_t MonotonicNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
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

// Reserves the next free `length_ns` of the engine for process `owner`, not before `ready_ns`
// (which may lie in the past: an engine runs on while its process is stopped). The owner hint may
// be one reservation old under a race; that costs or saves one switch, never order.
inline Turn ReserveTurn(DeviceTimeline& engine, uint32_t owner, uint64_t ready_ns,
                        uint64_t length_ns) {
  uint64_t free_ns = engine.free_ns.load(std::memory_order_acquire);
  for (;;) {
    uint64_t start_ns = free_ns > ready_ns ? free_ns : ready_ns;
    const bool contended = free_ns > ready_ns;
    if (contended && engine.last_owner.load(std::memory_order_relaxed) != owner) {
      start_ns += kSwitchNs;
    }
    const uint64_t end_ns = start_ns + length_ns;
    if (engine.free_ns.compare_exchange_weak(free_ns, end_ns, std::memory_order_acq_rel)) {
      engine.last_owner.store(owner, std::memory_order_relaxed);
      return {start_ns, end_ns};
    }
  }
}

// Gives the rest of a turn back, from `unused_from_ns`. False when somebody has queued behind it:
// their turns are promised, so the rest is lost, as it is for an engine that idles out a slice.
inline bool ReturnTurn(DeviceTimeline& engine, const Turn& turn, uint64_t unused_from_ns) {
  uint64_t expected_ns = turn.end_ns;
  return engine.free_ns.compare_exchange_strong(expected_ns, unused_from_ns,
                                                std::memory_order_acq_rel);
}

}  // namespace sim
