// The bytes of copies and fills: one description for every shape, performed row by row. The
// simulator computes nothing, but what is copied arrives.
//
// Owns the reading of CUDA_MEMCPY3D. Must not know: streams, time, who asked, how memory was
// allocated.
#include <string.h>

#include "cuda/memory/arena.h"
#include "cuda/memory/memory.h"
#include "cuda/memory/ranges.h"
#include "cuda/memory/vmm.h"
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

namespace sim::memory {
namespace {

// Whether [address, address+bytes) is covered without a gap by ranges that the device may access.
bool IsCovered(uintptr_t address, size_t bytes) {
  while (true) {
    const Range* range = FindRange(address);
    if (range == nullptr || !range->accessible) return false;
    const size_t covered = range->base + range->bytes - address;
    if (covered >= bytes) return true;
    address += covered;
    bytes -= covered;
  }
}

// Whether a copy may touch the bytes: addresses that the simulator deals must be live, all others
// are the program's own.
bool IsUsable(uintptr_t address, size_t bytes) {
  if (address == 0) return false;
  if (FindRange(address) != nullptr) return IsCovered(address, bytes);
  return !arena::Contains(address) && !vmm::IsReserved(address);
}

void* At(uint64_t address) { return reinterpret_cast<void*>(static_cast<uintptr_t>(address)); }

// Fills by doubling what is already filled, so that any pattern moves at memcpy's speed.
void Fill(void* target, uint32_t value, size_t element_bytes, size_t bytes) {
  if (element_bytes == 1 || value == 0) {
    memset(target, static_cast<int>(value & 255), bytes);
    return;
  }
  auto* to = static_cast<unsigned char*>(target);
  memcpy(to, &value, element_bytes);  // both supported machines are little-endian
  for (size_t done = element_bytes; done < bytes;) {
    const size_t step = done < bytes - done ? done : bytes - done;
    memcpy(to + done, to, step);
    done += step;
  }
}

}  // namespace

bool IsDeviceRange(CUdeviceptr address, size_t bytes) {
  return address != 0 && IsCovered(address, bytes);
}

bool Copy(uint64_t dst, uint64_t src, size_t bytes) {
  if (bytes == 0) return true;
  if (!IsUsable(dst, bytes) || !IsUsable(src, bytes)) return false;
  memmove(At(dst), At(src), bytes);
  return true;
}

bool Memset(CUdeviceptr dst, uint32_t value, size_t element_bytes, size_t count) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, element_bytes, &bytes)) return false;
  if (bytes == 0) return true;
  if (dst % element_bytes != 0 || !IsDeviceRange(dst, bytes)) return false;
  Fill(At(dst), value, element_bytes, bytes);
  return true;
}

bool Memset2D(CUdeviceptr dst, size_t pitch, uint32_t value, size_t element_bytes, size_t width,
              size_t height) {
  const size_t row_bytes = width * element_bytes;
  if (row_bytes == 0 || height == 0) return true;
  if (dst % element_bytes != 0 || (height > 1 && pitch < row_bytes)) return false;
  if (!IsDeviceRange(dst, pitch * (height - 1) + row_bytes)) return false;
  for (size_t row = 0; row < height; ++row) {
    Fill(At(dst + row * pitch), value, element_bytes, row_bytes);
  }
  return true;
}

}  // namespace sim::memory
