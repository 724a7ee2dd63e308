// The bytes of copies and fills: one description for every shape, performed row by row.
//
// Owns the reading of CUDA_MEMCPY3D. Must not know: streams, time, who asked.
#include "cuda/memory/memory.h"
#include "cuda/streams/launch_operation.h"

namespace sim {

namespace {

// One end of a copy, reduced to the address of its first byte and its two strides.
struct End {
  uint64_t address;
  uint64_t pitch;
  uint64_t slice;
};

bool ResolveArray(CUarray array, const CUDA_MEMCPY3D_v2& copy, uint64_t x, uint64_t y, uint64_t z,
                  End* end) {
  memory::ArrayView view;
  if (!memory::ViewArray(array, &view)) return false;
  if (x + copy.WidthInBytes > view.row_bytes || y + copy.Height > view.height ||
      z + copy.Depth > view.depth) {
    return false;
  }
  end->pitch = view.pitch;
  end->slice = view.pitch * view.height;
  end->address = view.address + x + y * end->pitch + z * end->slice;
  return true;
}

// Rows of linear memory lie `pitch` bytes apart, slices `height` rows; 0 means packed.
void ResolveLinear(uint64_t base, const CUDA_MEMCPY3D_v2& copy, uint64_t pitch, uint64_t height,
                   uint64_t x, uint64_t y, uint64_t z, End* end) {
  end->pitch = pitch != 0 ? pitch : copy.WidthInBytes;
  end->slice = end->pitch * (height != 0 ? height : copy.Height);
  end->address = base + x + y * end->pitch + z * end->slice;
}

uint64_t LinearBase(CUmemorytype type, const void* host, CUdeviceptr device) {
  return type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uintptr_t>(host) : device;
}

bool ResolveSource(const CUDA_MEMCPY3D_v2& copy, End* end) {
  if (copy.srcMemoryType == CU_MEMORYTYPE_ARRAY) {
    return ResolveArray(copy.srcArray, copy, copy.srcXInBytes, copy.srcY, copy.srcZ, end);
  }
  ResolveLinear(LinearBase(copy.srcMemoryType, copy.srcHost, copy.srcDevice), copy, copy.srcPitch,
                copy.srcHeight, copy.srcXInBytes, copy.srcY, copy.srcZ, end);
  return true;
}

bool ResolveDestination(const CUDA_MEMCPY3D_v2& copy, End* end) {
  if (copy.dstMemoryType == CU_MEMORYTYPE_ARRAY) {
    return ResolveArray(copy.dstArray, copy, copy.dstXInBytes, copy.dstY, copy.dstZ, end);
  }
  ResolveLinear(LinearBase(copy.dstMemoryType, copy.dstHost, copy.dstDevice), copy, copy.dstPitch,
                copy.dstHeight, copy.dstXInBytes, copy.dstY, copy.dstZ, end);
  return true;
}

Side SideOf(CUmemorytype type, const void* host, CUdeviceptr device) {
  if (type == CU_MEMORYTYPE_ARRAY || type == CU_MEMORYTYPE_DEVICE) return Side::kDevice;
  const memory::Range* range = memory::FindRange(LinearBase(type, host, device));
  if (range == nullptr) return Side::kPageable;
  const bool pinned =
      range->family == memory::Family::kHost || range->family == memory::Family::kRegistered;
  return pinned ? Side::kPinned : Side::kDevice;
}

bool IsKnownType(CUmemorytype type) {
  return type >= CU_MEMORYTYPE_HOST && type <= CU_MEMORYTYPE_UNIFIED;
}

// A pitch shorter than a row would make rows overlap.
bool IsPitchValid(CUmemorytype type, uint64_t pitch, uint64_t width, uint64_t rows) {
  return type == CU_MEMORYTYPE_ARRAY || pitch == 0 || rows <= 1 || pitch >= width;
}

}  // namespace

CUDA_MEMCPY3D_v2 PlainCopy(uint64_t dst, uint64_t src, size_t bytes) {
  CUDA_MEMCPY3D_v2 copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = src;
  copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.dstDevice = dst;
  copy.WidthInBytes = bytes;
  copy.Height = 1;
  copy.Depth = 1;
  return copy;
}

Side SourceSide(const CUDA_MEMCPY3D_v2& copy) {
  return SideOf(copy.srcMemoryType, copy.srcHost, copy.srcDevice);
}

Side DestinationSide(const CUDA_MEMCPY3D_v2& copy) {
  return SideOf(copy.dstMemoryType, copy.dstHost, copy.dstDevice);
}

CUresult ValidateCopy(const CUDA_MEMCPY3D_v2& copy) {
  if (!IsKnownType(copy.srcMemoryType) || !IsKnownType(copy.dstMemoryType)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const uint64_t rows = copy.Height > 1 ? copy.Height : copy.Depth;
  if (!IsPitchValid(copy.srcMemoryType, copy.srcPitch, copy.WidthInBytes, rows) ||
      !IsPitchValid(copy.dstMemoryType, copy.dstPitch, copy.WidthInBytes, rows)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  End end;
  const bool resolved = ResolveSource(copy, &end) && ResolveDestination(copy, &end);
  return resolved ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult MoveBytes(const CUDA_MEMCPY3D_v2& copy) {
  if (copy.WidthInBytes == 0 || copy.Height == 0 || copy.Depth == 0) return CUDA_SUCCESS;
  End src;
  End dst;
  if (!ResolveSource(copy, &src) || !ResolveDestination(copy, &dst)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t z = 0; z < copy.Depth; ++z) {
    for (size_t y = 0; y < copy.Height; ++y) {
      const uint64_t to = dst.address + z * dst.slice + y * dst.pitch;
      const uint64_t from = src.address + z * src.slice + y * src.pitch;
      if (!memory::Copy(to, from, copy.WidthInBytes)) return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

CUresult FillBytes(const CUDA_MEMSET_NODE_PARAMS_v2& fill) {
  const bool done = fill.height > 1
                        ? memory::Memset2D(fill.dst, fill.pitch, fill.value, fill.elementSize,
                                           fill.width, fill.height)
                        : memory::Memset(fill.dst, fill.value, fill.elementSize, fill.width);
  return done ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace sim
