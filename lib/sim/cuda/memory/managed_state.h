// What managed memory keeps per allocation: shared by managed.cpp and managed_advice.cpp.
//
// DriverLock held throughout.
#pragma once

#include "cuda/memory/heap.h"
#include "cuda/memory/memory.h"

namespace sim::managed {

// A place: a logical device, the host (as device::ResolveLocation names it), or none.
inline constexpr int kHostPlace = -1;
inline constexpr int kNoPlace = -2;

struct State {
  heap::Block block;        // its addresses
  int resident_device;      // kNoPlace = all on the host
  uint64_t resident_bytes;  // charged there
  int preferred_place;
  int prefetched_place;
  uint32_t accessed_by;  // one bit per logical device, bit 31 for the host
  bool is_read_mostly;
};

inline constexpr unsigned kHostBit = 31;

// The state of a managed range.
State& StateOf(const memory::Range& range);

// The managed range that holds [address, address+bytes) entirely, or nullptr.
memory::Range* Find(CUdeviceptr address, size_t bytes);

// The location that a device number of the older calls names (CU_DEVICE_CPU = host).
CUmemLocation LocationOf(CUdevice device);

}  // namespace sim::managed
