// The time file, in which a container keeps what its core limit is about: where it is, who has a
// place in it, and what is packed into its words (which stand in lib/layouts/shared_files.txt). It
// lies beside the container's own region, for its processes alone.
//
// A process lives as long as it holds the lock on its byte (state/slots.h says why). Nobody
// excludes anybody. Must not know turns, budgets or CUDA.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "shared_layouts.h"
#include "state/region.h"

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

// This process's place in an open time file. fd < 0: memory of this process alone.
struct TimeFile {
  TimeBytes* region = nullptr;
  int fd = -1;
  uint64_t device = 0;  // which file the descriptor was opened for
  uint64_t inode = 0;
  uint32_t member = 0;
  uint64_t start_ticks = 0;  // with which the process signed
  uint64_t pid_namespace = 0;
};

// A container's place on one device: its row, in which it is kOwnTenant.
struct TimePlace {
  uint32_t row;
};

// What was written when a process took its seat, and has to stay there while it lives.
struct TimeSignature {
  uint64_t row_key;
  uint64_t tenant_key;
  uint64_t shares;
  uint64_t author;
};

// Opens the container's file in one of `own`'s folders, or, when it has none, in memory; takes a
// member's place in it. Opened once per process: later calls give the same. False with one clause
// in `why`. One thread at a time.
bool OpenTimeFile(const RegionPlaces& own, TimeFile* file, char* why, size_t why_bytes);

// Finds or makes the device's row, and publishes this process's shares, which are the container's
// where it is new. False with one clause in `why`. One thread at a time.
bool JoinTimeRow(const TimeFile& file, const char* container, const uint8_t uuid[16],
                 CoreShares shares, uint64_t now_ns, TimePlace* place, char* why, size_t why_bytes);

// The lowest shares on the device among the container's living processes, for one that has no place
// in the file yet; hard 0: none of them is known. Makes nothing.
CoreShares LookAtShares(const RegionPlaces& own, const uint8_t uuid[16]);

// A descriptor of the same file for one that the program closed, as daemons do; the number may be
// another file's by now, which nobody may lock or grow. -1: the file is gone. The caller closes it.
int ReopenTimeFile(const TimeFile& file);

// The lowest shares of the tenant's living members (packed), at a system call for each; 0: none of
// them is known to live.
uint64_t LowestShares(const TimeFile& file, TimePlace place);

// True while other processes of the container use the device.
bool HasLivingSiblings(const TimeFile& file, TimePlace place);

// What the file says now, of a place that was just taken.
TimeSignature SignatureOf(const TimeFile& file, TimePlace place);

// Writes again what went wrong of that, of this process's record and of the header: nobody else
// would, and who is not seen gets no turn.
void SignAgain(const TimeFile& file, TimePlace place, const TimeSignature& signature);

}  // namespace gpufence
