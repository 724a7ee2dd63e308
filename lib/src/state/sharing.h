// Memory that several processes hold: its owner is charged, once, and importers are not. When the
// owner lets go or dies while importers live, the driver keeps the memory for them, and so its
// bytes stay counted in the row itself (orphans), until no process of the container imports
// anything on the device and no descriptor keeps any of it (state/exported.h). That counts too much
// when an importer let go of this memory but not of other imports; never too little.
// Must not know handles, addresses or CUDA.
#pragma once

#include <stdint.h>

#include "shared_layouts.h"
#include "state/slots.h"

namespace gpufence {

// A row's orphans in one word: bytes below, above them a number that every change raises, so that
// whoever clears the word clears what it has seen. The highest bit says that descriptors may hold
// some of them: then only a sweep, which asks the kernel, lowers them.
inline constexpr uint64_t kMostOrphans = (uint64_t{1} << kOrphanBits) - 1;
inline constexpr uint64_t kByDescriptor = uint64_t{1} << 63;

// One row of the region, seen from one slot. Cheap to copy; valid while the region is mapped.
class Sharing {
 public:
  Sharing() = default;
  Sharing(Region* region, uint32_t row, uint32_t slot)
      : orphans_(&region->rows[row].orphans), region_(region), row_(row), slot_(slot) {}

  // The owner's side: bytes that are charged to it and that others may import from now on.
  void Exported(uint64_t bytes, bool by_descriptor) const;
  // Its last hold on them is gone: after the driver's free, before the charge goes back. `held`: a
  // descriptor of them is open somewhere.
  void Unexported(uint64_t bytes, bool held) const;

  // The importer's side, before the driver's import and after the end of it.
  void Imported() const;
  void Dropped(uint64_t imports) const;

  // What is counted without a living owner. One load while there is nothing of it.
  uint64_t OrphanBytes() const {
    const uint64_t seen = orphans().load(std::memory_order_seq_cst);
    if ((seen & kMostOrphans) == 0) [[likely]]
      return 0;
    return OrphansOrClear(seen);
  }

  // Whether there is any that can be this process's only: nobody else imports, and no descriptor
  // holds any of it.
  bool HasOwnOrphans() const;

  // Up to so many bytes of those are counted as this process's own from now on. True: some are.
  bool Adopt(uint64_t bytes) const;

  // Whether this process imports anything.
  bool imports() const { return own().imports.load(std::memory_order_seq_cst) != 0; }

  // Where descriptors held some of it, asks the kernel what they hold still. True: less than
  // before.
  bool Sweep(const RegionFile& file) const;

  // The slot's owner died, and its charge is about to go: what importers hold of it stays counted.
  void Died() const;

 private:
  Shares& own() const { return region_->shares[row_][slot_]; }
  Word& orphans() const { return *orphans_; }
  [[gnu::cold, gnu::noinline]] uint64_t OrphansOrClear(uint64_t seen) const;
  void Orphan(uint64_t bytes, bool by_descriptor) const;
  bool AnyImports(bool of_others) const;

  Word* orphans_ = nullptr;  // of the row; first, since all else is seldom read
  Region* region_ = nullptr;
  uint32_t row_ = 0;
  uint32_t slot_ = 0;
};

// The same for one who may only look: orphans that nobody cleared yet count.
uint64_t OrphanBytesSeen(const Region* region, uint32_t row);

}  // namespace gpufence
