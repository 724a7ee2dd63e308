// link: state
// flags: -pthread
// TakeWhere takes all that matches and was there when it began, whatever others put and take while
// it hands one to its caller, which is when its lock is open.
//
//   state_holdings steps
//   state_holdings random SEED
//   state_holdings threads COUNT ROUNDS
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "state/holdings.h"
#include "support/state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint64_t kDoomed = 1;
constexpr uint64_t kOthers = 2;

struct Table {
  Table() : holdings(static_cast<Holdings*>(MapWipedOnFork(sizeof(Holdings)))) {
    CHECK(holdings != nullptr);
  }
  ~Table() { UnmapWipedOnFork(holdings, sizeof(Holdings)); }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  void Put(uint64_t key, uint64_t context) {
    CHECK(holdings->Put({.key = key, .context = context, .kind = HoldingKind::kAddress}));
  }
  bool Has(uint64_t key) {
    Holding found;
    return holdings->Get(HoldingKind::kAddress, key, &found);
  }
  void Drop(uint64_t key) {
    Holding found;
    holdings->Take(HoldingKind::kAddress, key, &found);
  }
  template <typename Use>
  void TakeDoomed(Use use) {
    holdings->TakeWhere([](const Holding& holding) { return holding.context == kDoomed; }, use);
  }

  Holdings* holdings;
};

// Key n; enough of them fill every place of every shard, in orders that no one chose.
uint64_t KeyOf(uint64_t n) { return (n + 1) << 21; }

// Of three keys two are doomed; the third goes while the first of them is handed out, which moves
// whatever lies behind it.
void Step(Table* table, uint64_t other, uint64_t one, uint64_t two) {
  table->Put(KeyOf(other), kOthers);
  table->Put(KeyOf(one), kDoomed);
  table->Put(KeyOf(two), kDoomed);
  uint64_t taken = 0;
  table->TakeDoomed([&](const Holding&) {
    ++taken;
    table->Drop(KeyOf(other));
  });
  CHECK_EQ(taken, 2);
}

// Each way in which three of a hundred keys can meet in the places of a shard.
void Steps() {
  constexpr uint64_t kKeys = 100;
  Table table;
  for (uint64_t other = 0; other < kKeys; ++other) {
    for (uint64_t one = 0; one < kKeys; ++one) {
      for (uint64_t two = 0; two < one; ++two) {
        if (other != one && other != two) Step(&table, other, one, two);
      }
    }
  }
}

// One round of a table whose places are full enough for long chains: so many holdings are doomed,
// and while each of them is handed out a few others come and go.
void Round(Table* table, Random* random, uint64_t doomed, std::vector<uint64_t>* others,
           uint64_t* next) {
  for (uint64_t n = 0; n < doomed; ++n) table->Put(KeyOf((*next)++), kDoomed);
  uint64_t taken = 0;
  table->TakeDoomed([&](const Holding&) {
    ++taken;
    for (uint64_t change = random->Below(16); change > 0; --change) {
      if (random->Below(2) != 0) {
        others->push_back(KeyOf((*next)++));
        table->Put(others->back(), kOthers);
      } else {
        uint64_t* any = &(*others)[random->Below(others->size())];
        table->Drop(*any);
        *any = others->back();
        others->pop_back();
      }
    }
  });
  CHECK_EQ(taken, doomed);
  for (const uint64_t key : *others) CHECK(table->Has(key));
}

void RandomOrders(uint64_t seed) {
  Random random(seed);
  for (int round = 0; round < 40; ++round) {
    Table table;
    uint64_t next = 0;
    std::vector<uint64_t> others;
    while (others.size() < 2000 + random.Below(900)) {
      others.push_back(KeyOf(next++));
      table.Put(others.back(), kOthers);
    }
    for (int i = 0; i < 4; ++i) Round(&table, &random, random.Below(400), &others, &next);
  }
}

// Others put and take all the time; one puts a context's holdings and ends the context.
void Threads(uint64_t count, uint64_t rounds) {
  Table table;
  std::atomic<bool> is_over{false};
  std::vector<std::thread> others;
  for (uint64_t thread = 0; thread < count; ++thread) {
    others.emplace_back([&, thread] {
      Random random(thread + 1);
      std::vector<uint64_t> own;
      for (uint64_t n = 0; !is_over.load(); ++n) {
        own.push_back(KeyOf((thread + 1) * 10'000'000 + n % 1'000'000));
        table.Put(own.back(), kOthers);
        if (own.size() < 64 + random.Below(512)) continue;
        while (own.size() > 32) {
          table.Drop(own.back());
          own.pop_back();
        }
      }
    });
  }
  for (uint64_t round = 0; round < rounds; ++round) {
    constexpr uint64_t kDoomedAtOnce = 300;
    for (uint64_t n = 0; n < kDoomedAtOnce; ++n) table.Put(KeyOf(n), kDoomed);
    uint64_t taken = 0;
    table.TakeDoomed([&](const Holding&) { ++taken; });
    CHECK_EQ(taken, kDoomedAtOnce);
  }
  is_over = true;
  for (std::thread& other : others) other.join();
}

uint64_t Number(const char* text) { return strtoull(text, nullptr, 10); }

}  // namespace

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  if (strcmp(what, "steps") == 0) {
    Steps();
  } else if (strcmp(what, "random") == 0 && argc > 2) {
    RandomOrders(Number(argv[2]));
  } else if (strcmp(what, "threads") == 0 && argc > 3) {
    Threads(Number(argv[2]), Number(argv[3]));
  } else {
    return 2;
  }
  printf("ok\n");
  return 0;
}
