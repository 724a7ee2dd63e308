// The geometry of CUDA arrays: what a descriptor means in bytes, and whether it means anything.
//
// Pure; knows nothing of memory or handles.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "driver_abi.h"

namespace sim::array {

struct Shape {
  size_t element_bytes;
  size_t width;
  size_t height;  // at least 1
  size_t depth;   // at least 1: slices or layers
  bool is_layered;
  bool is_deep;  // made with a depth: its slices share blocks, and rows stack no further
};

// Reads a descriptor.  CUDA_ERROR_INVALID_VALUE: sizes or flags that no array can have.
// CUDA_ERROR_NOT_SUPPORTED: a planar, compressed or packed format.
CUresult Measure(const CUDA_ARRAY3D_DESCRIPTOR& descriptor, Shape* shape);

// Bytes from one row to the next.
size_t PitchOf(const Shape& shape);

// Bytes of the whole, rows and slices padded as the hardware pads its blocks; 0 on overflow.
uint64_t BytesOf(const Shape& shape);

// The shape of a level of a mipmapped array; level 0 is the shape itself.
Shape LevelOf(const Shape& shape, unsigned level);

// How many levels there can be.
unsigned MaxLevels(const Shape& shape);

// The elements of a 64 KiB tile of a sparse array.
struct Tile {
  unsigned width;
  unsigned height;
  unsigned depth;
};
Tile TileOf(const Shape& shape);

}  // namespace sim::array
