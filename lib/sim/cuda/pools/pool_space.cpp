// See pool_space.h.
#include "cuda/pools/pool_space.h"

#include <algorithm>

#include "cuda/memory/arena.h"
#include "cuda/memory/heap.h"
#include "cuda/sharing/sharing.h"
#include "machine/machine.h"

namespace sim::pool {
namespace {

// A stretch of addresses; a piece that is larger gets one of its own size.
constexpr uint64_t kWindowBytes = uint64_t{64} << 30;

uint64_t RoundUp(uint64_t bytes, uint64_t step) { return (bytes + step - 1) / step * step; }
uint64_t StartOfBlock(uint64_t offset) { return offset / kBlockBytes * kBlockBytes; }

// Index of the first element at or behind an offset.
template <typename Element>
size_t FirstFrom(const Vec<Element>& elements, uint64_t offset) {
  const Element* at = std::lower_bound(
      elements.begin(), elements.end(), offset,
      [](const Element& element, uint64_t wanted) { return element.offset < wanted; });
  return static_cast<size_t>(at - elements.begin());
}

bool AddWindow(Space* space, uint64_t bytes) {
  const uint64_t size = std::max(RoundUp(bytes, kBlockBytes), kWindowBytes) + kBlockBytes;
  Extent window = {0, size};
  if (!space->windows.Reserve(space->windows.size() + 1)) return false;
  if (!arena::Take(size, &window.offset)) return false;
  space->windows.Push(window);
  const uint64_t start = RoundUp(window.offset, kBlockBytes);
  const Extent hole = {start, window.offset + size - start};
  return space->holes.Insert(FirstFrom(space->holes, start), hole);
}

bool IsTail(const Space& space, const Extent& hole) {
  for (const Extent& window : space.windows) {
    if (hole.offset + hole.bytes == window.offset + window.bytes) return true;
  }
  return false;
}

bool IsBacked(Space* space, uint64_t offset, uint64_t bytes) {
  const uint64_t end = offset + bytes;
  size_t at = FirstFrom(space->blocks, StartOfBlock(offset));
  for (uint64_t start = StartOfBlock(offset); start < end; start += kBlockBytes, ++at) {
    if (at == space->blocks.size()) return false;
    const Block& block = space->blocks[at];
    if (block.offset != start || !block.is_backed) return false;
  }
  return true;
}

// The hole that serves, or the number of holes.
size_t Choose(Space* space, uint64_t bytes) {
  size_t best = space->holes.size();
  int best_rank = 3;
  for (size_t index = 0; index < space->holes.size(); ++index) {
    const Extent& hole = space->holes[index];
    if (hole.bytes < bytes) continue;
    const int rank = IsTail(*space, hole) ? 2 : !IsBacked(space, hole.offset, bytes);
    const bool better =
        rank < best_rank || (rank == best_rank && hole.bytes <= space->holes[best].bytes);
    if (!better) continue;
    best = index;
    best_rank = rank;
  }
  return best;
}

// One piece more in each block from `offset` on.  False when host memory is exhausted.
bool Occupy(Space* space, uint64_t offset, uint64_t bytes) {
  const uint64_t end = offset + bytes;
  const size_t most = (end - StartOfBlock(offset)) / kBlockBytes + 1;
  if (!space->blocks.Reserve(space->blocks.size() + most)) return false;
  size_t at = FirstFrom(space->blocks, StartOfBlock(offset));
  for (uint64_t start = StartOfBlock(offset); start < end; start += kBlockBytes, ++at) {
    const bool known = at < space->blocks.size() && space->blocks[at].offset == start;
    if (!known) space->blocks.Insert(at, {start, 0, false, false, false, false});
    ++space->blocks[at].pieces;
  }
  return true;
}

void AddHole(Space* space, uint64_t offset, uint64_t bytes) {
  Vec<Extent>& holes = space->holes;
  const size_t at = FirstFrom(holes, offset);
  const bool joins_left = at > 0 && holes[at - 1].offset + holes[at - 1].bytes == offset;
  const bool joins_right = at < holes.size() && offset + bytes == holes[at].offset;
  if (joins_left) {
    holes[at - 1].bytes += bytes + (joins_right ? holes[at].bytes : 0);
    if (joins_right) holes.Erase(at);
  } else if (joins_right) {
    holes[at].offset = offset;
    holes[at].bytes += bytes;
  } else {
    holes.Insert(at, {offset, bytes});  // on failure these addresses are never used again: harmless
  }
}

}  // namespace

bool Place(Space* space, uint64_t bytes, uint64_t* offset) {
  bytes = RoundUp(bytes, heap::kUnitBytes);
  size_t index = Choose(space, bytes);
  if (index == space->holes.size()) {
    if (!AddWindow(space, bytes)) return false;
    index = Choose(space, bytes);
  }
  Extent& hole = space->holes[index];
  if (!Occupy(space, hole.offset, bytes)) return false;
  *offset = hole.offset;
  hole.offset += bytes;
  hole.bytes -= bytes;
  if (hole.bytes == 0) space->holes.Erase(index);
  return true;
}

void Vacate(Space* space, uint64_t offset, uint64_t bytes) {
  bytes = RoundUp(bytes, heap::kUnitBytes);
  const size_t first = FirstFrom(space->blocks, StartOfBlock(offset));
  for (size_t at = first; at < space->blocks.size(); ++at) {
    Block& block = space->blocks[at];
    if (block.offset >= offset + bytes) break;
    --block.pieces;
    block.is_awaited = true;
  }
  AddHole(space, offset, bytes);
}

Block* FirstUnbacked(Space* space, uint64_t offset, uint64_t bytes) {
  for (size_t at = FirstFrom(space->blocks, StartOfBlock(offset)); at < space->blocks.size();
       ++at) {
    Block& block = space->blocks[at];
    if (block.offset >= offset + bytes) break;
    if (!block.is_backed) return &block;
  }
  return nullptr;
}

Block* LastIdle(Space* space, bool settled) {
  for (size_t at = space->blocks.size(); at > 0; --at) {
    Block& block = space->blocks[at - 1];
    if (!block.is_backed || block.pieces != 0) continue;
    const bool may_move = !block.is_exported && !dma_buf::IsPinned(block.offset);
    if (settled ? !block.is_awaited : may_move) return &block;
  }
  return nullptr;
}

void Unback(Block* block) {
  block->is_backed = false;
  block->is_awaited = false;
  arena::Clear(block->offset, kBlockBytes);
}

void Settle(Space* space) {
  for (Block& block : space->blocks) block.is_awaited = false;
}

void End(Space* space) {
  for (const Extent& window : space->windows) arena::Give(window.offset, window.bytes);
  space->windows.Free();
  space->holes.Free();
  space->blocks.Free();
}

}  // namespace sim::pool
