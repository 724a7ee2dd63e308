// What the programs about state and policy share: a process's place in a region, checks,
// randomness, facts as JSON. No driver anywhere.
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/forked.h"
#include "policy/account.h"
#include "policy/charge.h"
#include "state/onlook.h"
#include "state/region.h"

namespace statetest {

using namespace gpufence;  // NOLINT(google-build-using-namespace): a test program's own helpers

inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint8_t kUuid[16] = {0xab, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// Ends the program with the place that failed.
#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      _exit(9);                                                                 \
    }                                                                           \
  } while (false)

#define CHECK_EQ(one, other)                                                       \
  do {                                                                             \
    const auto one_value = static_cast<uint64_t>(one);                             \
    const auto other_value = static_cast<uint64_t>(other);                         \
    if (one_value != other_value) {                                                \
      fprintf(stderr, "%s:%d: %s is %llu, %s is %llu\n", __FILE__, __LINE__, #one, \
              static_cast<unsigned long long>(one_value), #other,                  \
              static_cast<unsigned long long>(other_value));                       \
      _exit(9);                                                                    \
    }                                                                              \
  } while (false)

// What memory of a size takes when it shares no chunk.
inline uint64_t Whole(uint64_t bytes) { return RoundUp(bytes, kChunkBytes); }

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint64_t Next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }
  uint64_t Below(uint64_t bound) { return Next() % bound; }

 private:
  uint64_t state_;
};

inline RegionPlaces PlacesIn(const char* folder) { return {{folder}, "test"}; }

inline RegionFile MustOpen(const char* folder) {
  RegionFile file;
  char why[400] = "";
  if (!OpenRegion(PlacesIn(folder), &file, why, sizeof why)) {
    fprintf(stderr, "%s\n", why);
    _exit(8);
  }
  return file;
}

// One process's account, in memory that a child finds wiped, as in the library.
struct Member {
  RegionFile file;
  uint32_t slot;
  uint32_t row;
  Account account;
};

inline void Join(const char* folder, uint64_t limit_bytes, Member* member) {
  member->file = MustOpen(folder);
  member->slot = ClaimSlot(member->file);
  CHECK(member->slot != kNoSlot);
  member->row = FindRow(member->file, kUuid);
  CHECK(member->row != kMaxDevices);
  member->account.Open(member->file, member->row, member->slot, 0, limit_bytes, nullptr);
}

inline Member* NewMember(const char* folder, uint64_t limit_bytes) {
  auto* member = static_cast<Member*>(MapWipedOnFork(sizeof(Member)));
  Join(folder, limit_bytes, member);
  return member;
}

// Leaves as death does: no call of ours, the kernel drops descriptor and mapping.
inline void Die(Member* member) {
  munmap(member->file.region, sizeof(Region));
  close(member->file.fd);
  UnmapWipedOnFork(member, sizeof(Member));
}

inline uint64_t HeldBy(const Member& member, uint32_t slot) {
  return member.file.region->cells[member.row][slot].held.load();
}

// As far as a request gets before its process is stopped or killed.
inline void AskWithoutDeciding(Member* member, uint64_t bytes) {
  member->file.region->cells[member->row][member->slot].asking.fetch_add(bytes);
  member->file.region->rows[member->row].total.fetch_add(bytes);
}

}  // namespace statetest
