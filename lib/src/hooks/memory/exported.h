// Memory that leaves or enters the process by a handle: marks what was exported, so that its end
// finds importers, and counts what is imported. Its owner pays. Must not know how handles travel,
// nor how it is found out who holds what (state/exported.h).
#pragma once

#include <stdint.h>

#include "driver_abi.h"
#include "hooks/fence.h"
#include "state/holdings.h"

namespace gpufence {

// Memory behind a physical handle or an address was exported; `fd`: by this descriptor, and
// `part_bytes`: not all of it, as far as that can be in part.
inline constexpr int kNoDescriptor = -1;
void MarkExported(Fence* fence, const Holding& holding, int fd = kNoDescriptor,
                  uint64_t part_bytes = UINT64_MAX);

// The holding's memory is gone from this process; before its charge goes back. False: that must
// stay, as it cannot be known who holds the memory still.
[[gnu::cold, gnu::noinline]] bool EndMarked(Fence* fence, Holding holding);
inline bool EndExported(Fence* fence, const Holding& holding) {
  if (!fence->any_exported.load(std::memory_order_relaxed)) [[likely]]
    return true;
  return EndMarked(fence, CopyOf(holding));
}

// The same for those who know by themselves what they exported, and were counted by
// Sharing::Exported. `*place` (0 at first) stands for the memory's lock.
void LockDescriptor(Fence* fence, const Account& account, int fd, uint64_t bytes, uint64_t* place);
bool EndLocked(FencedDevice* device, uint64_t place, uint64_t bytes);

// An import under way. The device is known only afterwards, so that all of them count it until
// then; it stays counted on one, or on none when the driver refused.
class Importing {
 public:
  explicit Importing(Fence* fence);
  ~Importing();
  Importing(const Importing&) = delete;
  Importing& operator=(const Importing&) = delete;

  void Keep(FencedDevice* device) { kept_ = device; }

 private:
  Fence* fence_;
  FencedDevice* kept_ = nullptr;
};

// The driver exports no memory that may move, and its code does not tell why.
void SayIfOnHost(Fence* fence, CUdeviceptr address, const char* call);

// Exported memory ended here, or an import: what an import of this process holds without an owner
// is listed as its own, or is no longer, and a reading finds that. No move of the thread's is under
// way.
[[gnu::cold, gnu::noinline]] void ReadOwnImports(FencedDevice* device);
inline void ReadOwnImportsAfter(Fence* fence, const Holding& ended) {
  if (ended.family == Family::kImport || fence->any_exported.load(std::memory_order_relaxed))
      [[unlikely]]
    ReadOwnImports(&fence->devices[ended.device]);
}

// Imports of a device end; what was found to be ours because of them is read again.
void EndImports(FencedDevice* device, uint64_t imports);

// ---- pools ----
//
// Blocks of pools that went out by cuMemPoolExportPointer. The driver puts the blocks that a
// pointer lies in into the open file that stands for the pool. There they stay, also when the pool
// itself lost them, until another block at the same address takes their place or the file is gone:
// with the pool, every duplicate of its descriptor and everybody who imported it (H200).
//
// So such blocks are charged for as long, each once: with the pool while it has them, beside it
// when it may have lost them, and by the file's lock (state/exported.h) when the pool is over.

// A pool's piece is about to be freed: from then on the pool may lose its blocks. True: its pointer
// had been exported, and is again after Unfreed, when the driver refuses.
[[gnu::cold, gnu::noinline]] bool BeginFreeOfExported(Fence* fence, Holding piece);
[[gnu::cold, gnu::noinline]] void Unfreed(Fence* fence, Holding piece);

// A destroyed pool's last piece is gone, and `charged_bytes` are about to be given back for it.
// Returns what is to be given back in all.
uint64_t EndPoolExports(Fence* fence, FencedDevice* payer, PoolAccount* account,
                        uint64_t charged_bytes);

}  // namespace gpufence
