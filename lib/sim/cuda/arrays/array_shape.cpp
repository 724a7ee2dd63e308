// See array_shape.h.
#include "cuda/arrays/array_shape.h"

#include <algorithm>

namespace sim::array {
namespace {

constexpr size_t kRowAlignment = 64;  // a block of the hardware's tiling is 64 bytes by 8 rows
constexpr size_t kBlockRows = 8;
constexpr size_t kMostBlocks =
    16;  // stacked on each other: in depth where there is one, in height elsewhere
constexpr size_t kMaxWidth = 131072;
constexpr size_t kMaxHeight = 65536;
constexpr size_t kMaxExtent3D = 16384;
constexpr size_t kMaxLayers = 2048;
constexpr size_t kCubeFaces = 6;
constexpr unsigned kKnownFlags = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST |
                                 CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER |
                                 CUDA_ARRAY3D_DEPTH_TEXTURE | CUDA_ARRAY3D_COLOR_ATTACHMENT |
                                 CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;

struct Format {
  size_t channel_bytes;  // 0 = not supported
  unsigned channels;     // that the format fixes; 0 = the descriptor's
};

// The normalised formats fix their channels and follow each other in threes: X1, X2, X4.
Format NormalisedFormat(CUarray_format format, CUarray_format first, size_t channel_bytes) {
  return {channel_bytes, 1u << (format - first)};
}

Format Describe(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return {1, 0};
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return {2, 0};
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return {4, 0};
    case CU_AD_FORMAT_UNORM_INT8X1:
    case CU_AD_FORMAT_UNORM_INT8X2:
    case CU_AD_FORMAT_UNORM_INT8X4:
      return NormalisedFormat(format, CU_AD_FORMAT_UNORM_INT8X1, 1);
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_UNORM_INT16X2:
    case CU_AD_FORMAT_UNORM_INT16X4:
      return NormalisedFormat(format, CU_AD_FORMAT_UNORM_INT16X1, 2);
    case CU_AD_FORMAT_SNORM_INT8X1:
    case CU_AD_FORMAT_SNORM_INT8X2:
    case CU_AD_FORMAT_SNORM_INT8X4:
      return NormalisedFormat(format, CU_AD_FORMAT_SNORM_INT8X1, 1);
    case CU_AD_FORMAT_SNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT16X2:
    case CU_AD_FORMAT_SNORM_INT16X4:
      return NormalisedFormat(format, CU_AD_FORMAT_SNORM_INT16X1, 2);
    default:
      return {0, 0};
  }
}

// Packed, block-compressed and planar formats: real, but not modelled.
bool IsOtherFormat(CUarray_format format) {
  return format >= CU_AD_FORMAT_UNORM_INT_101010_2 && format <= CU_AD_FORMAT_YUV444_8bit_SemiPlanar;
}

bool IsCubeValid(const CUDA_ARRAY3D_DESCRIPTOR& descriptor) {
  const bool layered = (descriptor.Flags & CUDA_ARRAY3D_LAYERED) != 0;
  return descriptor.Width == descriptor.Height && descriptor.Depth >= kCubeFaces &&
         descriptor.Depth % kCubeFaces == 0 && (layered || descriptor.Depth == kCubeFaces);
}

bool AreExtentsValid(const CUDA_ARRAY3D_DESCRIPTOR& descriptor) {
  if (descriptor.Width == 0 || descriptor.Width > kMaxWidth) return false;
  if (descriptor.Height > kMaxHeight) return false;
  if ((descriptor.Flags & CUDA_ARRAY3D_CUBEMAP) != 0) return IsCubeValid(descriptor);
  if ((descriptor.Flags & CUDA_ARRAY3D_LAYERED) != 0) {
    return descriptor.Depth > 0 && descriptor.Depth <= kMaxLayers;
  }
  if (descriptor.Depth == 0) return true;
  return descriptor.Height > 0 && descriptor.Width <= kMaxExtent3D &&
         descriptor.Height <= kMaxExtent3D && descriptor.Depth <= kMaxExtent3D;
}

// The least power of two that covers `wanted`, `most` at most.
size_t Stack(size_t wanted, size_t most) {
  size_t stacked = 1;
  while (stacked < wanted && stacked < most) stacked *= 2;
  return stacked;
}

size_t Padded(size_t count, size_t step) { return (count + step - 1) / step * step; }

}  // namespace

CUresult Measure(const CUDA_ARRAY3D_DESCRIPTOR& descriptor, Shape* shape) {
  if ((descriptor.Flags & ~kKnownFlags) != 0 || !AreExtentsValid(descriptor)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const unsigned channels = descriptor.NumChannels;
  if (channels != 1 && channels != 2 && channels != 4) return CUDA_ERROR_INVALID_VALUE;
  const Format format = Describe(descriptor.Format);
  if (format.channel_bytes == 0) {
    return IsOtherFormat(descriptor.Format) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
  }
  if (format.channels != 0 && format.channels != channels) return CUDA_ERROR_INVALID_VALUE;
  const bool layered = (descriptor.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  *shape = {.element_bytes = format.channel_bytes * channels,
            .width = descriptor.Width,
            .height = std::max<size_t>(descriptor.Height, 1),
            .depth = std::max<size_t>(descriptor.Depth, 1),
            .is_layered = layered,
            .is_deep = !layered && descriptor.Depth != 0};
  return CUDA_SUCCESS;
}

size_t PitchOf(const Shape& shape) {
  return (shape.width * shape.element_bytes + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
}

uint64_t BytesOf(const Shape& shape) {
  const size_t slices = shape.is_deep ? Stack(shape.depth, kMostBlocks) : 1;
  const size_t blocks = Padded(shape.height, kBlockRows) / kBlockRows;
  const size_t high = shape.is_deep ? 1 : Stack(blocks, kMostBlocks);
  const size_t rows = Padded(shape.height, kBlockRows * high);
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(PitchOf(shape), rows, &bytes) ||
      __builtin_mul_overflow(bytes, Padded(shape.depth, slices), &bytes)) {
    return 0;
  }
  return bytes;
}

Shape LevelOf(const Shape& shape, unsigned level) {
  Shape smaller = shape;
  smaller.width = std::max<size_t>(shape.width >> level, 1);
  smaller.height = std::max<size_t>(shape.height >> level, 1);
  if (!shape.is_layered) smaller.depth = std::max<size_t>(shape.depth >> level, 1);
  return smaller;
}

unsigned MaxLevels(const Shape& shape) {
  size_t longest = std::max(shape.width, shape.height);
  if (!shape.is_layered) longest = std::max(longest, shape.depth);
  unsigned levels = 1;
  while (longest >>= 1) ++levels;
  return levels;
}

Tile TileOf(const Shape& shape) {
  const bool is_volume = shape.depth > 1 && !shape.is_layered;
  switch (shape.element_bytes) {
    case 1:
      return is_volume ? Tile{64, 32, 32} : Tile{256, 256, 1};
    case 2:
      return is_volume ? Tile{32, 32, 32} : Tile{256, 128, 1};
    case 4:
      return is_volume ? Tile{32, 32, 16} : Tile{128, 128, 1};
    case 8:
      return is_volume ? Tile{32, 16, 16} : Tile{128, 64, 1};
    default:
      return is_volume ? Tile{16, 16, 16} : Tile{64, 64, 1};
  }
}

}  // namespace sim::array
