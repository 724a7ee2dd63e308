// What was set for this container while it runs: found in its region's folder, read whole, kept
// until the region says that there is something newer. Read, never mapped: a file that is cut short
// must not be a signal. Must not know who enforces, nor where else limits come from.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <optional>

#include "base/locks.h"
#include "shared_layouts.h"
#include "state/region.h"

namespace gpufence {

// What is set for one device. Without a value: left to environment and files.
struct SetLimits {
  std::optional<uint64_t> memory_bytes;  // kNoLimit: none; never 0, perhaps above the device's
  std::optional<uint32_t> cores;         // thousandths of a percent; 0: none
  std::optional<uint32_t> soft_cores;
  std::optional<uint64_t> oversubscribe;  // ratio in thousandths; 0: off
};

// What is set for the container. Without a value, as above.
struct SetTerms {
  std::optional<uint32_t> priority;  // 0 normal, 1 low, 2 high; never another
  std::optional<uint32_t> weight;
  std::optional<uint64_t> burst_ns;
  std::optional<uint32_t> floor;  // thousandths of a percent
  bool frozen;
};

enum class LimitsFound : uint8_t {
  kNone,
  kForeign,  // one that others than root and the given user can write
  kRead,     // read whole, perhaps with nothing in it
  kDamaged,  // the right one by place and owner, with something else in it
};

// Zeroed memory is a file in which nothing is set. Any thread, after Look.
class LimitsFile {
 public:
  // Where to look, for which container, and whose file counts: this user's or root's, writable by
  // nobody else.
  void Look(const char* folder, const char* container, uid_t owner);

  // Reads it. What was known stays where nothing can be read: only an operator takes a limit back,
  // not whoever removes or damages the file.
  LimitsFound Read();

  // Read() when the region's word says that something was set since the last time; else kNone,
  // without a system call.
  LimitsFound ReadNewer(const Region* region);

  // Tells the container's processes what Read() found, where the writer was killed before it did.
  void Announce(Region* region);

  // Whether the file was there, so that the container is to be held though nobody claims a limit.
  bool exists() const { return exists_.load(std::memory_order_acquire); }

  // What another one was told and read, before anybody else uses this one.
  void TakeOver(const LimitsFile& other);

  SetLimits For(const uint8_t uuid[16], uint64_t total_bytes);
  SetTerms Terms();

 private:
  LimitsFound ReadInto(LimitsBank* bank) const;

  char path_[416];
  uint64_t container_;
  uid_t owner_;
  std::atomic<bool> exists_;
  std::atomic<uint32_t> seen_;  // the region's word at the last ReadNewer
  SpinLock lock_;               // guards the bank
  LimitsBank bank_;
};

}  // namespace gpufence
