// See ranges.h.
#include "cuda/memory/ranges.h"

#include <stdlib.h>

#include "machine/vec.h"

namespace sim {
namespace {

constinit Vec<memory::Range*> g_ranges = {};  // by base
constinit uint64_t g_next_buffer_id = 1;

// Index of the first range whose base is above an address.
size_t FirstAbove(uintptr_t address) {
  size_t low = 0;
  size_t high = g_ranges.size();
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (g_ranges[middle]->base > address) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

}  // namespace

namespace memory {

Range* FindRange(CUdeviceptr address) {
  const size_t above = FirstAbove(address);
  if (above == 0) return nullptr;
  Range* range = g_ranges[above - 1];
  return address - range->base < range->bytes ? range : nullptr;
}

}  // namespace memory

namespace ranges {

memory::Range* Add(const memory::Range& range) {
  auto* kept = static_cast<memory::Range*>(malloc(sizeof(memory::Range)));
  if (kept == nullptr) return nullptr;
  *kept = range;
  kept->buffer_id = g_next_buffer_id++;
  if (g_ranges.Insert(FirstAbove(range.base), kept)) return kept;
  free(kept);
  return nullptr;
}

void Remove(memory::Range* range) {
  const size_t above = FirstAbove(range->base);
  if (above == 0 || g_ranges[above - 1] != range) return;
  g_ranges.Erase(above - 1);
  free(range);
}

memory::Range* FirstFrom(uintptr_t address) {
  const size_t index = address == 0 ? 0 : FirstAbove(address - 1);
  return index < g_ranges.size() ? g_ranges[index] : nullptr;
}

bool Overlaps(uintptr_t address, size_t bytes) {
  if (memory::FindRange(address) != nullptr) return true;
  const memory::Range* next = FirstFrom(address);
  return next != nullptr && next->base - address < bytes;
}

}  // namespace ranges
}  // namespace sim
