// Arrays and mipmapped arrays as objects: what array.cpp and array_sparse.cpp share.
//
// DriverLock held throughout.
#pragma once

#include "cuda/arrays/array_shape.h"
#include "cuda/memory/heap.h"
#include "cuda/memory/memory.h"
#include "machine/vec.h"

namespace sim::array {

// A part of a sparse or deferred array that physical memory was mapped to.
struct Mapping {
  uint64_t place;   // hash of the subresource and its offset
  uint64_t handle;  // physical memory
};

// What arrays and mipmapped arrays have in common: an extent of memory, or the lack of it.
struct Storage {
  CUDA_ARRAY3D_DESCRIPTOR descriptor;
  Shape shape;
  uint64_t context;
  int device;
  unsigned level_count;
  heap::Block block;
  bool has_block;         // false for sparse and deferred arrays, which own nothing
  Vec<Mapping> mappings;  // of those
};

struct Array {
  Storage storage;  // of an array of its own
  uint64_t mipmap;  // the mipmapped array that this is a level of, or 0
  unsigned level;
};

struct Mipmap {
  Storage storage;
  Vec<uint64_t> levels;  // array handles given out, by level; 0 = not yet
};

Array* Find(CUarray handle);
Mipmap* Find(CUmipmappedArray handle);

// The storage behind an array: its own, or its mipmapped array's.
Storage* StorageOf(Array* array);

// Offset of a level in a storage, and of the end behind the last.
uint64_t LevelOffset(const Storage& storage, unsigned level);

}  // namespace sim::array
