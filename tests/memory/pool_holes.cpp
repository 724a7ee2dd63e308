// link: state
// sources: hooks/pools/pool_holes.cpp
// What of a pool a request may rely on (hooks/pools/pool_holes.h), step by step, without a driver:
// orders that threads come to once in ten thousand calls. Fails with the place that was not true.
//
//   pool_holes emptied | missed | displaced | served
#include "hooks/pools/pool_holes.h"

#include <string.h>

#include "policy/charge.h"
#include "support/state_program.h"

namespace {

using gpufence::PoolHoles;

constexpr uint64_t kBlock = gpufence::kPoolBlockBytes;
constexpr uint64_t kStart = uint64_t{1} << 40;
constexpr uint64_t kStream = 7;
constexpr uint64_t kNothingGrows = 0;

PoolHoles holes;  // zero at first, as in a new account

int Claim(uint64_t blocks, uint64_t growing_blocks = 0) {
  return holes.Claim(blocks * kBlock, kStream, growing_blocks * kBlock);
}

bool Landed(int claim, uint64_t at_block, uint64_t blocks) {
  return holes.Landed(claim, kStart + at_block * kBlock, blocks * kBlock);
}

void Free(uint64_t before, uint64_t at_block, uint64_t blocks) {
  holes.Freed(before, kStart + at_block * kBlock, blocks * kBlock, kStream);
}

void Observe(uint64_t blocks, bool quiet = true) { holes.Observe(blocks * kBlock, quiet); }

// A pool of `blocks` with one piece that fills it.
void Fill(uint64_t blocks) {
  CHECK(Claim(blocks) == PoolHoles::kUnsure);
  CHECK(!Landed(PoolHoles::kUnsure, 0, blocks));
  Observe(blocks);
}

// What was freed serves again, and a whole pool that was lost begins anew.
void Served() {
  Fill(3);
  Free(holes.BeforeFree(), 0, 3);
  const int hole = Claim(2);
  CHECK(hole >= 0 && Claim(2) == PoolHoles::kUnsure);
  CHECK(Landed(hole, 0, 2));
  const int rest = Claim(1);
  CHECK(rest >= 0 && Landed(rest, 2, 1));
  Observe(0);
  Fill(1);
  Free(holes.BeforeFree(), 0, 1);
  CHECK(Claim(1) >= 0);
}

// A free is stopped between the driver's call and ours; meanwhile the pool loses all it has.
void Emptied() {
  constexpr uint64_t kOthers = 16;  // as many landings as are remembered
  Fill(3);
  for (uint64_t i = 0; i < kOthers; ++i) Landed(PoolHoles::kUnsure, 3 + i, 1);
  Observe(3 + kOthers);
  const uint64_t before = holes.BeforeFree();
  Observe(0);
  Free(before, 0, 3);
  CHECK(Claim(1) == PoolHoles::kUnsure);
}

// A request that made the pool grow took a hole, and is stopped before it says so.
void Missed() {
  Fill(2);
  Free(holes.BeforeFree(), 0, 2);
  const int hole = Claim(2);
  CHECK(hole >= 0);
  CHECK(!Landed(hole, 2, 2));  // the driver had only grown memory left
  Observe(4, /*quiet=*/false);
  CHECK(Claim(1, /*growing_blocks=*/2) == PoolHoles::kUnsure);
}

// What the pool grew by for a request whose hole was taken is no rest behind the last piece.
void Displaced() {
  Fill(1);
  Free(holes.BeforeFree(), 0, 1);
  const int hole = Claim(1);
  CHECK(hole >= 0);
  CHECK(!Landed(PoolHoles::kUnsure, 0, 1));  // of a request that was to grow
  Observe(2, /*quiet=*/false);               // it has, for the one behind `hole`
  CHECK(holes.Claim(1, kStream, kNothingGrows) == PoolHoles::kUnsure);
  CHECK(!Landed(hole, 1, 1));
  Observe(3);
  const int tail = Claim(1);
  CHECK(tail == PoolHoles::kTail && Landed(tail, 2, 1));
}

}  // namespace

int main(int argc, char** argv) {
  const char* name = argc > 1 ? argv[1] : "";
  if (strcmp(name, "served") == 0) {
    Served();
  } else if (strcmp(name, "emptied") == 0) {
    Emptied();
  } else if (strcmp(name, "missed") == 0) {
    Missed();
  } else if (strcmp(name, "displaced") == 0) {
    Displaced();
  } else {
    return 2;
  }
  puts("ok");
  return 0;
}
