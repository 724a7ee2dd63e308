// link: state The arithmetic of shares and of busy time against models that are too slow and too
// big to be wrong.
//
//   core_share OPERATIONS SEED
#include <algorithm>
#include <bitset>
#include <vector>

#include "policy/gpu_time.h"
#include "policy/share.h"
#include "support/state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers
using Big = unsigned __int128;

constexpr uint64_t kMs = 1'000'000;

// Every amount that lies beside an edge, and random ones of every length.
uint64_t OddAmount(Random* random) {
  static constexpr uint64_t kEdges[] = {0, 1, 2, kWholeShare, kMostDebtNs, UINT64_MAX};
  if (random->Below(4) == 0) {
    return kEdges[random->Below(6)] + random->Below(3) - 1;
  }
  return random->Next() >> random->Below(64);
}

// DueAfter, as its contract says it, in numbers that cannot overflow.
uint64_t ModelDueAfter(uint64_t due, uint64_t now, uint64_t busy, uint32_t share, uint64_t burst) {
  const Big latest = std::min<Big>(Big{now} + kMostDebtNs, UINT64_MAX);
  const Big floor = now > burst ? now - burst : 0;
  const Big start = std::max<Big>(due > latest ? now : due, floor);
  const Big safe_share = std::clamp<uint32_t>(share, 1, kWholeShare);
  const Big cost = (Big{busy} * kWholeShare + safe_share - 1) / safe_share;
  return static_cast<uint64_t>(std::min(start + cost, latest));
}

void AnyAmounts(Random* random) {
  const uint64_t due = OddAmount(random);
  const uint64_t now = OddAmount(random);
  const uint64_t busy = OddAmount(random);
  const uint64_t burst = OddAmount(random);
  const auto share = static_cast<uint32_t>(random->Below(8) == 0 ? OddAmount(random)
                                                                 : 1 + random->Below(kWholeShare));
  CHECK_EQ(DueAfter(due, now, busy, share, burst), ModelDueAfter(due, now, busy, share, burst));
  CHECK(HeldForNs(due, now) <= kMostDebtNs);
}

// Launches that go whenever they may, of any length: over every stretch that begins with a launch
// the container is busy for at most share x (elapsed + burst), and one charge.
void AnySequence(Random* random) {
  const auto share = static_cast<uint32_t>(1 + random->Below(kWholeShare));
  const uint64_t longest = uint64_t{1} << (8 + random->Below(24));
  uint64_t now = 1 + random->Below(kMs * 1000);
  uint64_t due = random->Below(2) * now;
  Big busy_sum = 0;
  uint64_t longest_busy = 0;
  const uint64_t begin = now;
  const Big debt_before = due > now ? due - now : 0;
  for (int step = 0; step < 200; ++step) {
    now += HeldForNs(due, now);
    if (random->Below(8) == 0) now += random->Below(longest * 4);
    CHECK_EQ(HeldForNs(due, now), 0);
    const uint64_t busy = random->Below(longest);
    longest_busy = std::max(longest_busy, busy);
    busy_sum += busy;
    now += busy;
    due = DueAfter(due, now, busy, share, CreditOf(share));
    const Big allowed = Big{now - begin + CreditOf(share)} * share;
    CHECK(busy_sum * kWholeShare + debt_before * share <=
          allowed + Big{longest_busy} * kWholeShare);
  }
  // Who never pauses gets its share, too: rounding up costs it a nanosecond a charge.
  CHECK(due >= now || now - due <= CreditOf(share));
}

// Reports of overlapping intervals in any order, within what gaps remember, against one bit per
// step.
class BusyModel {
 public:
  explicit BusyModel(Random* random) : random_(random) {}

  void Run() {
    static CoreTenant tenant;
    for (Word* word = &tenant.key; word != tenant.gaps + kCoreGaps; ++word) word->store(0);
    std::vector<bool> seen(kSteps);
    uint64_t frontier = kSteps / 2;
    uint64_t gaps = 0;
    AddBusy(&tenant, At(frontier - 1), At(frontier), At(frontier));
    for (uint64_t step = 0; step < frontier - 1; ++step) seen[step] = step < frontier - 1024;
    seen[frontier - 1] = true;
    for (int report = 0; report < 40; ++report) {
      uint64_t begin = frontier - 900 + random_->Below(1000);
      uint64_t end = begin + 1 + random_->Below(100);
      // One gap per report at most comes to be: stay within what is remembered.
      if (begin > frontier || IsSplitting(seen, begin, end, frontier)) ++gaps;
      if (gaps >= kCoreGaps) return;
      uint64_t fresh = 0;
      for (uint64_t step = begin; step < end; ++step) {
        fresh += seen[step] ? 0 : 1;
        seen[step] = true;
      }
      frontier = std::max(frontier, end);
      CHECK_EQ(AddBusy(&tenant, At(begin), At(end), At(frontier)), fresh * kGapStepNs);
      CHECK_EQ(AddBusy(&tenant, At(begin), At(end), At(frontier)), 0);
    }
  }

 private:
  static constexpr uint64_t kSteps = 1 << 15;
  static uint64_t At(uint64_t step) { return (step + (1 << 24)) * kGapStepNs; }

  static bool IsSplitting(const std::vector<bool>& seen, uint64_t begin, uint64_t end,
                          uint64_t frontier) {
    return end < frontier && (!seen[begin - 1] || !seen[begin] || !seen[end]);
  }

  Random* random_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const uint64_t operations = strtoull(argv[1], nullptr, 10);
  Random random(strtoull(argv[2], nullptr, 10));
  for (uint64_t i = 0; i < operations; ++i) {
    AnyAmounts(&random);
    if (i % 64 == 0) AnySequence(&random);
    if (i % 16 == 0) BusyModel(&random).Run();
  }
  printf("ok\n");
  return 0;
}
