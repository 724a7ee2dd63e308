// What a request costs in physical memory, as the driver rounds it. Pure arithmetic.
// Source: measured on an H200 with driver 580 (docs/memory-limiter.md, "What a byte costs").
#pragma once

#include <stdint.h>

namespace gpufence {

inline constexpr uint64_t kChunkBytes = uint64_t{2} << 20;  // the driver's unit of physical memory
inline constexpr uint64_t kSmallStep = 512;  // what smaller pieces are placed in inside of one
inline constexpr uint64_t kPoolBlockBytes = uint64_t{32} << 20;  // how stream-ordered pools grow

// To a multiple of a power of two. Saturates, so that an absurd size is refused instead of wrapping
// to a small one.
constexpr uint64_t RoundUp(uint64_t bytes, uint64_t step) {
  const uint64_t most = UINT64_MAX - (step - 1);
  return bytes > most ? most : (bytes + step - 1) & ~(step - 1);
}

// Of a pool, the blocks that `bytes` from an address on lie in.
constexpr uint64_t BlockBytes(uint64_t address, uint64_t bytes) {
  return RoundUp(address + bytes, kPoolBlockBytes) - (address & ~(kPoolBlockBytes - 1));
}

// What a context holds for its streams: as much as for the most that ever lived in it at once,
// whatever their priority.
constexpr uint64_t ChannelBytes(uint64_t streams) {
  return (streams * (512 << 10) + (1 << 20)) / kChunkBytes * kChunkBytes +
         (streams * (48 << 10) + (320 << 10)) / kChunkBytes * kChunkBytes;
}

// Pieces that share chunks with others: all that do not fill one, in steps. What takes nothing
// shares nothing (and wraps).
constexpr bool IsSmall(uint64_t bytes) { return bytes - 1 < kChunkBytes - kSmallStep; }

static_assert(ChannelBytes(1) == 0 && ChannelBytes(2) == kChunkBytes);
static_assert(ChannelBytes(34) == 9 * kChunkBytes && ChannelBytes(36) == 10 * kChunkBytes);
static_assert(ChannelBytes(121) == 32 * kChunkBytes && ChannelBytes(122) == 34 * kChunkBytes);
static_assert(ChannelBytes(250) == 69 * kChunkBytes);
static_assert(BlockBytes(0, 1) == kPoolBlockBytes);
static_assert(BlockBytes(kPoolBlockBytes - 1, 2) == 2 * kPoolBlockBytes);
static_assert(RoundUp(1, kChunkBytes) == kChunkBytes);
static_assert(RoundUp(kChunkBytes, kChunkBytes) == kChunkBytes);
static_assert(RoundUp(UINT64_MAX, kChunkBytes) >= uint64_t{1} << 63);
static_assert(IsSmall(kChunkBytes - kSmallStep) && !IsSmall(kChunkBytes - kSmallStep + 1));
static_assert(IsSmall(1) && !IsSmall(0) && !IsSmall(UINT64_MAX));
static_assert(RoundUp(5 << 20, kChunkBytes) == uint64_t{6} << 20);

}  // namespace gpufence
