// What the driver says this process holds. Slow (10 us and more): never on the common path.
// Must not know limits, state or policy.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "driver_abi.h"

namespace gpufence {

enum class UsageSource : uint8_t {
  kNone,         // nothing can be said
  kProcessList,  // NVML's figure for our own pid: exact, counts everything
};

// The number by which the process list calls this process; 0 when that is not known.
//
// In the machine's first pid namespace it is our pid. Elsewhere drivers differ: newer ones (seen:
// 580) tell the number in the asker's namespace, others the host's, and there a number equal to our
// pid is somebody else. So it is learned, never guessed: see NumberLesson.
uint32_t OwnListedNumber();

// Learns that number from the process's first context on a device: an entry under our own pid is
// new in the list, or a single other one is and holds what the device lost. Where neighbours come
// or move memory at the same moment the latter teaches nothing, and the next first context is
// another lesson.
class NumberLesson {
 public:
  // Before the context is made, in a process that has none on the device.
  void Begin(const uint8_t uuid[16]);

  // After it was made: from a list of that moment, or from one that is asked for here. Does nothing
  // if the lesson did not begin, or is over.
  void ConcludeFrom(const uint8_t uuid[16], const nvmlProcessInfo_t* listed, unsigned count);
  void Conclude(const uint8_t uuid[16]);

  bool is_open() const { return began_; }

 private:
  bool WasListed(uint32_t number) const;

  static constexpr unsigned kMostListed = 64;  // on a busier device nothing is learned

  bool began_ = false;
  unsigned count_ = 0;
  uint64_t free_bytes_ = 0;
  uint32_t numbers_[kMostListed] = {};
};

// Bytes that the driver holds for this process on the device with this UUID. `on_device`: it has a
// context there, so the list must have it; without one it holds nothing. `lesson`: if it is open,
// it ends with the list that is asked for here, where that is not too long for it.
// kNone as long as nobody knows by which number the list calls us.
UsageSource OwnUsage(const uint8_t uuid[16], bool on_device, uint64_t* bytes,
                     NumberLesson* lesson = nullptr);

// Bytes of the device that nobody holds; false when NVML cannot tell. Needs no context.
bool DeviceFreeBytes(const uint8_t uuid[16], uint64_t* bytes);

// Free bytes of the current context's device as the driver reports them; 0 without a context.
uint64_t DriverFreeBytes();

}  // namespace gpufence
