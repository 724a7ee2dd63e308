// link: state
// Who gets how much of a GPU, in virtual time; fails with the figure that was not as promised.
//
//   core_turns NAME SEED
#include <string.h>

#include "core_world.h"
#include "policy/share.h"

namespace {

using namespace coretest;  // NOLINT(google-build-using-namespace): a test program's own helpers

uint64_t seed = 1;

void Expect(const World& world, uint32_t tenant, double percent, double tolerance = 1.0) {
  const double got = world.Percent(tenant);
  if (got >= percent - tolerance && got <= percent + tolerance) return;
  fprintf(stderr, "tenant %u has %.2f %% instead of %.2f (sum %.2f)\n", tenant, got, percent,
          world.Sum());
  _exit(9);
}

void ExpectAtLeast(const World& world, uint32_t tenant, double percent) {
  if (world.Percent(tenant) >= percent) return;
  fprintf(stderr, "tenant %u has %.2f %%, less than %.2f\n", tenant, world.Percent(tenant),
          percent);
  _exit(9);
}

void ExpectSum(const World& world, double least) {
  if (world.Sum() >= least) return;
  fprintf(stderr, "the sum is %.2f %%, less than %.2f\n", world.Sum(), least);
  _exit(9);
}

void ExpectAtMost(uint64_t ns, uint64_t most_ns, const char* what) {
  if (ns <= most_ns) return;
  fprintf(stderr, "%s: %.3f ms, more than %.3f\n", what, static_cast<double>(ns) / 1e6,
          static_cast<double>(most_ns) / 1e6);
  _exit(9);
}

double Percent(uint64_t part_ns, uint64_t whole_ns) {
  return 100.0 * static_cast<double>(part_ns) / static_cast<double>(whole_ns);
}

// Saturating containers whose shares make a whole, kernels of every length side by side.
void Saturate(const std::vector<uint32_t>& shares, const std::vector<uint64_t>& kernels_ns,
              uint32_t members) {
  constexpr uint64_t kWindow = 5 * kSecond;
  World world(seed);
  uint64_t longest_turn_ns = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    const uint32_t tenant = world.AddTenant(shares[i]);
    const uint64_t kernel_ns = kernels_ns[i % kernels_ns.size()];
    // Two kernels of each process, however long, and a quantum.
    longest_turn_ns = std::max(longest_turn_ns, members * 2 * kernel_ns + kTurnQuantumNs);
    for (uint32_t member = 0; member < members; ++member) {
      world.AddProcess(tenant, {.kernel_ns = kernel_ns});
    }
  }
  world.RunFor(kSecond);
  world.Reset();
  world.RunFor(kWindow);
  // A point, and what one turn more or less in the window makes.
  const double tolerance = 1.0 + Percent(longest_turn_ns - kTurnQuantumNs, kWindow);
  for (uint32_t tenant = 0; tenant < shares.size(); ++tenant) {
    Expect(world, tenant, shares[tenant], tolerance);
  }
  ExpectSum(world, 99.0);
  CHECK_EQ(world.launches_without_turn(), 0);
}

void Saturating() {
  for (const auto& shares : std::vector<std::vector<uint32_t>>{
           {30, 70}, {50, 50}, {25, 25, 25, 25}, {10, 90}, {5, 15, 80}}) {
    for (const auto& kernels_ns : std::vector<std::vector<uint64_t>>{
             {50 * kUs}, {500 * kUs}, {5 * kMs}, {500 * kUs, 5 * kMs}, {100 * kUs, 30 * kMs}}) {
      Saturate(shares, kernels_ns, 1);
      Saturate(shares, kernels_ns, 3);
    }
  }
}

// More than there is: in proportion to the shares.
void TooMuch() {
  World world(seed);
  for (const uint32_t percent : {50, 50, 100}) {
    world.AddProcess(world.AddTenant(percent), {.kernel_ns = 500 * kUs});
  }
  world.RunFor(kSecond);
  world.Reset();
  world.RunFor(5 * kSecond);
  Expect(world, 0, 25);
  Expect(world, 1, 25);
  Expect(world, 2, 50);
  ExpectSum(world, 99.0);
}

// Who pauses as long as it works costs nobody anything, and loses little by waiting for its turn.
void HalfIdle() {
  for (const uint64_t phase_ns : {kMs, 5 * kMs, 50 * kMs, 500 * kMs}) {
    World world(seed);
    const uint32_t idle = world.AddTenant(50);
    const uint32_t busy = world.AddTenant(50);
    world.AddProcess(
        idle, {.kernel_ns = 500 * kUs, .batch = phase_ns / (500 * kUs), .pause_ns = phase_ns});
    world.AddProcess(busy, {.kernel_ns = 500 * kUs});
    world.RunFor(kSecond);
    world.Reset();
    world.RunFor(10 * kSecond);
    CHECK(world.Percent(idle) >= 24.0);
    Expect(world, busy, 50);
  }
}

// Who wants little, and often, does not wait for a whole quantum of a saturating neighbour each
// time, and costs it nothing.
void Light() {
  struct Row {
    uint32_t busy_percent, light_percent;
    uint64_t burst_ns, pause_ns;
    double busy_least, light_least;
  };
  // With whole quanta the light ones had 41, 9.4, 4.7 and 3.6 %. The last two want more than there
  // is: five parts and one.
  for (const Row& row :
       {Row{50, 50, 5 * kMs, 5 * kMs, 49.0, 45.0}, Row{80, 20, kMs, 4 * kMs, 79.0, 12.0},
        Row{90, 10, kMs, 9 * kMs, 89.0, 6.0}, Row{100, 20, kMs, 4 * kMs, 82.0, 9.0}}) {
    World world(seed);
    const uint32_t light = world.AddTenant(row.light_percent);
    const uint32_t busy = world.AddTenant(row.busy_percent);
    world.AddProcess(
        light,
        {.kernel_ns = 500 * kUs, .batch = row.burst_ns / (500 * kUs), .pause_ns = row.pause_ns});
    world.AddProcess(busy, {.kernel_ns = 500 * kUs});
    world.RunFor(kSecond);
    world.Reset();
    world.RunFor(10 * kSecond);
    ExpectAtLeast(world, busy, row.busy_least);
    ExpectAtLeast(world, light, row.light_least);
    // Two for each turn of the light one, and one of those in a short turn and a burst.
    CHECK(world.switches() <= 2 * 10 * kSecond / (kShortTurnNs + row.burst_ns));
  }
}

// What nobody uses goes to whoever may: up within a second, and down again.
void SoftShare() {
  World world(seed);
  const uint32_t soft = world.AddTenant(30, 100);
  const uint32_t other = world.AddTenant(70);
  world.AddProcess(soft, {.kernel_ns = 500 * kUs});
  // 2100 ms of work take three seconds at its share.
  world.AddProcess(other, {.kernel_ns = 500 * kUs, .batch = 4200, .pause_ns = 3 * kSecond});
  for (int round = 0; round < 3; ++round) {
    world.RunFor(kSecond);
    world.Reset();
    world.RunFor(1900 * kMs);
    // A point, and a quantum more or less in the window.
    Expect(world, soft, 30, 2.3);
    Expect(world, other, 70, 2.3);
    world.RunFor(1100 * kMs);
    world.Reset();
    world.RunFor(1900 * kMs);
    Expect(world, soft, 100);
    world.RunFor(100 * kMs);
  }
}

// Idleness is neither saved up nor held against anybody.
void ComingBack() {
  World world(seed);
  const uint32_t first = world.AddTenant(50, 100);
  const uint32_t second = world.AddTenant(50, 100);
  world.AddProcess(first, {.kernel_ns = 500 * kUs});
  world.RunFor(20 * kSecond);
  world.AddProcess(second, {.kernel_ns = 500 * kUs});
  for (int window = 0; window < 10; ++window) {
    world.Reset();
    world.RunFor(200 * kMs);
    // A quantum and a burst more or less in the window.
    Expect(world, first, 50, 15);
    Expect(world, second, 50, 15);
  }
}

// Holders and waiters that die or stop: the others go on, nobody launches out of turn.
void Storm() {
  for (const uint64_t kernel_ns : {200 * kUs, 2 * kMs}) {
    World world(seed);
    Random& random = world.random();
    for (const uint32_t percent : {20, 20, 30, 30}) {
      const uint32_t tenant = world.AddTenant(percent);
      for (int member = 0; member < 3; ++member) world.AddProcess(tenant, {.kernel_ns = kernel_ns});
    }
    for (int event = 0; event < 300; ++event) {
      world.RunFor(random.Below(60 * kMs));
      const auto index = static_cast<uint32_t>(random.Below(world.process_count()));
      Process& process = world.process(index);
      if (!process.alive) continue;
      if (process.stopped) {
        world.Continue(index);
      } else if (random.Below(2) == 0) {
        world.Stop(index);
      } else {
        world.Kill(index);
        world.AddProcess(process.tenant, {.kernel_ns = kernel_ns});
      }
    }
    ExpectAtMost(world.longest_idle_ns(), 50 * kMs, "the device idled");
    CHECK_EQ(world.launches_without_turn(), world.raced_launches());
    for (uint32_t index = 0; index < world.process_count(); ++index) {
      if (world.process(index).stopped) world.Continue(index);
    }
    // Until what some were owed is paid back.
    world.RunFor(2 * kSecond);
    world.Reset();
    world.RunFor(5 * kSecond);
    const double shares[] = {20, 20, 30, 30};
    // A point, and one turn (a quantum, and what three processes have queued) more or less.
    for (uint32_t tenant = 0; tenant < 4; ++tenant) Expect(world, tenant, shares[tenant], 1.7);
    ExpectSum(world, 99.0);
  }
}

// The holder stops or dies, with something outstanding or with nothing.
void LostHolder() {
  for (const bool dies : {false, true}) {
    for (const uint64_t batch : {uint64_t{1}, UINT64_MAX}) {
      for (uint64_t moment = 0; moment < 100; ++moment) {
        World world(seed + moment);
        const uint32_t lost = world.AddTenant(50);
        const uint32_t other = world.AddTenant(50);
        const uint32_t process =
            world.AddProcess(lost, {.kernel_ns = 300 * kUs, .batch = batch, .pause_ns = 400 * kUs});
        world.AddProcess(other, {.kernel_ns = 300 * kUs});
        world.RunFor(200 * kMs);
        while (UnpackTurn(world.region()->rows[0].turn.load()).tenant != lost)
          world.RunFor(7 * kUs);
        world.RunFor(moment * 37 * kUs);
        if (dies) {
          world.Kill(process);
        } else {
          world.Stop(process);
        }
        world.Reset();
        world.RunFor(kSecond);
        ExpectAtMost(world.longest_idle_ns(), 50 * kMs, "the device idled");
        ExpectAtMost(world.longest_wait_ns(), 50 * kMs, "somebody waited");
        // What it was owed when it was left alone comes on top: a quantum, and the burst.
        Expect(world, other, 50, 2.5);
      }
    }
  }
}

// A waiter that is next dies or stops before it has the turn, or just when it gets it.
void LostWaiter() {
  for (uint64_t moment = 0; moment < 200; ++moment) {
    World world(seed + moment);
    uint32_t tenants[3];
    uint32_t processes[3];
    for (int i = 0; i < 3; ++i) {
      tenants[i] = world.AddTenant(i == 0 ? 20 : 40);
      processes[i] = world.AddProcess(tenants[i], {.kernel_ns = 300 * kUs});
    }
    world.RunFor(100 * kMs + moment * 411 * kUs);
    if (moment % 2 == 0) {
      world.Kill(processes[0]);
    } else {
      world.Stop(processes[0]);
    }
    world.Reset();
    world.RunFor(kSecond);
    ExpectAtMost(world.longest_idle_ns(), 50 * kMs, "the device idled");
    Expect(world, tenants[1], 40, 2.5);
    Expect(world, tenants[2], 40, 2.5);
  }
}

// Every word anything: nobody hangs, nobody divides by zero, and all have their shares again soon.
void Garbage() {
  for (int round = 0; round < 10; ++round) {
    World world(seed + static_cast<uint64_t>(round));
    Random& random = world.random();
    for (const uint32_t percent : {30, 70}) {
      const uint32_t tenant = world.AddTenant(percent);
      for (int i = 0; i < 2; ++i) world.AddProcess(tenant, {.kernel_ns = 500 * kUs});
    }
    world.RunFor(100 * kMs);
    CoreRegion* region = world.region();
    const auto spoil = [&random](void* memory, size_t bytes) {
      auto* words = static_cast<Word*>(memory);
      for (size_t i = 0; i < bytes / sizeof(Word); ++i)
        words[i].store(random.Next() >> random.Below(64));
    };
    spoil(&region->rows[0], sizeof region->rows[0]);
    spoil(region->tenants[0], sizeof region->tenants[0]);
    spoil(region->members[0], sizeof(CoreMember) * 200);
    spoil(region->processes, sizeof(ProcessRecord) * 200);
    // What looks like a debt is one.
    for (CoreTenant& tenant : region->tenants[0]) {
      if (HeldForNs(tenant.due_ns.load(), world.now_ns()) > 0) tenant.due_ns.store(0);
    }
    region->header.high_member.store(round % 2 == 0 ? 0 : static_cast<uint32_t>(random.Next()));
    // What only its owner writes is written again within a second; the rest must heal by itself.
    world.RunFor(3 * kSecond);
    world.Reset();
    world.RunFor(3 * kSecond);
    Expect(world, 0, 30, 2);
    Expect(world, 1, 70, 2);
  }
}

// A lead of years, or a device's virtual time that went wrong, keeps nobody away for long, though
// nobody ever pauses and there are more shares than there is GPU.
void WildLeads() {
  for (const uint64_t wild_ns : {uint64_t{1} << 60, UINT64_MAX - (uint64_t{1} << 60)}) {
    for (const bool of_device : {false, true}) {
      World world(seed);
      for (const uint32_t percent : {40, 40, 100}) {
        world.AddProcess(world.AddTenant(percent), {.kernel_ns = 500 * kUs});
      }
      world.RunFor(kSecond);
      CoreRegion* region = world.region();
      Word& spoiled = of_device ? region->rows[0].virtual_ns : region->tenants[0][1].served_ns;
      spoiled.fetch_add(wild_ns);
      world.RunFor(2 * kMostLeadNs);
      world.Reset();
      world.RunFor(5 * kSecond);
      Expect(world, 0, 100.0 * 40 / 180, 1.7);
      Expect(world, 1, 100.0 * 40 / 180, 1.7);
      Expect(world, 2, 100.0 * 100 / 180, 1.7);
    }
  }
}

constexpr Case kCases[] = {
    {"saturating", Saturating}, {"too_much", TooMuch},       {"half_idle", HalfIdle},
    {"light", Light},           {"soft_share", SoftShare},   {"coming_back", ComingBack},
    {"storm", Storm},           {"lost_holder", LostHolder}, {"lost_waiter", LostWaiter},
    {"garbage", Garbage},       {"wild_leads", WildLeads}};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  seed = strtoull(argv[2], nullptr, 10);
  return RunCase(kCases, argv[1]);
}
