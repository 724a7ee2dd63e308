// What the programs about state and policy share: a process's place in a region, checks,
// randomness, facts as JSON. No driver anywhere.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/forked.h"
#include "policy/account.h"
#include "policy/charge.h"
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

// Runs `body` in a child, which ends well unless a check in it fails.
template <typename Body>
pid_t InChild(Body body) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    body();
    _exit(0);
  }
  return child;
}

// As a shell tells it: the exit status, or 128 and the signal.
inline int StatusOf(pid_t child) {
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// One promise that a program can be asked to keep.
struct Case {
  const char* name;
  void (*run)();
};

// A program's exit status: 0 when the named case holds (a check that fails ends it before), 2 when
// there is none of that name.
template <size_t kCount>
int RunCase(const Case (&cases)[kCount], const char* name) {
  for (const Case& one : cases) {
    if (strcmp(one.name, name) != 0) continue;
    one.run();
    printf("ok\n");
    return 0;
  }
  return 2;
}

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
