// Device memory as the driver deals it: whole granules, and small blocks cut out of shared ones.
//
// Owns the charging of blocks to the device.  Must not know addresses' users or the API.
// DriverLock held throughout.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "driver_abi.h"

namespace sim::heap {

inline constexpr size_t kUnitBytes = 512;  // alignment of every device address

struct Block {
  uint64_t offset;         // in the arena
  uint64_t granule_bytes;  // charged for this block alone; 0 = it shares a granule
  uint32_t units;          // of a shared granule
  int device;              // kNowhere: addresses alone, charged to no device
};

inline constexpr int kNowhere = -1;

// Blocks below a granule share granules with others of the same owner (a context's linear memory,
// or those of its arrays whose elements are as large) and device.
// CUDA_ERROR_OUT_OF_MEMORY: nothing is taken.
CUresult Take(int device, uint64_t owner, size_t bytes, Block* block);

constexpr uint64_t ArraysOf(uint64_t context, uint64_t element_bytes) {
  return context << 6 | element_bytes << 1 | 1;  // 16 bytes at most; handles are even
}

// A block with granules of its own, whatever its size.
CUresult TakeWhole(int device, size_t bytes, Block* block);

void Give(const Block& block);

// `bytes` in whole granules; 0 when that does not fit in 64 bits.
uint64_t InGranules(uint64_t bytes);

}  // namespace sim::heap
