// Containers on one GPU, which meet in one node folder; the file of each is this program's own
// memory.
// Must not know what is promised to them.
#pragma once

#include <algorithm>

#include "policy/core_seat.h"
#include "policy/share.h"
#include "support/state_program.h"

namespace coretest {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

inline constexpr uint64_t kMs = 1'000'000;
inline constexpr uint64_t kSecond = 1000 * kMs;
inline constexpr uint64_t kStart = 1'000'000 * kMs;
inline constexpr uint32_t kPoint = 1000;  // of a percent

inline const char* folder = nullptr;  // where they meet

// A container whose file is this program's own memory.
struct Container {
  Container(const char* name, uint32_t percent, uint32_t soft_percent = 0) {
    file.region = static_cast<TimeBytes*>(MapWipedOnFork(sizeof(TimeBytes)));
    file.region->header.high_member.store(1);
    TimePlace place;
    char why[400] = "";
    const CoreShares shares = {percent * kPoint, std::max(percent, soft_percent) * kPoint};
    CHECK(JoinTimeRow(file, name, kUuid, shares, kStart, &place, why, sizeof why));
    seat.Sit(file, place);
    CHECK(seat.Meet(folder, why, sizeof why));
  }
  ~Container() {
    seat.Part();
    UnmapWipedOnFork(file.region, sizeof(TimeBytes));
  }
  Container(const Container&) = delete;
  Container& operator=(const Container&) = delete;

  // What its watcher does at a tick.
  void Tick(uint64_t now_ns, bool outstanding) {
    seat.Beat(now_ns, outstanding);
    seat.MoveTurn(now_ns);
  }
  void Rank(uint32_t rank, uint32_t floor = 0, uint32_t weight = 0) {
    seat.Follow({rank, weight, floor, 0});
  }
  CoreTenant& own() { return file.region->tenants[0][kOwnTenant]; }
  // As it is known here.
  CoreTenant* Known(const Container& other) {
    for (CoreTenant& tenant : file.region->tenants[0]) {
      if (&tenant != &own() && tenant.key.load() == other.file.region->rows[0].author.load()) {
        return &tenant;
      }
    }
    return nullptr;
  }

  TimeFile file;
  CoreSeat seat;
};

// Both tick until each has read the other's notice.
inline uint64_t Meet(Container* one, Container* other, uint64_t now_ns) {
  for (int i = 0; i < 60; ++i) {
    now_ns += kMs;
    one->Tick(now_ns, false);
    other->Tick(now_ns, false);
  }
  CHECK(one->Known(*other) != nullptr && other->Known(*one) != nullptr);
  return now_ns;
}

}  // namespace coretest
