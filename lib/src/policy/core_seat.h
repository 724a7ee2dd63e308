// A process's seat on one device: what its container pays for GPU time, and whose turn it is. The words
// are in a shared file (state/core_region.h): in the operator's node folder, or beside the container's
// own region. Atomics only; a process that dies or stops anywhere holds up nobody.
// Must not know CUDA, the clock, or who measures.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "policy/turn.h"

namespace gpufence {

// A process's place on one device. Opened once, wiped on fork; cheap to copy.
class CoreSeat {
 public:
  // Joins the file in `node_folder`, or, when that is "", the container's own (`own_folder`): finds or
  // makes it, the device's row, the tenant of `container` (any text) and a member's slot whose lock
  // byte this process holds until it ends. False with one line in `why`.
  bool Join(const char* node_folder, const char* own_folder, const char* container,
            const uint8_t uuid[16], uint32_t share, uint32_t soft_share, char* why,
            size_t why_bytes);

  // ---- GPU time (docs/core-limiter.md section 3) ----

  // Charges the container for [begin_ns, end_ns) of the monotonic clock, as far as none of its
  // processes did. `now_ns` as for DueAfter. Returns what was charged.
  uint64_t Charge(uint64_t begin_ns, uint64_t end_ns, uint64_t now_ns);

  // Nanoseconds until the container may launch again; 0: now.
  uint64_t HeldFor(uint64_t now_ns) const;

  // ---- turns (section 5) ----

  // Asks for the turn. True when the container has it now and it is not closing. Never waits.
  bool WantTurn(uint64_t now_ns);

  // True while the container has the turn and it is not closing: one load.
  bool HasTurn() const;

  // What this process has outstanding on the device: said by its watcher at every tick (a heartbeat)
  // and by a launch that ends idleness.
  void Beat(uint64_t now_ns, bool outstanding);

  // Closes a turn that is over, hands over one that is drained, passes over the dead and the stopped.
  // Called by every watcher while it waits for a turn or others wait for its own. True when the turn
  // word changed.
  bool MoveTurn(uint64_t now_ns);

  // True when another container wanted the device during the last `window_ns`.
  bool OthersWant(uint64_t now_ns, uint64_t window_ns) const;

  // A word that changes with the turn, for FUTEX_WAIT (shared).
  const uint32_t* TurnFutex() const;
};

}  // namespace gpufence
