// link: state
// flags: -pthread
// Threads on one process's account.
//
//   state_threads random FOLDER THREADS OPERATIONS     any sizes: what is held never passes the
//                                                      limit, and nothing is left at the end
//   state_threads last FOLDER THREADS ROUNDS           all ask at once for the few places left:
//                                                      exactly as many get one as there are
//   state_threads holdings FOLDER THREADS OPERATIONS   every holding is taken exactly once
#include <string.h>

#include <atomic>
#include <thread>
#include <vector>

#include "state/holdings.h"
#include "support/state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint64_t kLimitBytes = 64 * kMiB;

template <typename Body>
void InThreads(int count, Body body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

// What is counted when every process is at rest. A rebuild of the total may have counted what was
// being granted, which then came to it as well; the next one ends that.
uint64_t UsedAtRest(Member* member) {
  member->account.Reclaim(Effort::kThorough);
  return member->account.UsedBytes();
}

void DoRandom(const char* folder, int threads, uint64_t operations) {
  Member* member = NewMember(folder, kLimitBytes);
  std::atomic<uint64_t> held_bytes{0};
  InThreads(threads, [&](int index) {
    Random random(static_cast<uint64_t>(index) + 1);
    std::vector<uint64_t> held;
    for (uint64_t i = 0; i < operations; ++i) {
      if (held.empty() || random.Below(2) == 0) {
        const uint64_t bytes = 1 + random.Below(random.Below(3) == 0 ? 6 * kMiB : kMiB);
        if (!member->account.Reserve(Whole(bytes))) continue;
        held.push_back(bytes);
        const uint64_t charge = Whole(bytes);
        CHECK(held_bytes.fetch_add(charge) + charge <= kLimitBytes);
      } else {
        std::swap(held[random.Below(held.size())], held.back());
        const uint64_t bytes = held.back();
        held.pop_back();
        held_bytes.fetch_sub(Whole(bytes));
        member->account.Release(Whole(bytes));
      }
    }
    for (const uint64_t bytes : held) {
      held_bytes.fetch_sub(Whole(bytes));
      member->account.Release(Whole(bytes));
    }
  });
  CHECK_EQ(UsedAtRest(member), 0);
}

// `unit`: asked by each thread; `places`: how many fit.
void DoLast(const char* folder, int threads, uint64_t rounds) {
  struct Case {
    uint64_t unit_bytes;
    uint64_t places;
  };
  constexpr Case kCases[] = {{kLimitBytes, 1}, {20 * kMiB, 3}, {4 * kMiB, 16}, {kMiB, 32}};
  Member* member = NewMember(folder, kLimitBytes);
  for (uint64_t round = 0; round < rounds; ++round) {
    const Case& now = kCases[round % 4];
    // Small ones need more askers than places to be worth a round.
    const uint64_t taken = now.places > 8 ? now.places - 4 : 0;
    for (uint64_t i = 0; i < taken; ++i) CHECK(member->account.Reserve(Whole(now.unit_bytes)));
    std::atomic<uint64_t> granted{0};
    std::atomic<int> waiting{threads};
    InThreads(threads, [&](int) {
      waiting.fetch_sub(1);
      while (waiting.load() > 0) sched_yield();
      if (member->account.Reserve(Whole(now.unit_bytes))) granted.fetch_add(1);
    });
    const uint64_t room = now.places - taken;
    const auto askers = static_cast<uint64_t>(threads);
    CHECK_EQ(granted.load(), askers < room ? askers : room);
    for (uint64_t i = 0; i < taken + granted.load(); ++i) {
      member->account.Release(Whole(now.unit_bytes));
    }
    CHECK_EQ(UsedAtRest(member), 0);
  }
}

void DoHoldings(int threads, uint64_t operations) {
  auto* holdings = static_cast<Holdings*>(MapWipedOnFork(sizeof(Holdings)));
  std::atomic<uint64_t> put{0};
  std::atomic<uint64_t> taken{0};
  constexpr uint64_t kKeys = 512;
  std::vector<std::atomic<bool>> free_keys(kKeys);
  for (auto& is_free : free_keys) is_free.store(true);
  InThreads(threads, [&](int index) {
    Random random(static_cast<uint64_t>(index) + 77);
    for (uint64_t i = 0; i < operations; ++i) {
      const uint64_t key = random.Below(kKeys);
      Holding found = {};
      bool expected = true;
      if (random.Below(2) == 0) {
        if (!free_keys[key].compare_exchange_strong(expected, false)) continue;
        CHECK(holdings->Put({.key = key * 4096, .bytes = key, .kind = HoldingKind::kAddress}));
        put.fetch_add(1);
      } else if (holdings->Take(HoldingKind::kAddress, key * 4096, &found)) {
        CHECK_EQ(found.bytes, key);
        taken.fetch_add(1);
        CHECK(!free_keys[key].exchange(true));
      }
    }
  });
  holdings->TakeWhere([](const Holding&) { return true; },
                      [&](const Holding&) { taken.fetch_add(1); });
  CHECK_EQ(put.load(), taken.load());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const int threads = atoi(argv[3]);
  const uint64_t amount = strtoull(argv[4], nullptr, 10);
  if (strcmp(argv[1], "random") == 0) DoRandom(argv[2], threads, amount);
  if (strcmp(argv[1], "last") == 0) DoLast(argv[2], threads, amount);
  if (strcmp(argv[1], "holdings") == 0) DoHoldings(threads, amount);
  printf("{\"done\": 1}\n");
  return 0;
}
