// link: state
// What containers on one GPU are to each other: who goes first, how what is free is divided, what
// may be saved up. Fails with the place that was not true.
//
//   core_terms NAME FOLDER
#include <string.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/pauses.h"
#include "base/tuning.h"
#include "core_containers.h"
#include "policy/core_seat.h"
#include "policy/gpu_time.h"
#include "policy/share.h"
#include "policy/turn.h"

namespace {

using namespace coretest;  // NOLINT(google-build-using-namespace): a test program's own helpers

// ---- soft shares ----

uint32_t Of(SoftTenant own, uint32_t free, const std::vector<SoftTenant>& others) {
  return SoftShareOf(own, free, others.data(), others.size());
}

// What is claimed is a little more than what is used, and no more than the hard share.
void Claims() {
  CHECK_EQ(ClaimOf(0, 30 * kPoint), 2 * kPoint);
  CHECK_EQ(ClaimOf(8 * kPoint, 30 * kPoint), 11 * kPoint);
  CHECK_EQ(ClaimOf(29 * kPoint, 30 * kPoint), 30 * kPoint);
  CHECK_EQ(ClaimOf(0, kPoint), kPoint);
  CHECK_EQ(ClaimOf(UINT32_MAX, 30 * kPoint), 30 * kPoint);
}

// Alone it has all that is free, up to its soft share.
void SoftAlone() {
  CHECK_EQ(Of({30 * kPoint, 100 * kPoint, 30}, 70 * kPoint, {}), 100 * kPoint);
  CHECK_EQ(Of({30 * kPoint, 60 * kPoint, 30}, 70 * kPoint, {}), 60 * kPoint);
  CHECK_EQ(Of({30 * kPoint, 100 * kPoint, 30}, 20 * kPoint, {}), 50 * kPoint);
  CHECK_EQ(Of({30 * kPoint, 100 * kPoint, 30}, 0, {}), 30 * kPoint);
}

// Several by weight.
void SoftByWeight() {
  const auto one = [](uint32_t weight) { return SoftTenant{20 * kPoint, 100 * kPoint, weight}; };
  CHECK_EQ(Of(one(1), 60 * kPoint, {one(1)}), 50 * kPoint);
  CHECK_EQ(Of(one(2), 60 * kPoint, {one(1)}), 60 * kPoint);
  CHECK_EQ(Of(one(1), 60 * kPoint, {one(2)}), 40 * kPoint);
  CHECK_EQ(Of(one(1), 40 * kPoint, {one(1), one(1), one(1)}), 30 * kPoint);
}

// Whoever has less room than its part leaves the rest to the others, and that may fill the next.
void SoftFilled() {
  const SoftTenant own = {10 * kPoint, 100 * kPoint, 1};
  const SoftTenant narrow = {10 * kPoint, 15 * kPoint, 1};
  const SoftTenant wide = {10 * kPoint, 40 * kPoint, 1};
  // Of 60 the narrow one has room for 5, so that 55 are left for two.
  CHECK_EQ(Of(own, 60 * kPoint, {narrow, wide}), 10 * kPoint + 27'500);
  // Of 80 both are full: 5 and 30.
  CHECK_EQ(Of(own, 80 * kPoint, {narrow, wide}), 55 * kPoint);
  CHECK_EQ(Of(own, 80 * kPoint, {wide, narrow}), 55 * kPoint);
  // Words that went wrong have no room.
  CHECK_EQ(Of(own, 60 * kPoint, {{50 * kPoint, 0, 1}}), 70 * kPoint);
  CHECK_EQ(Of(own, 60 * kPoint, {{50 * kPoint, 0, UINT32_MAX}}), 70 * kPoint);
}

// Everybody reckons for itself, and all together have what is free and no more; nothing of it is
// left while somebody has room.
void SoftTogether() {
  Random random(1);
  for (int round = 0; round < 5000; ++round) {
    std::vector<SoftTenant> all(1 + random.Below(8));
    uint64_t room = 0;
    for (SoftTenant& one : all) {
      one.hard = static_cast<uint32_t>(1 + random.Below(20 * kPoint));
      one.soft = one.hard + static_cast<uint32_t>(random.Below(60 * kPoint));
      one.weight = static_cast<uint32_t>(1 + random.Below(random.Below(2) == 0 ? 3 : 60'000));
      room += one.soft - one.hard;
    }
    const auto free = static_cast<uint32_t>(random.Below(kWholeShare));
    uint64_t given = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      std::vector<SoftTenant> others = all;
      others.erase(others.begin() + static_cast<ptrdiff_t>(i));
      const uint32_t share = Of(all[i], free, others);
      CHECK(share >= all[i].hard && share <= all[i].soft);
      given += share - all[i].hard;
    }
    const uint64_t most = std::min<uint64_t>(free, room);
    CHECK(given <= most + 8 && most <= given + 8 * 8);
  }
}

// More than are counted do no harm.
void SoftCrowded() {
  const std::vector<SoftTenant> many(3 * kMostSoftTenants, {kPoint, 100 * kPoint, 1});
  const uint32_t share = Of({kPoint, 100 * kPoint, 1}, 65 * kPoint, many);
  CHECK_EQ(share, 2 * kPoint);
}

// ---- rates ----

// What was charged lately, over about a tenth of a second.
void Rates() {
  static CoreTenant tenant;
  uint64_t now = kStart;
  uint64_t charged = 0;
  const auto run = [&](uint64_t ms, uint32_t percent) {
    for (uint64_t i = 0; i < ms; ++i) {
      now += kMs;
      charged += kMs * percent / 100;
      tenant.charged_ns.store(charged);
      NoteRate(&tenant, 0, now);
    }
    return RateOf(tenant);
  };
  CHECK_EQ(run(1, 0), 0);
  CHECK(run(300, 40) > 39 * kPoint && RateOf(tenant) <= 40 * kPoint);
  // A few looks later it is known that there is no more of it.
  CHECK(run(20, 0) < 21 * kPoint);
  CHECK(run(200, 0) < kPoint);
  // Who comes back counts as what it may have, until it was seen.
  NoteRate(&tenant, 30 * kPoint, now + kMs);
  CHECK_EQ(RateOf(tenant), 30 * kPoint);
  now += kMs;
  CHECK(run(200, 0) < kPoint);
  // After a long pause, and from words that went wrong, nothing is reckoned.
  now += 5 * kSecond;
  charged += kSecond;
  CHECK_EQ(run(1, 0), RateOf(tenant));
  CHECK(RateOf(tenant) < kPoint);
  tenant.rate_ns.store(UINT64_MAX);
  tenant.rate_charged_ns.store(UINT64_MAX);
  tenant.rate.store(UINT64_MAX);
  CHECK(run(300, 40) > 38 * kPoint && RateOf(tenant) <= 42 * kPoint);
  // What was given back is no use of it, and nobody uses more than all.
  tenant.charged_ns.store(0);
  NoteRate(&tenant, 0, now += 30 * kMs);
  CHECK(RateOf(tenant) <= 21 * kPoint);
  tenant.charged_ns.store(kSecond);
  NoteRate(&tenant, 0, now += 30 * kMs);
  CHECK(RateOf(tenant) <= 61 * kPoint);
}

// ---- seats ----

// While one of higher priority has work, nobody below it launches; nor in its pauses, if they are
// short.
void Yielding() {
  Container high("high", 50);
  Container low("low", 50);
  high.Rank(kHighestRank);
  low.Rank(kUsualRank);
  uint64_t now = Meet(&high, &low, kStart);
  CHECK(!low.seat.Yields(now) && !high.seat.Yields(now));
  CHECK(high.seat.HasInferior(now) && !low.seat.HasInferior(now));

  const auto tick = [&](bool has_work, uint64_t ns) {
    now += ns;
    high.Tick(now, has_work);
    low.Tick(now, true);
  };
  tick(true, kMs);
  CHECK(low.seat.Yields(now) && low.seat.HasSuperior(now));
  CHECK(!high.seat.Yields(now) && !high.seat.HasSuperior(now));
  // It ends; what comes at once is the same piece of work.
  tick(false, kMs);
  CHECK(low.seat.Yields(now));
  tick(false, kSwitchNs - 1'000);
  CHECK(low.seat.Yields(now));
  tick(false, 2'000);
  CHECK(!low.seat.Yields(now));
  // It may come again at any moment, for a minute or two.
  CHECK(low.seat.HasSuperior(now));
  low.seat.MoveTurn(now + 59 * kSecond);
  CHECK(low.seat.HasSuperior(now + 59 * kSecond));
  CHECK(!low.seat.HasSuperior(now + 120 * kSecond));
}

// A word that nobody renews, or whose author is gone, holds nobody.
void YieldingToNobody() {
  Container high("high", 50);
  Container low("low", 50);
  high.Rank(kHighestRank);
  low.Rank(kUsualRank);
  uint64_t now = Meet(&high, &low, kStart);
  now += kMs;
  high.Tick(now, true);
  low.Tick(now, true);
  CHECK(low.seat.Yields(now));
  // Nobody looks: for so long.
  CHECK(low.seat.Yields(now + kTuning.silent_ns - 1));
  CHECK(!low.seat.Yields(now + kTuning.silent_ns));
  // It is silent.
  low.Tick(now + 9 * kMs, true);
  CHECK(low.seat.Yields(now + 9 * kMs));
  low.Tick(now + 10 * kMs, true);
  CHECK(!low.seat.Yields(now + 10 * kMs));
  // It is there again, and then it ends.
  now += 20 * kMs;
  high.Tick(now, true);
  low.Tick(now, true);
  CHECK(low.seat.Yields(now));
  high.seat.Leave(now + kMs);
  low.Tick(now + 2 * kMs, true);
  CHECK(!low.seat.Yields(now + 2 * kMs));
}

// Equals do not yield, and three ranks are three.
void Ranks() {
  Container one("one", 30);
  Container two("two", 30);
  uint64_t now = Meet(&one, &two, kStart);
  const auto yields = [&](uint32_t first, uint32_t second) {
    one.Rank(first);
    two.Rank(second);
    for (int i = 0; i < 3; ++i) {
      now += kMs;
      one.Tick(now, true);
      two.Tick(now, true);
    }
    one.Tick(now, true);
    return std::pair{one.seat.Yields(now), two.seat.Yields(now)};
  };
  for (const uint32_t rank : {0u, 1u, 2u}) {
    CHECK((yields(rank, rank) == std::pair{false, false}));
    CHECK(!one.seat.HasInferior(now) && !one.seat.HasSuperior(now));
  }
  CHECK((yields(0, 1) == std::pair{true, false}));
  CHECK((yields(1, 2) == std::pair{true, false}));
  CHECK((yields(2, 0) == std::pair{false, true}));
}

// Whoever yields has its floor in any case: below it, it goes first. Without one it has nothing.
void Floors() {
  for (const uint32_t floor : {0u, 3u, 5u, 20u}) {
    Container high("high", 50);
    Container low("low", 50);
    high.Rank(kHighestRank);
    low.Rank(0, floor * kPoint);
    uint64_t now = Meet(&high, &low, kStart);
    constexpr int kSpanMs = 4000;
    uint64_t ran_ns = 0;
    bool launched = false;
    for (int ms = 0; ms < kSpanMs; ++ms) {
      now += kMs;
      high.Tick(now, true);
      low.Tick(now, true);
      // Each has half of the GPU then, for six milliseconds at a time: so long it may have a turn.
      if (launched) ran_ns += low.seat.Charge(now - kMs / 2, now, now);
      if (ms % 6 == 0) launched = !low.seat.Yields(now);
    }
    const double percent = 100.0 * static_cast<double>(ran_ns) / (1.0 * kSpanMs * kMs);
    // What it may save up in a tenth of a second is in it.
    if (percent < floor || percent > floor + 0.6) fprintf(stderr, "%.2f %%\n", percent);
    CHECK(percent >= floor && percent <= floor + 0.6);
    low.Rank(0, 0);
    for (int ms = 0; ms < 500; ++ms) {
      now += kMs;
      high.Tick(now, true);
      low.Tick(now, true);
      CHECK(ms < 2 || low.seat.Yields(now));
    }
  }
}

// A floor alone is no priority: only who is kept waiting goes first for it.
void FloorsInPeace() {
  Container usual("usual", 50);
  Container low("low", 50);
  usual.Rank(kUsualRank);
  low.Rank(0, 5 * kPoint);
  uint64_t now = Meet(&usual, &low, kStart);
  for (int ms = 0; ms < 50; ++ms) {
    now += kMs;
    low.Tick(now, true);
    usual.Tick(now, false);
    CHECK(!usual.seat.Yields(now) && !usual.seat.HasSuperior(now));
  }
}

// A floor is no more than the share.
void FloorsAboveShares() {
  Container high("high", 50);
  Container low("low", 3);
  high.Rank(kHighestRank);
  low.Rank(0, 90 * kPoint);
  uint64_t now = Meet(&high, &low, kStart);
  for (int ms = 0; ms < 300; ++ms) {
    now += kMs;
    high.Tick(now, true);
    low.Tick(now, true);
    low.own().charged_ns.fetch_add(kMs * 4 / 100);  // 4 %
  }
  CHECK(low.seat.Yields(now));
}

// Any words in a neighbour's place: nobody crashes, and who is not there holds nobody.
void RankGarbage() {
  Container one("one", 50, 100);
  one.Rank(kUsualRank);
  Random random(3);
  uint64_t now = kStart;
  for (int round = 0; round < 3000; ++round) {
    for (CoreTenant& tenant : one.file.region->tenants[0]) {
      if (&tenant == &one.own()) continue;
      for (Word* word = &tenant.key; word != tenant.runs + kCoreRuns; ++word) {
        const uint64_t what = random.Below(4);
        word->store(what == 0   ? 0
                    : what == 1 ? UINT64_MAX
                    : what == 2 ? now - random.Below(kSecond)
                                : random.Next() >> random.Below(64));
      }
    }
    now += kMs;
    one.Tick(now, true);
    const uint32_t share = one.seat.ShareNow(now);
    CHECK(share >= 50 * kPoint && share <= 100 * kPoint);
    one.seat.HasInferior(now);
    one.seat.CalmUntilNs(now);
    if (round % 100 == 0) one.seat.Charge(now - kMs, now, now);
  }
  for (CoreTenant& tenant : one.file.region->tenants[0]) {
    if (&tenant != &one.own()) tenant.beat_ns.store(0);
    tenant.active_ns.store(0);
  }
  one.Tick(now + 10 * kMs, true);
  CHECK(!one.seat.Yields(now + 10 * kMs));
  CHECK_EQ(one.seat.CalmUntilNs(now + 10 * kMs), now + 10 * kMs + kTuning.pause_ns);
}

// Terms that nobody could have set count as the usual ones.
void OddTerms() {
  CHECK_EQ(UnpackTerms(0).rank, kUsualRank);
  CHECK_EQ(UnpackTerms(4).rank, kUsualRank);
  CHECK_EQ(UnpackTerms(255).rank, kUsualRank);
  for (const uint32_t rank : {0u, 1u, 2u}) {
    const SeatTerms terms = UnpackTerms(PackTerms({rank, 1000, 5 * kPoint, 7}));
    CHECK_EQ(terms.rank, rank);
    CHECK_EQ(terms.weight, 1000);
    CHECK_EQ(terms.floor, 5 * kPoint);
    CHECK_EQ(terms.burst_ns, 0);  // nobody else's business
  }
}

// What nobody claims is divided by weight among those who want more than their shares.
void SoftSeats() {
  Container one("one", 20, 100);
  Container two("two", 20, 100);
  Container still("still", 40);
  uint64_t now = kStart;
  const auto run = [&](int ms, uint32_t percent_of_two) {
    for (int i = 0; i < ms; ++i) {
      now += kMs;
      one.own().charged_ns.fetch_add(kMs / 2);
      two.own().charged_ns.fetch_add(kMs * percent_of_two / 100);
      still.Tick(now, false);
      one.Tick(now, true);
      two.Tick(now, percent_of_two != 0);
    }
  };
  // Both use all they may: what is free is 60 points, since the third one is not there.
  run(400, 50);
  const auto is_near = [](uint32_t share, uint32_t other) {
    return share + 300 >= other && share <= other + 300;
  };
  CHECK(is_near(one.seat.ShareNow(now), 50 * kPoint));
  CHECK(is_near(two.seat.ShareNow(now), 50 * kPoint));
  one.Rank(kUsualRank, 0, 300);
  two.Rank(kUsualRank, 0, 100);
  run(400, 50);
  CHECK(is_near(one.seat.ShareNow(now), 65 * kPoint));
  CHECK(is_near(two.seat.ShareNow(now), 35 * kPoint));
  // Where only one of them has a weight the other one's share counts as its weight.
  one.Rank(kUsualRank, 0, 400);
  two.Rank(kUsualRank, 0, 0);
  run(400, 50);
  CHECK(is_near(one.seat.ShareNow(now), 60 * kPoint));
  CHECK(is_near(two.seat.ShareNow(now), 40 * kPoint));
  // One that uses less than its share claims that, and a little more.
  run(400, 8);
  CHECK(one.seat.ShareNow(now) >= 86 * kPoint && one.seat.ShareNow(now) <= 90 * kPoint);
  // One that is not there claims nothing.
  run(400, 0);
  CHECK_EQ(one.seat.ShareNow(now), 100 * kPoint);
  // It comes back: its share is its own again at once.
  run(5, 50);
  CHECK(one.seat.ShareNow(now) <= 80 * kPoint);
  // What was found is not believed for long.
  CHECK_EQ(one.seat.ShareNow(now + 20 * kMs), 20 * kPoint);
}

// Who may have its hard share and no more has no part of what is free; and where more is claimed
// than there is, nothing is.
void HardBesideSoft() {
  for (const uint32_t hard : {20u, 60u}) {
    Container one("one", 20, 100);
    Container two("two", hard);
    Container three("three", hard);
    uint64_t now = kStart;
    for (int i = 0; i < 400; ++i) {
      now += kMs;
      for (Container* other : {&two, &three}) {
        other->own().charged_ns.fetch_add(kMs);
        other->Tick(now, true);
      }
      one.Tick(now, true);
    }
    CHECK_EQ(one.seat.ShareNow(now), (hard == 20 ? 60 : 20) * kPoint);
  }
}

// What an idle container may use at once: 50 ms of the GPU, or as much as it was told, and never
// more than half a second of the clock unless it was told.
void Bursts() {
  const auto credit = [](uint32_t percent, uint64_t burst_ns) {
    Container one("one", percent);
    one.seat.Follow({kUsualRank, 0, 0, burst_ns});
    const uint64_t now = kStart + 100 * kSecond;
    return static_cast<uint64_t>(-one.seat.AheadNs(now));
  };
  CHECK_EQ(credit(100, 0), 50 * kMs);
  CHECK_EQ(credit(50, 0), 100 * kMs);
  CHECK_EQ(credit(10, 0), 500 * kMs);
  CHECK_EQ(credit(1, 0), 500 * kMs);
  CHECK_EQ(credit(50, 10 * kMs), 20 * kMs);
  CHECK_EQ(credit(1, 50 * kMs), 5000 * kMs);
  CHECK_EQ(credit(20, 2 * kSecond), 10 * kSecond);

  // As charges have it, too.
  for (const uint64_t burst_ns : {uint64_t{0}, 10 * kMs, 300 * kMs}) {
    Container one("one", 20);
    one.seat.Follow({kUsualRank, 0, 0, burst_ns});
    const uint64_t now = kStart + 100 * kSecond;
    const uint64_t saved_ns = (burst_ns == 0 ? 50 * kMs : burst_ns) * 5;
    one.seat.Charge(now - 400 * kMs, now, now);
    CHECK_EQ(one.seat.HeldFor(now), 2000 * kMs - saved_ns);
  }
  CHECK_EQ(CreditOf(25'000), 200 * kMs);
  CHECK_EQ(CreditOf(0, kMs), kMs * kWholeShare);
}

// Whether a neighbour has work, or had some a moment ago.
void Calm() {
  Container one("one", 50);
  Container other("other", 50);
  uint64_t now = Meet(&one, &other, kStart);
  CHECK_EQ(one.seat.CalmUntilNs(now), now + kTuning.pause_ns);
  now += kMs;
  other.Tick(now, true);
  one.Tick(now, false);
  CHECK_EQ(one.seat.CalmUntilNs(now), 1);
  now += kMs;
  other.Tick(now, false);
  one.Tick(now, false);
  CHECK_EQ(one.seat.CalmUntilNs(now), 1);
  CHECK_EQ(one.seat.CalmUntilNs(now + kTuning.pause_ns - 1), 1);
  CHECK_EQ(one.seat.CalmUntilNs(now + kTuning.pause_ns), now + 2 * kTuning.pause_ns);
  // It is silent: nobody knows of it, and nobody waits for it.
  now += kMs;
  other.Tick(now, true);
  one.Tick(now, false);
  CHECK_EQ(one.seat.CalmUntilNs(now + 10 * kMs - 1), 1);
  CHECK_EQ(one.seat.CalmUntilNs(now + 10 * kMs), now + 10 * kMs + kTuning.pause_ns);
}

constexpr Case kCases[] = {{"claims", Claims},
                           {"soft_alone", SoftAlone},
                           {"soft_by_weight", SoftByWeight},
                           {"soft_filled", SoftFilled},
                           {"soft_together", SoftTogether},
                           {"soft_crowded", SoftCrowded},
                           {"rates", Rates},
                           {"yielding", Yielding},
                           {"yielding_to_nobody", YieldingToNobody},
                           {"ranks", Ranks},
                           {"floors", Floors},
                           {"floors_above_shares", FloorsAboveShares},
                           {"rank_garbage", RankGarbage},
                           {"odd_terms", OddTerms},
                           {"floors_in_peace", FloorsInPeace},
                           {"soft_seats", SoftSeats},
                           {"hard_beside_soft", HardBesideSoft},
                           {"bursts", Bursts},
                           {"calm", Calm}};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  folder = argv[2];
  return RunCase(kCases, argv[1]);
}
