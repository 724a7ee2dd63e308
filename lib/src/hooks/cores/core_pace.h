// The pace of the core limit: how far launches may run ahead, and how often somebody looks. What
// cores.cpp, core_hold.cpp and watcher.cpp share. Must not know which call launches.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "hooks/cores/cores.h"
#include "policy/gang.h"

namespace gpufence {

inline constexpr size_t kMostIntervals = 256;
inline constexpr size_t kMostWaitedIntervals = 8;  // of one stream's run

// Null: no core limit holds there now.
inline CoreDevice* DeviceAt(Cores* cores, uint32_t ordinal) {
  if (ordinal >= kMostLimitedDevices) return nullptr;
  return cores->by_ordinal[ordinal].load(std::memory_order_acquire);
}

// Nanoseconds until one more launch may be queued in a stream.
struct HoldFor {
  uint64_t budget_ns;
  uint64_t queue_ns;   // while others wait for the turn
  int64_t owed_ns;     // by the container; negative: credit
  int64_t queued_ns;   // what the stream has queued costs
  uint64_t window_ns;  // until the container's own, beside others that meet in collectives
  int64_t burst_ns;    // what a burst costs; 0: turns decide

  uint64_t most_ns() const { return budget_ns > queue_ns ? budget_ns : queue_ns; }
};

// `stream`: null: one that is not marked.
HoldFor HoldOf(Cores* cores, CoreDevice* device, const MarkedStream* stream, uint64_t now_ns);

// Holds one launch: waits for budget, room in the queue and the turn, in this order, and opens the
// gate. Returns how long it waited.
HeldNs Hold(Cores* cores, CoreDevice* device, MarkedStream* stream);

// A launch is held for budget, of which so much is lacking with all that is queued. True: it goes,
// and waits for it on the GPU, behind the hold point that is closed (hold_points.cpp).
bool HoldOnGpu(Cores* cores, CoreDevice* device, MarkedStream* stream, uint64_t owed_ns,
               uint64_t now_ns);

// Until the hold point opens that the stream stands at, or will; 0: none.
uint64_t LeftAtHoldNs(const Cores& cores, const CoreDevice& device, const MarkedStream& stream,
                      uint64_t now_ns);

// At a look: all in front of the hold point may have been told of, so that what is owed is known;
// and others may have come.
void FollowHold(Cores* cores, CoreDevice* device, uint64_t now_ns);

// Opens the hold point that is closed.
void OpenHold(Cores* cores, CoreDevice* device, uint64_t now_ns);

// Opens hold points whose time has come; nanoseconds until the next one's, UINT64_MAX: none.
uint64_t OpenHolds(Cores* cores, uint64_t now_ns);

// Waiting may be over, of launches that are held.
void Notify(CoreDevice* device);

// Looks, where no watcher does.
void TickHere(Cores* cores);

// A launch that may be held for budget, among others of its container (policy/gang.h).
class GangHold {
 public:
  // Until it asks again, for the container's budgets; 0: it goes on.
  uint64_t Ask(Cores* cores, CoreDevice* device, HoldFor hold, uint64_t now_ns);
  // Whether it may have to.
  bool is_asked() const { return is_asked_; }
  // Whether others wait for what it launches, so that it had better see at once when it may.
  bool is_awaited() const { return is_awaited_; }
  // Whether it waits for the container's window, which neighbours may leave to it.
  bool is_outside() const { return is_outside_; }
  // It goes on, whatever the answer was.
  void End(CoreDevice* device);

 private:
  GangView CountAs(CoreDevice* device, uint32_t more, uint64_t met_ns, uint64_t now_ns);

  GangWait wait_ = {};
  uint32_t count_ = 0;     // of collectives behind which it asked
  bool is_asked_ = false;  // of a gang
  bool is_awaited_ = false;
  bool is_outside_ = false;
  bool holds_ = false;  // as the others are told
};

// Charges intervals to the devices that they are of; puts them in order.
void ChargeAll(Cores* cores, BusyList* busy, uint64_t now_ns);

// Charges what a wait, or an answer, told of a stream.
void ChargeTold(Cores* cores, const MarkedStream* stream, BusyList* busy, uint64_t now_ns);

// Every fifth of a second, where it matters: whether somebody else uses the device.
void LookForNeighbours(CoreDevice* device, uint64_t now_ns);

}  // namespace gpufence
