// Arrays and mipmapped arrays as objects, and what can be done with them, without the API around
// it. DriverLock held throughout.
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

CUresult Create(const context::Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                CUarray* result);

// More levels than the shape has are cut to what it has, none are taken for one.
CUresult CreateMipmap(const context::Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                      unsigned level_count, CUmipmappedArray* result);

// A level is an array that shares the mipmap's memory; the same handle each time.
CUresult GetLevel(CUmipmappedArray handle, unsigned level, CUarray* result);

CUresult Destroy(CUarray handle);
CUresult Destroy(CUmipmappedArray handle);

// The descriptor an array was created with, or a level's own.
CUresult Describe(CUarray handle, CUDA_ARRAY3D_DESCRIPTOR* descriptor);

}  // namespace sim::array
