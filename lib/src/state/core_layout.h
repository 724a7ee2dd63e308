// Words of a time file that hold several numbers, packed and unpacked. Where they stand is in
// lib/layouts/shared_files.txt. Must not know how the file is found, nor what the numbers mean to
// whoever decides.
#pragma once

#include <stdint.h>

#include "shared_layouts.h"

namespace gpufence {

// What a container is beside others: who goes first, and how what is free is divided.
struct SeatTerms {
  uint32_t rank;      // 0 to 2: the higher goes first
  uint32_t weight;    // 0: its hard share counts
  uint32_t floor;     // thousandths of a percent of the GPU that it has in any case
  uint64_t burst_ns;  // GPU time that it may save up; 0: as much as is usual
};
inline constexpr uint32_t kUsualRank = 1;
inline constexpr uint32_t kHighestRank = 2;
constexpr uint64_t PackTerms(SeatTerms terms) {
  return uint64_t{terms.floor} << 32 | uint64_t{terms.weight & 0xffff} << 8 | (terms.rank + 1);
}
constexpr SeatTerms UnpackTerms(uint64_t word) {
  const auto above = static_cast<uint32_t>(word & 0xff);  // 0: nobody said
  return {above != 0 && above <= kHighestRank + 1 ? above - 1 : kUsualRank,
          static_cast<uint32_t>(word >> 8 & 0xffff), static_cast<uint32_t>(word >> 32), 0};
}

// Where scans of members end.
inline uint32_t HighMember(const TimeBytes* region) {
  const uint32_t high = region->header.high_member.load(std::memory_order_acquire);
  return high < kMaxCoreMembers ? high : kMaxCoreMembers;
}

// Two shares in one word, so that they change together.
struct CoreShares {
  uint32_t hard;
  uint32_t soft;
};
constexpr uint64_t PackShares(CoreShares shares) {
  return uint64_t{shares.soft} << 32 | shares.hard;
}
constexpr CoreShares UnpackShares(uint64_t word) {
  return {static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32)};
}

}  // namespace gpufence
