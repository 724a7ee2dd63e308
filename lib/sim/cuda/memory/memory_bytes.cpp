// Moving and filling bytes: the simulator computes nothing, but what is copied arrives.
//
// Must not know streams or time, nor how memory was allocated.
#include <string.h>

#include "cuda/memory/arena.h"
#include "cuda/memory/ranges.h"
#include "cuda/memory/vmm.h"

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
