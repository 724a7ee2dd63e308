// The bytes of a core file: who of a container runs on which device, what the container owes, and
// what it knows of its neighbours' turns. Shared by the processes of one container, across library
// versions: changing anything here means a new kCoreLayoutVersion, which is part of the file's
// name. No other container has it. Must not know how the file is found, nor what the words mean to
// whoever decides.
//
// Nothing in it is trusted: any word may hold anything, and must then do no more harm than a wrong
// share for a while. What one process alone knows, it writes again (SignAgain).
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "state/layout.h"

namespace gpufence {

inline constexpr uint64_t kCoreMagic = 0x3165726f63706667;  // "gfpcore1"
inline constexpr uint32_t kCoreLayoutVersion = 4;
inline constexpr uint32_t kMaxCoreRows = 64;       // devices
inline constexpr uint32_t kMaxCoreTenants = 64;    // on a device: the container and neighbours
inline constexpr uint32_t kOwnTenant = 0;          // the container's place among them
inline constexpr uint32_t kMaxCoreMembers = 2048;  // processes
inline constexpr uint32_t kCoreGaps = 16;
inline constexpr uint32_t kCoreRuns = 48;

// A container on a device: this one, or a neighbour as far as its notice tells (state/notice.h).
struct CoreTenant {
  Word key;                // hash of the container's name, or a notice's author; 0: nobody
  Word due_ns;             // when all it used is paid for (policy/share.h)
  Word charged_until_ns;   // what lies before was charged, or is a gap
  Word shares;             // the lowest among its living members (CoreShares)
  Word shares_checked_ns;  // when that was last found out
  Word backlog_ns;         // since when it wants or uses the device without a pause
  Word active_ns;          // when it last wanted or used it
  Word served_ns;          // time it held turns, over its share (policy/turn.h)
  Word gaps[kCoreGaps];    // what was passed over by charged_until_ns (policy/core_busy.h)
  Word charged_ns;         // all GPU time it was ever charged: for display
  Word quantum_ns;         // how long its turns are; 0: as libraries before this word had it
  // Of neighbours alone.
  Word beat_ns;  // when it wrote its notice; 0: it is dead
  Word wants_ns;
  Word idle_ns;
  Word ends_ns;
  // Of all.
  Word terms;            // PackTerms
  Word rate;             // of the GPU's time it was charged lately, in thousandths of a percent ...
  Word rate_ns;          // ... until then ...
  Word rate_charged_ns;  // ... when so much was charged in all
  // Of the container alone.
  Word soft_share;       // what its soft share comes to ...
  Word soft_ns;          // ... as found then
  Word superior_ns;      // when a neighbour of higher priority was last there
  Word yields_ns;        // when one had work last
  Word stretch;          // since when it always had work there (policy/beside.h)
  Word returned_ns;      // of what was charged that was neighbours', and charged_ns still has
  Word runs[kCoreRuns];  // when it had work on the GPU lately (policy/beside.h)
};
static_assert(sizeof(CoreTenant) == 192 + 8 * kCoreGaps + 8 * kCoreRuns);

// A process on a device. Only its owner writes.
struct CoreMember {
  std::atomic<uint32_t> tenant;  // its number plus 1; 0: not on this device
  uint32_t padding;
  Word shares;     // as the process resolved them
  Word beat;       // last heartbeat in microseconds, shifted by 1 | something is outstanding
  Word wanted_ns;  // when it last asked for the turn; 0: it has nothing to launch
  Word idle_ns;    // since when nothing is outstanding
  Word ends_ns;    // when what is outstanding is expected to be done; 0: unknown
  // policy/gang.h; 0: none, as in libraries before these words
  Word collectives;  // how many it launched, and when the last one
  Word gang_held;    // it holds behind them
};
static_assert(sizeof(CoreMember) == 64);

struct CoreRow {
  Word key;          // of the UUID, never 0: claims the row in one step (state/slots.h)
  uint8_t uuid[16];  // for display
  Word turn;         // policy/turn.h
  Word virtual_ns;   // where the served_ns of whoever holds the turn began
  Word foreign_ns;   // when somebody who has no seat here last used the device
  Word author;       // of the container's notice; 0: it has none
  Word waited_ns;    // how long the container was kept from its share of turns (policy/patience.h)
  Word counted_ns;   // until when that was counted
  Word alone_ns;     // until when it goes without turns
  Word is_deep;      // not 0: the container takes turns (policy/depth.h)
  Word run_ns;       // how long it has the GPU without a pause, in the mean
  Word pressed_ns;   // when a launch was last held for budget
  Word settled_ns;   // until when its work was compared with the neighbours'
  Word density;      // of its runs so much was charged, in millionths (policy/beside.h)
  Word met_ns;       // when a collective was last launched
};
static_assert(sizeof(CoreRow) == 128);

struct CoreHeader {
  Word magic;  // stored last by the maker
  uint32_t layout_version;
  uint32_t max_rows;
  uint32_t max_tenants;
  uint32_t max_members;
  std::atomic<uint32_t> high_member;  // no member at or above this one was ever claimed
  uint32_t reserved[9];
};
static_assert(sizeof(CoreHeader) == 64);

struct CoreRegion {
  CoreHeader header;
  CoreRow rows[kMaxCoreRows];
  ProcessRecord processes[kMaxCoreMembers];
  CoreTenant tenants[kMaxCoreRows][kMaxCoreTenants];
  CoreMember members[kMaxCoreRows][kMaxCoreMembers];
};
static_assert(offsetof(CoreRegion, rows) == 64);
static_assert(offsetof(CoreRegion, processes) == 64 + 128 * kMaxCoreRows);

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
inline uint32_t HighMember(const CoreRegion* region) {
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
