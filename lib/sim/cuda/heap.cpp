// See heap.h.
#include "cuda/heap.h"

#include <stdlib.h>

#include "cuda/arena.h"
#include "cuda/memory.h"
#include "machine/machine.h"
#include "machine/vec.h"

namespace sim::heap {
namespace {

using machine::kGranuleBytes;

constexpr uint32_t kUnits = kGranuleBytes / kUnitBytes;
constexpr size_t kLargestShared = kGranuleBytes / 2;

// A granule shared by small blocks.
struct Chunk {
  uint64_t offset;
  uint64_t owner;
  int device;
  uint32_t used_units;
  bool used[kUnits];
};

constinit Vec<Chunk*> g_chunks = {};

// First unit of a run of `count` free ones, or kUnits.
uint32_t FindRun(const Chunk& chunk, uint32_t count) {
  uint32_t run = 0;
  for (uint32_t unit = 0; unit < kUnits; ++unit) {
    run = chunk.used[unit] ? 0 : run + 1;
    if (run == count) return unit + 1 - count;
  }
  return kUnits;
}

void Mark(Chunk* chunk, uint32_t first, uint32_t count, bool used) {
  for (uint32_t unit = first; unit < first + count; ++unit) chunk->used[unit] = used;
  chunk->used_units += used ? count : 0u - count;
}

// Cuts a block out of a chunk that has room for it.
bool Cut(Chunk* chunk, uint32_t count, Block* block) {
  if (chunk->used_units + count > kUnits) return false;
  const uint32_t first = FindRun(*chunk, count);
  if (first == kUnits) return false;
  Mark(chunk, first, count, true);
  *block = {.offset = chunk->offset + uint64_t{first} * kUnitBytes,
            .granule_bytes = 0,
            .units = count,
            .device = chunk->device};
  return true;
}

CUresult AddChunk(int device, uint64_t owner, Chunk** added) {
  auto* chunk = static_cast<Chunk*>(calloc(1, sizeof(Chunk)));
  Block whole = {};
  if (chunk == nullptr || !g_chunks.Reserve(g_chunks.size() + 1) ||
      TakeWhole(device, kGranuleBytes, &whole) != CUDA_SUCCESS) {
    free(chunk);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  chunk->offset = whole.offset;
  chunk->owner = owner;
  chunk->device = device;
  g_chunks.Push(chunk);
  *added = chunk;
  return CUDA_SUCCESS;
}

void DropChunk(size_t index) {
  Chunk* chunk = g_chunks[index];
  Give({.offset = chunk->offset,
        .granule_bytes = kGranuleBytes,
        .units = 0,
        .device = chunk->device});
  g_chunks.Erase(index);
  free(chunk);
}

}  // namespace

uint64_t InGranules(uint64_t bytes) {
  uint64_t padded = 0;
  if (__builtin_add_overflow(bytes, kGranuleBytes - 1, &padded)) return 0;
  return padded / kGranuleBytes * kGranuleBytes;
}

CUresult TakeWhole(int device, size_t bytes, Block* block) {
  const uint64_t granule_bytes = InGranules(bytes);
  if (granule_bytes == 0 || !memory::ChargeHidden(device, granule_bytes)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  uint64_t offset = 0;
  if (!arena::Take(granule_bytes, &offset)) {
    memory::ReleaseHidden(device, granule_bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *block = {.offset = offset, .granule_bytes = granule_bytes, .units = 0, .device = device};
  return CUDA_SUCCESS;
}

CUresult Take(int device, uint64_t owner, size_t bytes, Block* block) {
  if (bytes > kLargestShared) return TakeWhole(device, bytes, block);
  const auto count = static_cast<uint32_t>((bytes + kUnitBytes - 1) / kUnitBytes);
  for (Chunk* chunk : g_chunks) {
    if (chunk->owner != owner || chunk->device != device) continue;
    if (Cut(chunk, count, block)) return CUDA_SUCCESS;
  }
  Chunk* chunk = nullptr;
  const CUresult rc = AddChunk(device, owner, &chunk);
  if (rc == CUDA_SUCCESS) Cut(chunk, count, block);
  return rc;
}

void Give(const Block& block) {
  if (block.granule_bytes != 0) {
    arena::Give(block.offset, block.granule_bytes);
    memory::ReleaseHidden(block.device, block.granule_bytes);
    return;
  }
  const uint64_t start = block.offset / kGranuleBytes * kGranuleBytes;
  for (size_t index = 0; index < g_chunks.size(); ++index) {
    Chunk* chunk = g_chunks[index];
    if (chunk->offset != start) continue;
    Mark(chunk, static_cast<uint32_t>((block.offset - start) / kUnitBytes), block.units, false);
    if (chunk->used_units == 0) DropChunk(index);
    return;
  }
}

}  // namespace sim::heap
