// link: state
// Who gets how much of a GPU, in virtual time; fails with the figure that was not as promised.
//
//   core_turns NAME SEED
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/tuning.h"
#include "core_world.h"
#include "policy/share.h"
#include "state/notice_board.h"
#include "state/owner.h"

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

// Saturating containers whose shares make a whole, kernels of every length side by side: they take
// turns, so that changes of hands cost little.
void Saturate(const std::vector<uint32_t>& shares, const std::vector<uint64_t>& kernels_ns,
              uint32_t members) {
  constexpr uint64_t kWindow = 5 * kSecond;
  World world(seed);
  uint64_t longest_turn_ns = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    const uint32_t tenant = world.AddTenant(shares[i]);
    const uint64_t kernel_ns = kernels_ns[i % kernels_ns.size()];
    // Two kernels of each process, however long, and a quantum.
    longest_turn_ns = std::max(longest_turn_ns, members * 2 * kernel_ns + kTuning.turn_quantum_ns);
    for (uint32_t member = 0; member < members; ++member) {
      world.AddProcess(tenant, {.kernel_ns = kernel_ns});
    }
  }
  world.RunFor(kSecond);
  world.Reset();
  world.RunFor(kWindow);
  // A point, and what one turn more or less in the window makes.
  const double tolerance = 1.0 + Percent(longest_turn_ns - kTuning.turn_quantum_ns, kWindow);
  for (uint32_t tenant = 0; tenant < shares.size(); ++tenant) {
    Expect(world, tenant, shares[tenant], tolerance);
  }
  ExpectSum(world, 98.8);
  CHECK_EQ(world.launches_without_turn(), 0);
}

void SaturateAll(uint32_t members) {
  for (const auto& shares : std::vector<std::vector<uint32_t>>{
           {30, 70}, {50, 50}, {25, 25, 25, 25}, {10, 90}, {5, 15, 80}}) {
    for (const auto& kernels_ns : std::vector<std::vector<uint64_t>>{
             {50 * kUs}, {500 * kUs}, {5 * kMs}, {500 * kUs, 5 * kMs}, {100 * kUs, 30 * kMs}}) {
      Saturate(shares, kernels_ns, members);
    }
  }
}

void Saturating() { SaturateAll(1); }
void SaturatingMembers() { SaturateAll(3); }

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
  ExpectSum(world, 98.8);
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
        world.RunFor(300 * kMs);
        // Who waits for each of its kernels takes no turns: it may have one running.
        const uint64_t deadline_ns = world.now_ns() + kSecond;
        while (batch != 1 && !world.Holds(lost)) {
          CHECK(world.now_ns() < deadline_ns);
          world.RunFor(7 * kUs);
        }
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
    const auto spoil = [&random](void* memory, size_t bytes) {
      auto* words = static_cast<Word*>(memory);
      for (size_t i = 0; i < bytes / sizeof(Word); ++i)
        words[i].store(random.Next() >> random.Below(64));
    };
    for (const uint32_t tenant : {0u, 1u}) {
      TimeBytes* region = world.region(tenant);
      spoil(&region->rows[0], sizeof region->rows[0]);
      spoil(region->tenants[0], sizeof region->tenants[0]);
      spoil(region->members[0], sizeof(CoreMember) * 200);
      spoil(region->processes, sizeof(ProcessRecord) * 200);
      // What looks like a debt is one.
      for (CoreTenant& own : region->tenants[0]) {
        if (HeldForNs(own.due_ns.load(), world.now_ns()) > 0) own.due_ns.store(0);
      }
      region->header.high_member.store(round % 2 == 0 ? 0 : static_cast<uint32_t>(random.Next()));
    }
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
      TimeBytes* region = world.region(1);
      Word& spoiled =
          of_device ? region->rows[0].virtual_ns : region->tenants[0][kOwnTenant].served_ns;
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

// ---- neighbours that follow no rules ----

// A file in the node folder that is some notice's name but for the author, held as a living one is.
class Intruder {
 public:
  Intruder(const World& world, uint64_t author) {
    for (const auto& entry : std::filesystem::directory_iterator(world.node())) {
      const std::string name = entry.path().string();
      const int fd = open(name.c_str(), O_RDONLY);
      const bool is_whole = pread(fd, &notice_, sizeof notice_, 0) == sizeof notice_;
      close(fd);
      path_ = name.substr(0, name.size() - 16);
      if (is_whole) break;
    }
    char digits[17];
    snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(author));
    path_ += digits;
    fd_ = open(path_.c_str(), O_RDWR | O_CREAT, 0644);
    CHECK(fd_ >= 0 && fchmod(fd_, 0644) == 0 && SetLock(fd_, 0, F_RDLCK));
    notice_.author = author;
  }
  ~Intruder() { close(fd_); }
  Intruder(const Intruder&) = delete;
  Intruder& operator=(const Intruder&) = delete;

  Notice* notice() { return &notice_; }
  void Say(uint64_t now_ns) {
    notice_.beat_ns = now_ns;
    notice_.check = CheckOf(notice_);
    CHECK(pwrite(fd_, &notice_, sizeof notice_, 0) == sizeof notice_);
  }

 private:
  std::string path_;
  int fd_;
  Notice notice_ = {};
};

// Two containers that follow the rules, beside `disturb`: none waits for longer than is promised,
// and both have their shares nearly all of the time.
template <typename Begin>
void Beside(Begin begin, double least_part, uint64_t window_ns = 30 * kSecond) {
  World world(seed);
  for (const uint32_t percent : {30, 60}) {
    world.AddProcess(world.AddTenant(percent), {.kernel_ns = 500 * kUs});
  }
  world.RunFor(kSecond);
  std::vector<std::unique_ptr<Intruder>> intruders;
  begin(&world, &intruders);
  world.Reset();
  world.RunFor(window_ns);
  ExpectAtMost(world.longest_wait_ns(), kTuning.most_turn_wait_ns + 100 * kMs, "somebody waited");
  ExpectAtLeast(world, 0, 30 * least_part);
  ExpectAtLeast(world, 1, 60 * least_part);
}

using Intruders = std::vector<std::unique_ptr<Intruder>>;

// It has the turn, now and always, and works without an end.
void Usurper() {
  for (const uint64_t each_ns : {kMs, 20 * kMs}) {
    Beside(
        [each_ns](World* world, Intruders* intruders) {
          intruders->push_back(std::make_unique<Intruder>(*world, 7));
          world->Each(each_ns, [world, intruder = intruders->back().get()] {
            Notice* notice = intruder->notice();
            notice->began_us = world->now_ns() / kUs;
            notice->holder = 7;
            notice->wants_ns = notice->active_ns = world->now_ns();
            notice->idle_ns = 0;
            notice->ends_ns = world->now_ns() + 500 * kMs;
            intruder->Say(world->now_ns());
          });
        },
        0.8);
  }
}

// Turns of years ahead, and moments that never were; they are not believed.
void FromTheFuture() {
  for (const uint64_t began_us : {UINT64_MAX, UINT64_MAX >> 9, uint64_t{1} << 54}) {
    Beside(
        [began_us](World* world, Intruders* intruders) {
          intruders->push_back(std::make_unique<Intruder>(*world, 7));
          world->Each(kMs, [world, began_us, intruder = intruders->back().get()] {
            Notice* notice = intruder->notice();
            notice->began_us = began_us;
            notice->holder = 7;
            notice->wants_ns = notice->active_ns = notice->due_ns = UINT64_MAX;
            notice->idle_ns = notice->ends_ns = notice->served_ns = UINT64_MAX;
            notice->shares = notice->quantum_ns = UINT64_MAX;
            intruder->Say(world->now_ns());
          });
        },
        0.8);
  }
}

// It always wants the turn, says that it was never served, and leaves what it gets unused.
void Dog() {
  Beside(
      [](World* world, Intruders* intruders) {
        intruders->push_back(std::make_unique<Intruder>(*world, 7));
        world->Each(kMs, [world, intruder = intruders->back().get()] {
          Notice* notice = intruder->notice();
          notice->wants_ns = notice->active_ns = world->now_ns();
          notice->idle_ns = 1;
          notice->due_ns = 0;
          notice->served_ns = 0;
          notice->shares = PackShares({kWholeShare, kWholeShare});
          intruder->Say(world->now_ns());
        });
      },
      0.8);
}

// As many as nobody has places for, each with random words in a sound notice.
void Hundred() {
  Beside(
      [](World* world, Intruders* intruders) {
        for (uint64_t i = 0; i < 100; ++i) {
          intruders->push_back(std::make_unique<Intruder>(*world, 1000 + i));
        }
        world->Each(kMs, [world, intruders] {
          Random& random = world->random();
          Intruder& intruder = *(*intruders)[random.Below(intruders->size())];
          Notice* notice = intruder.notice();
          for (uint64_t* word = &notice->began_us; word != &notice->check; ++word) {
            *word = random.Below(2) == 0 ? random.Next() >> random.Below(64)
                                         : world->now_ns() - random.Below(kSecond);
          }
          if (random.Below(2) == 0) notice->began_us = world->now_ns() / kUs;
          if (random.Below(2) == 0) notice->holder = notice->author;
          intruder.Say(world->now_ns());
        });
      },
      0.2, 10 * kSecond);
}

// Containers of one user, which may write to each other's notices: bytes, cuts, other kinds of
// files under the same names, and none at all.
void Vandal() {
  Beside(
      [](World* world, Intruders*) {
        world->Each(3 * kMs, [world] {
          Random& random = world->random();
          for (const auto& entry : std::filesystem::directory_iterator(world->node())) {
            const std::string path = entry.path().string();
            const uint64_t what = random.Below(200);
            char noise[200];
            for (char& byte : noise) byte = static_cast<char>(random.Next());
            const int fd = what < 20 ? open(path.c_str(), O_RDWR | O_NONBLOCK | O_NOFOLLOW) : -1;
            // What is no file any more refuses both.
            if (fd >= 0 && what < 10) {
              if (pwrite(fd, noise, 1 + random.Below(sizeof noise), 0) < 0) errno = 0;
            } else if (fd >= 0) {
              if (ftruncate(fd, static_cast<off_t>(random.Below(200))) != 0) errno = 0;
            } else if (what >= 20 && what < 24) {
              std::filesystem::remove_all(path);
              if (what == 21) CHECK(mkfifo(path.c_str(), 0644) == 0);
              if (what == 22) CHECK(symlink("/dev/zero", path.c_str()) == 0);
              if (what == 23) CHECK(mkdir(path.c_str(), 0755) == 0);
            }
            if (fd >= 0) close(fd);
            if (what == 30) std::filesystem::remove_all(path);
          }
        });
      },
      0.8);
}

// A container whose threads run for a tenth of the time keeps its claim, and the GPU does not wait
// for it. Its share is what it can launch then.
void Throttled() {
  World world(seed);
  const uint32_t slow = world.AddTenant(50);
  const uint32_t fast = world.AddTenant(50, 100);
  const uint32_t process = world.AddProcess(slow, {.kernel_ns = 500 * kUs});
  world.AddProcess(fast, {.kernel_ns = 500 * kUs});
  world.Throttle(process, {10 * kMs, 100 * kMs});
  world.RunFor(kSecond);
  world.Reset();
  world.RunFor(10 * kSecond);
  if (getenv("GPUFENCE_SHOW") != nullptr) {
    fprintf(stderr, "%.2f %.2f idle %.2f\n", world.Percent(slow), world.Percent(fast),
            static_cast<double>(world.longest_idle_ns()) / 1e6);
  }
  ExpectAtLeast(world, slow, 7.0);
  ExpectAtMost(world.longest_idle_ns(), 15 * kMs, "the device idled");
}

constexpr Case kCases[] = {{"usurper", Usurper},
                           {"from_the_future", FromTheFuture},
                           {"dog", Dog},
                           {"hundred", Hundred},
                           {"vandal", Vandal},
                           {"throttled", Throttled},
                           {"saturating", Saturating},
                           {"saturating_members", SaturatingMembers},
                           {"too_much", TooMuch},
                           {"soft_share", SoftShare},
                           {"coming_back", ComingBack},
                           {"storm", Storm},
                           {"lost_holder", LostHolder},
                           {"lost_waiter", LostWaiter},
                           {"garbage", Garbage},
                           {"wild_leads", WildLeads}};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  seed = strtoull(argv[2], nullptr, 10);
  return RunCase(kCases, argv[1]);
}
