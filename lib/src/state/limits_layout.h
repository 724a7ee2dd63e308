// The bytes of a limits file: what an operator set for a container while it runs, in two banks.
// Written by tools/gpufence/state/limits_file.py alone, read by every process of the container.
// Changing anything here means a new kLimitsLayoutVersion, which is part of the file's name.
//
// A writer fills the bank that is not current, then stores the new generation, whose lowest bit
// names the bank: killed anywhere, it leaves the limits as they were. The check tells a bank that
// a second writer began anew while it was read.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace gpufence {

inline constexpr uint64_t kLimitsMagic = 0x31746d696c667067;  // "gpflimt1"
inline constexpr uint32_t kLimitsLayoutVersion = 3;
inline constexpr uint32_t kMaxLimitsEntries = 64;

// Which of an entry's amounts are set; the others are left to environment and files.
inline constexpr uint32_t kMemoryIsSet = 1;
inline constexpr uint32_t kMemoryIsPart = 2;
inline constexpr uint32_t kCoresAreSet = 4;
inline constexpr uint32_t kSoftCoresAreSet = 8;
inline constexpr uint32_t kOversubscribeIsSet = 16;

// What is set for one device; a UUID of zeros means every device that has no word of its own.
struct LimitsEntry {
  uint8_t uuid[16];
  uint64_t memory;         // bytes, or billionths of a percent of the device; 0: no limit
  uint64_t oversubscribe;  // ratio in thousandths; 0: off
  uint32_t cores;          // thousandths of a percent; 0: no limit
  uint32_t soft_cores;
  uint32_t flags;
  uint32_t reserved;
};
static_assert(sizeof(LimitsEntry) == 48);

// Which of the container's terms are set; the others are left to environment and files.
inline constexpr uint32_t kPriorityIsSet = 1;
inline constexpr uint32_t kWeightIsSet = 2;
inline constexpr uint32_t kBurstIsSet = 4;
inline constexpr uint32_t kFloorIsSet = 8;
inline constexpr uint32_t kIsFrozen = 16;  // its launches are held

// What is set for the container, on every GPU.
struct LimitsTerms {
  uint64_t burst_ns;
  uint32_t floor;  // thousandths of a percent
  uint32_t weight;
  uint32_t priority;  // 0 normal, 1 low, 2 high
  uint32_t flags;
};
static_assert(sizeof(LimitsTerms) == 24);

struct LimitsBank {
  uint64_t check;  // FNV-1a over the rest, up to the last entry counted
  uint64_t generation;
  uint32_t count;
  uint32_t reserved;
  LimitsTerms terms;
  LimitsEntry entries[kMaxLimitsEntries];
};
static_assert(offsetof(LimitsBank, entries) == 48);

struct LimitsHeader {
  uint64_t magic;
  uint32_t layout_version;
  uint32_t max_entries;
  uint64_t generation;  // its lowest bit is the number of the current bank
  uint64_t container;   // FNV-1a over its name: under another name the file is another container's
  uint64_t reserved[4];
};
static_assert(sizeof(LimitsHeader) == 64);

struct LimitsBytes {
  LimitsHeader header;
  LimitsBank banks[2];
};

}  // namespace gpufence
