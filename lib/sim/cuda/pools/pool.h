// Memory pools as the rest of memory sees them.  DriverLock held.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "cuda/memory/memory.h"
#include "cuda/pools/pool_space.h"
#include "machine/shared.h"

namespace sim::pool {

struct Pool {
  uint64_t handle;
  int device;  // logical; -1 = host memory, which costs nothing
  CUmemLocationType location_type;
  int location_id;
  int location_domain;  // the part of the device; -1: the whole
  CUmemAllocationType allocation_type;
  CUmemAllocationHandleType handle_types;
  uint64_t max_bytes;  // 0 = no limit
  uint64_t release_threshold;
  uint64_t reserved_bytes;
  uint64_t reserved_high_bytes;
  uint64_t used_bytes;
  uint64_t used_high_bytes;
  size_t piece_count;        // live allocations
  uint32_t reuse_flags;      // one bit per CU_MEMPOOL_ATTR_REUSE_*, by number
  uint16_t accessible_mask;  // devices given access by cuMemPoolSetAccess
  bool is_default;           // of a device: cannot be destroyed
  bool is_graph;             // of a device's graphs: no handle leads to it
  bool is_destroyed;         // waits for its last allocation
  bool is_imported;
  machine::SharedHold file;  // that stands for it between processes, if there is one
  Space space;               // empty for a graph's pool, whose memory is counted and not placed
};

// The pool behind a handle, destroyed ones excepted; nullptr if it is none.
Pool* Find(CUmemoryPool handle);

// The pool that cuMemAllocAsync uses on a device now; nullptr when memory is exhausted.
Pool* CurrentOf(int device);
Pool* DefaultOf(int device);
void SetCurrent(int device, const Pool& pool);
Pool* DefaultOfHost();

// A new pool with everything zero or default but its handle.
Pool* Create();
void Destroy(Pool* pool);

// Takes `bytes` from a pool and puts them on the address map as `family`; none of no bytes, which
// is null and no error.
CUresult Allocate(Pool* pool, size_t bytes, memory::Family family, CUdeviceptr* address);

// Gives an allocation back to its pool and forgets the range.
void End(memory::Range* range);

// The same as cuMemFree does it: it has waited, so what exceeds the release threshold goes back at
// once. The bytes count as used for ever, as on an H200 (driver 580).
void EndNow(memory::Range* range);

// Gives blocks without pieces back to the device, down to `keep_bytes` in whole blocks. Those from
// which something was freed stay until somebody has waited.
void Trim(Pool* pool, uint64_t keep_bytes);

// Trims the pools of a device to nothing: its last allocations ended with a context.
void AfterContext(int device);

// Puts the blocks under a piece into the pool's file, in the place of others at their addresses
// that it kept.
void ExportBlocks(Pool* pool, uint64_t offset, uint64_t bytes);

// 900 where a global capture forbids this thread to look at pools, and the capture is invalid then,
// as an H200 does it (cuMemPoolGetAttribute, cuMemPoolTrimTo).
CUresult RefuseIfCapturing();

// The pool from which the allocation nodes of a device's graphs are served.
Pool* GraphPoolOf(int device);

}  // namespace sim::pool
