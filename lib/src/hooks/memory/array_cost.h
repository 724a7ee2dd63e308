// What an array takes of the device's memory: the driver lays it out in blocks of 64 bytes by 8
// rows. Without a depth they are stacked in height until they cover the array or are 16 high; with
// one they are stacked in depth alone, be it 1. Pure arithmetic. Source: measured on an H200 with
// driver 580; the table at the end holds what it took.
#pragma once

#include <stdint.h>

#include "driver_abi.h"
#include "policy/charge.h"

namespace gpufence {

struct ArrayShape {
  uint64_t row_bytes;  // of one row of elements
  uint64_t width;      // elements
  uint64_t height;     // at least 1
  uint64_t depth;      // at least 1: slices or layers
  bool layered;        // layers do not share blocks, slices do
  bool deep;           // made with a depth
};

// Bytes of one element of one channel; 0 for formats whose layout was never measured.
constexpr uint64_t ChannelBytes(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
    case CU_AD_FORMAT_UNORM_INT8X1:
    case CU_AD_FORMAT_UNORM_INT8X2:
    case CU_AD_FORMAT_UNORM_INT8X4:
    case CU_AD_FORMAT_SNORM_INT8X1:
    case CU_AD_FORMAT_SNORM_INT8X2:
    case CU_AD_FORMAT_SNORM_INT8X4:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_UNORM_INT16X2:
    case CU_AD_FORMAT_UNORM_INT16X4:
    case CU_AD_FORMAT_SNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT16X2:
    case CU_AD_FORMAT_SNORM_INT16X4:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
    default:
      return 0;
  }
}

constexpr uint64_t kBlockRowBytes = 64;
constexpr uint64_t kBlockRows = 8;
constexpr uint64_t kMostBlocks = 16;  // stacked

constexpr uint64_t AtLeastOne(uint64_t value) { return value == 0 ? 1 : value; }

// The least power of two that covers `wanted`, up to `most` (a power of two itself).
constexpr uint64_t Stack(uint64_t wanted, uint64_t most) {
  if (wanted <= 1) return 1;
  return wanted >= most ? most : uint64_t{1} << (64 - __builtin_clzll(wanted - 1));
}

constexpr uint64_t Multiply(uint64_t one, uint64_t other) {
  uint64_t product = 0;
  return __builtin_mul_overflow(one, other, &product) ? UINT64_MAX : product;
}

// Saturates: what cannot exist is refused, not wrapped to something small.
constexpr uint64_t LevelBytes(const ArrayShape& shape) {
  const uint64_t slices = shape.deep ? Stack(shape.depth, kMostBlocks) : 1;
  const uint64_t blocks = (shape.height + kBlockRows - 1) / kBlockRows;
  const uint64_t high = shape.deep ? 1 : Stack(blocks, kMostBlocks);
  const uint64_t rows = RoundUp(shape.height, high * kBlockRows);
  return Multiply(Multiply(RoundUp(shape.row_bytes, kBlockRowBytes), rows),
                  RoundUp(shape.depth, slices));
}

constexpr ArrayShape NextLevel(const ArrayShape& shape, uint64_t element_bytes) {
  const uint64_t width = AtLeastOne(shape.width / 2);
  return {.row_bytes = width * element_bytes,
          .width = width,
          .height = AtLeastOne(shape.height / 2),
          .depth = shape.layered ? shape.depth : AtLeastOne(shape.depth / 2),
          .layered = shape.layered,
          .deep = shape.deep};
}

// Bytes of one element; 0 where the layout is unknown.
constexpr uint32_t ElementBytes(const CUDA_ARRAY3D_DESCRIPTOR& wanted) {
  return static_cast<uint32_t>(ChannelBytes(wanted.Format) * wanted.NumChannels);
}

// Physical bytes of an array (`levels` 1) or mipmapped array: 0 for one without memory of its own.
// False when the format's layout is unknown. `element_bytes`: of its elements.
constexpr bool ArrayBytes(const CUDA_ARRAY3D_DESCRIPTOR& wanted, uint64_t element_bytes,
                          unsigned levels, uint64_t* bytes) {
  constexpr unsigned kUnbacked = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;
  constexpr unsigned kLayers = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP;
  *bytes = 0;
  if ((wanted.Flags & kUnbacked) != 0) return true;
  const bool layered = (wanted.Flags & kLayers) != 0;
  ArrayShape shape = {.row_bytes = Multiply(wanted.Width, element_bytes),
                      .width = wanted.Width,
                      .height = AtLeastOne(wanted.Height),
                      .depth = AtLeastOne(wanted.Depth),
                      .layered = layered,
                      .deep = !layered && wanted.Depth != 0};
  for (unsigned level = 1;; ++level) {
    const uint64_t more = LevelBytes(shape);
    *bytes = more > UINT64_MAX - *bytes ? UINT64_MAX : *bytes + more;
    if (level >= levels) break;
    const bool was_last =
        shape.width <= 1 && shape.height <= 1 && (shape.layered || shape.depth <= 1);
    if (was_last) break;  // more levels than there can be
    shape = NextLevel(shape, element_bytes);
  }
  return element_bytes != 0;
}

// Measured: width, height, depth, format, channels, flags, levels, and the KiB it took.
constexpr bool Takes(uint64_t width, uint64_t height, uint64_t depth, CUarray_format format,
                     unsigned channels, unsigned flags, unsigned levels, uint64_t kib) {
  const CUDA_ARRAY3D_DESCRIPTOR wanted = {.Width = width,
                                          .Height = height,
                                          .Depth = depth,
                                          .Format = format,
                                          .NumChannels = channels,
                                          .Flags = flags};
  uint64_t bytes = 0;
  return ArrayBytes(wanted, ElementBytes(wanted), levels, &bytes) &&
         RoundUp(bytes, kChunkBytes) == kib << 10;
}
static_assert(Takes(1000, 1000, 0, CU_AD_FORMAT_FLOAT, 4, 0, 1, 16384));
static_assert(Takes(1000, 1000, 0, CU_AD_FORMAT_FLOAT, 4, 0, 5, 22528));
static_assert(Takes(100000, 0, 0, CU_AD_FORMAT_FLOAT, 4, 0, 1, 14336));
static_assert(Takes(4097, 4097, 0, CU_AD_FORMAT_FLOAT, 1, 0, 1, 69632));
static_assert(Takes(33, 65000, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0, 1, 4096));
static_assert(Takes(65536, 3, 0, CU_AD_FORMAT_FLOAT, 4, 0, 1, 8192));
static_assert(Takes(65536, 17, 0, CU_AD_FORMAT_FLOAT, 4, 0, 1, 32768));
static_assert(Takes(65536, 65, 0, CU_AD_FORMAT_FLOAT, 4, 0, 1, 131072));
static_assert(Takes(65536, 129, 0, CU_AD_FORMAT_FLOAT, 4, 0, 1, 262144));
static_assert(Takes(10001, 10001, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0, 1, 100352));
static_assert(Takes(20000, 20000, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0, 1, 393216));
static_assert(Takes(100, 100, 100, CU_AD_FORMAT_FLOAT, 1, 0, 1, 6144));
static_assert(Takes(129, 129, 129, CU_AD_FORMAT_FLOAT, 4, 0, 1, 40960));
static_assert(Takes(257, 257, 33, CU_AD_FORMAT_FLOAT, 1, 0, 1, 14336));
static_assert(Takes(1000, 1000, 9, CU_AD_FORMAT_FLOAT, 4, 0, 1, 251904));
static_assert(Takes(2000, 2000, 3, CU_AD_FORMAT_FLOAT, 1, 0, 1, 63488));
static_assert(Takes(2000, 2000, 2, CU_AD_FORMAT_FLOAT, 1, 0, 1, 32768));
static_assert(Takes(5000, 5000, 5, CU_AD_FORMAT_UNSIGNED_INT8, 2, 0, 1, 393216));
static_assert(Takes(513, 513, 5, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED, 1, 8192));
static_assert(Takes(100, 0, 2048, CU_AD_FORMAT_FLOAT, 4, CUDA_ARRAY3D_LAYERED, 1, 26624));
static_assert(Takes(500, 500, 12, CU_AD_FORMAT_FLOAT, 4,
                    CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED, 1, 49152));
static_assert(Takes(2048, 2048, 0, CU_AD_FORMAT_FLOAT, 1, 0, 12, 22528));
static_assert(Takes(1500, 1500, 0, CU_AD_FORMAT_FLOAT, 4, 0, 11, 49152));
static_assert(Takes(300, 300, 300, CU_AD_FORMAT_FLOAT, 1, 0, 9, 129024));
static_assert(Takes(129, 129, 129, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0, 8, 4096));
static_assert(Takes(777, 777, 5, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED, 10, 20480));

// Measured: how many equal small ones lie in a chunk of 2 MiB.
constexpr bool Fit(uint64_t width, uint64_t height, uint64_t depth, CUarray_format format,
                   unsigned flags, uint64_t count) {
  const CUDA_ARRAY3D_DESCRIPTOR wanted = {.Width = width,
                                          .Height = height,
                                          .Depth = depth,
                                          .Format = format,
                                          .NumChannels = 1,
                                          .Flags = flags};
  uint64_t bytes = 0;
  return ArrayBytes(wanted, ElementBytes(wanted), 1, &bytes) &&
         kChunkBytes / RoundUp(bytes, kSmallStep) == count;
}
static_assert(Fit(33, 33, 3, CU_AD_FORMAT_FLOAT, 0, 68));
static_assert(Fit(33, 17, 5, CU_AD_FORMAT_FLOAT, 0, 56));
static_assert(Fit(33, 33, 3, CU_AD_FORMAT_UNSIGNED_INT8, 0, 204));
static_assert(Fit(33, 17, 5, CU_AD_FORMAT_HALF, 0, 85));
static_assert(Fit(64, 64, 7, CU_AD_FORMAT_FLOAT, 0, 16));
static_assert(Fit(20, 30, 33, CU_AD_FORMAT_FLOAT, 0, 10));
static_assert(Fit(33, 33, 3, CU_AD_FORMAT_FLOAT, CUDA_ARRAY3D_LAYERED, 56));

}  // namespace gpufence
