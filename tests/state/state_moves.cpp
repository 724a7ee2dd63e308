// link: state
// flags: -pthread
// Moves of many threads on one device: what each says in a cell of its own adds up.
//
//   state_moves THREADS OPERATIONS   with more threads than cells, some share one; whoever comes
//                                    gives back, in a cell of his
#include <atomic>
#include <thread>
#include <vector>

#include "base/forked.h"
#include "hooks/ledger_move.h"
#include "support/state_program.h"

// As hooks/ has them, without the rest of it.
namespace gpufence {

constinit thread_local ThisThread this_thread = {};

uint32_t ClaimMovesCell() {
  static constinit std::atomic<uint32_t> claimed{0};
  const uint32_t number = claimed.fetch_add(1) + 1;
  this_thread.moves_cell = number < Moves::kCells ? number : Moves::kCells;
  return this_thread.moves_cell;
}

}  // namespace gpufence

namespace {

using namespace gpufence;  // NOLINT(google-build-using-namespace): a test program's own helpers

void Charge(Moves* moves, uint64_t bytes) {
  LedgerMove move(moves);
  move.Granted();
  CHECK(Moves::UnderWay(moves->Read()) > 0);
  move.AddManaged(bytes);
  CHECK(!move.SawEnd());
}

void GiveBack(Moves* moves, uint64_t bytes) {
  LedgerMove move;
  move.BeginCounted(moves);
  moves->TakeManaged(bytes);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  auto* moves = static_cast<Moves*>(MapWipedOnFork(sizeof(Moves)));
  std::atomic<uint64_t> expected{0};
  std::vector<std::thread> threads;
  const uint64_t operations = strtoull(argv[2], nullptr, 10);
  for (int i = 0; i < atoi(argv[1]); ++i) {
    threads.emplace_back([&, i] {
      statetest::Random random(static_cast<uint64_t>(i) + 1);
      for (uint64_t op = 0; op < operations; ++op) {
        const uint64_t bytes = random.Below(1000) + 1;
        if (random.Below(2) == 0) {
          Charge(moves, bytes);
          expected.fetch_add(bytes);
        } else {
          GiveBack(moves, bytes);
          expected.fetch_sub(bytes);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(Moves::UnderWay(moves->Read()), 0);
  CHECK_EQ(moves->ManagedBytes(), expected.load());
  LedgerMove move(moves);
  moves->ContextEnded(/*primary=*/true);
  CHECK(move.SawEnd() && move.SawPrimaryEnd());
  printf("{\"done\": 1}\n");
  return 0;
}
