// Virtual memory management: reserved addresses, physical handles, mappings. DriverLock held
// throughout.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "cuda/memory/memory.h"
#include "machine/shared.h"

namespace sim::vmm {

// Whether an address lies in a reservation of cuMemAddressReserve, mapped or not.
bool IsReserved(uintptr_t address);

// The reservation's extent; false when the address lies in none.
bool FindReservation(uintptr_t address, uintptr_t* base, size_t* bytes);

// One more or one less mapping of (a part of) a physical handle, as sparse arrays make them.
// AddMapping is false for a handle that is not live.
bool AddMapping(uint64_t handle);
void DropMapping(uint64_t handle);

// Physical memory of cuMemCreate or of an imported handle.  It lives until it has neither
// references (cuMemCreate, cuMemRetainAllocationHandle) nor mappings.
struct Physical {
  uint64_t handle;
  CUmemAllocationProp prop;
  int device;  // logical, of `prop`; -1 = host
  uint64_t bytes;
  uint64_t charged_bytes;      // 0 for host memory and imports
  int fd;                      // memory file that holds it
  machine::SharedHold shared;  // memory that others may hold, too; none: a part of the arena
  uint64_t offset;             // in the file
  bool is_imported;
  uint32_t references;
  uint32_t mappings;
};

inline constexpr uint64_t kGranularity = uint64_t{2} << 20;

// nullptr for a handle that is not live; also for one that only mappings keep alive.
Physical* Find(CUmemGenericAllocationHandle handle);

// What lies behind a mapped range.
const Physical* Behind(const memory::Range& range);

// An empty object with one reference and its handle set; nullptr when memory is exhausted.
Physical* Create();

// Drops one reference.
void Release(Physical* physical);

// Whether allocation properties are understood, and the logical device that pays (-1 = host).
CUresult ResolveProp(const CUmemAllocationProp* prop, int* device);

}  // namespace sim::vmm
