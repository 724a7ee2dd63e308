// Oversold memory: what the container may hold, and the share of it that may be device memory.
// Pure arithmetic. Must not know how memory comes to lie anywhere, nor who holds it.
// Why it is done like this: docs/oversubscription.md.
#pragma once

#include <stdint.h>

#include "shared_layouts.h"

namespace gpufence {

// Where a charge lies. Both count against the limit, device memory against the share as well.
enum class Tier : uint8_t {
  kDevice,
  kUnified,  // on the host, where the GPU reaches it
};

// The ratio says how: 0 is off, 1 is on without a share (unified memory only where the driver
// itself has no more), everything else is limit / share in thousandths.
inline constexpr uint64_t kOversoldWithoutShare = 1;

// Device memory that the container may hold within `limit_bytes`; UINT64_MAX: as much as it may
// hold in all.
constexpr uint64_t ShareBytes(uint64_t limit_bytes, uint64_t ratio) {
  if (ratio <= kRatioUnit || limit_bytes == UINT64_MAX) return UINT64_MAX;
  return static_cast<uint64_t>(static_cast<unsigned __int128>(limit_bytes) * kRatioUnit / ratio);
}

static_assert(ShareBytes(4, 2000) == 2);
static_assert(ShareBytes(uint64_t{1} << 62, 1500) == (uint64_t{1} << 63) / 3);
static_assert(ShareBytes(4, 0) == UINT64_MAX && ShareBytes(4, kOversoldWithoutShare) == UINT64_MAX);

}  // namespace gpufence
