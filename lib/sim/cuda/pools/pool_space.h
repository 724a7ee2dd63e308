// Where a pool puts its pieces: addresses in one stretch, backed by blocks of physical memory.
//
// As an H200 places them (driver 580): pieces lie side by side in steps of 512 bytes, across
// blocks; a hole that needs no further block is taken before one that does, the smallest first, of
// equals the last; behind everything else lies the rest of the stretch.  A block without pieces may
// move to another address.
// Must not know pools' attributes, streams, or what a block costs.  DriverLock held.
#pragma once

#include <stdint.h>

#include "machine/vec.h"

namespace sim::pool {

inline constexpr uint64_t kBlockBytes = uint64_t{32} << 20;

struct Extent {
  uint64_t offset;  // in the arena
  uint64_t bytes;
};

// Addresses of a block's size, once some piece has touched them.
struct Block {
  uint64_t offset;
  uint64_t pieces;   // live ones that lie in it, wholly or in part
  bool is_backed;    // has physical memory
  bool is_awaited;   // nobody has waited since a piece of it was freed
  bool is_exported;  // its physical memory is in the pool's file
  bool is_left;      // memory that it had before is
};

// All-zero bytes are an empty one.
struct Space {
  Vec<Extent> windows;  // taken from the arena
  Vec<Extent> holes;    // by offset, no two adjacent
  Vec<Block> blocks;    // by offset
};

// Puts a piece somewhere, backed or not.  False: no addresses, or no host memory.
bool Place(Space* space, uint64_t bytes, uint64_t* offset);

// Takes it away; its blocks are awaited from now on.
void Vacate(Space* space, uint64_t offset, uint64_t bytes);

// The first block under a piece that has no physical memory yet, or nullptr.
Block* FirstUnbacked(Space* space, uint64_t offset, uint64_t bytes);

// The last backed block without pieces, or nullptr.  `settled`: to be given back, so that is not
// awaited either; else to be moved, so that nothing holds it where it is.
Block* LastIdle(Space* space, bool settled);

// A block loses its physical memory, and what was written there.
void Unback(Block* block);

// Somebody has waited for all that was freed.
void Settle(Space* space);

// Gives all addresses back.
void End(Space* space);

}  // namespace sim::pool
