// Blocks of pools that went out by cuMemPoolExportPointer. The driver puts the blocks that a
// pointer lies in into the open file that stands for the pool. There they stay, also when the pool
// itself lost them, until another block at the same address takes their place or the file is gone:
// with the pool, every duplicate of its descriptor and everybody who imported it (H200).
//
// So such blocks are charged for as long, each once: with the pool while it has them, beside it
// when it may have lost them, and by the file's lock (state/exported.h) when the pool is over.
#pragma once

#include <stdint.h>

#include "driver_abi.h"
#include "state/holdings.h"

namespace gpufence {

struct Fence;
struct FencedDevice;
struct PoolAccount;

// Of one pool; under its account's lock but for the place.
struct PoolExports {
  uint64_t place;  // of the file's lock (LockDescriptor in shared_memory.h)
  uint64_t bytes;  // blocks in the file
  uint64_t
      idle_bytes;  // of those, the ones without a living exported piece: the pool may lose them
  uint64_t lost_bytes;  // of those, what it lost, at most

  // The pool has that much less. Returns how much of it may be blocks that stay in the file.
  uint64_t Lose(uint64_t less_bytes) {
    const uint64_t most = idle_bytes - lost_bytes;
    const uint64_t lost = less_bytes < most ? less_bytes : most;
    lost_bytes += lost;
    return lost;
  }
};

// A pool's piece is about to be freed: from then on the pool may lose its blocks. True: its pointer
// had been exported, and is again after Unfreed, when the driver refuses.
[[gnu::cold, gnu::noinline]] bool BeginFreeOfExported(Fence* fence, Holding piece);
[[gnu::cold, gnu::noinline]] void Unfreed(Fence* fence, Holding piece);

// A destroyed pool's last piece is gone, and `charged_bytes` are about to be given back for it.
// Returns what is to be given back in all.
uint64_t EndPoolExports(Fence* fence, FencedDevice* payer, PoolAccount* account,
                        uint64_t charged_bytes);

}  // namespace gpufence
