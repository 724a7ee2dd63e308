// sources: state/l*.cpp state/sharing.cpp policy/account.cpp policy/chunks.cpp
// flags: -include state/stepped_word.h
// Small pieces of one process in every order of the threads' steps, with up to as many changes of
// turn as asked for: before and after each of the driver's calls, at each access to the ledger, and
// wherever a request waits. At every step: the driver holds no chunk that is not charged, and no
// more than the limit. At the end: what is charged is what it holds, and nobody was refused without
// need.
//
//   state_chunk_orders SWITCHES
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/forked.h"
#include "policy/chunks.h"
#include "stepped_turns.h"

namespace {

using namespace gpufence;  // NOLINT(google-build-using-namespace): a test program's own helpers

// Sizes in scripts are in eighths of a chunk.
constexpr uint64_t kEighth = kChunkBytes / 8;
constexpr int kMostChunks = 8;
constexpr int kMostPieces = 4;
constexpr uint64_t kContext = 0x1000;
constexpr uint64_t kFirstAddress = uint64_t{1} << 40;

enum class Deed : uint8_t {
  kEnd,
  kTake,  // so many eighths
  kFail,  // the driver refuses them
  kGive,  // what it has, or what was there at the beginning: the piece of that number
  kKeep,  // the driver refuses to free it
};

struct Line {
  Deed deed;
  int amount;
};

struct Scenario {
  const char* name;
  uint64_t limit_chunks;
  int pieces[kMostPieces];  // there at the beginning
  Line script[statetest::Turns::kMost][4];
  int fewest;  // grants that there is room for whatever the order
};

constexpr Deed kTake = Deed::kTake;
constexpr Deed kGive = Deed::kGive;

constexpr Scenario kScenarios[] = {
    {"two for one chunk", 1, {}, {{{kTake, 4}}, {{kTake, 4}}}, 2},
    {"three for two chunks", 2, {}, {{{kTake, 5}}, {{kTake, 5}}, {{kTake, 3}}}, 3},
    {"a hole that is gone, seen twice", 2, {2}, {{{kTake, 4}, {kTake, 5}}, {{kTake, 6}}}, 2},
    {"a hole that is gone, seen by two", 2, {2}, {{{kTake, 4}}, {{kTake, 6}}, {{kTake, 5}}}, 2},
    {"a hole whose chunk goes", 2, {4}, {{{kGive, 0}, {kTake, 4}}, {{kTake, 4}}, {{kTake, 2}}}, 3},
    {"the only chunk goes meanwhile", 1, {4}, {{{kGive, 0}}, {{kTake, 4}}}, 1},
    {"two holes, one goes", 2, {5, 5}, {{{kGive, 0}}, {{kTake, 3}, {kTake, 3}}, {{kTake, 3}}}, 2},
    {"a chunk ends and begins again",
     2,
     {8 - 1},
     {{{kGive, 0}, {kTake, 6}}, {{kTake, 1}, {kTake, 6}}, {{kTake, 1}}},
     3},
    {"a call that fails", 2, {4}, {{{Deed::kFail, 4}}, {{kTake, 4}, {kTake, 4}}, {{kTake, 4}}}, 2},
    {"a free that fails", 2, {4}, {{{Deed::kKeep, 0}}, {{kTake, 4}, {kTake, 5}}, {{kTake, 3}}}, 2},
    {"four beside one hole", 3, {3}, {{{kTake, 5}}, {{kTake, 4}}, {{kTake, 5}}, {{kTake, 4}}}, 3},
};

// The driver: the smallest hole that fits, else a new chunk, at the first free address or at one
// that was never used; a chunk goes with its last piece.
struct Driver {
  bool reuses;
  int dealt;                  // chunks ever, where addresses are not used again
  uint8_t used[kMostChunks];  // a bit for each eighth

  static constexpr uint8_t Mask(int first, int count) {
    return static_cast<uint8_t>(((1 << count) - 1) << first);
  }

  uint64_t Allocate(int count) {
    int chunk = -1;
    int first = 0;
    int smallest = 9;
    int fresh = -1;
    for (int i = kMostChunks - 1; i >= 0; --i) {
      if (used[i] == 0) fresh = i;
      for (int at = 0; used[i] != 0 && at < 8;) {
        int end = at;
        while (end < 8 && (used[i] & Mask(end, 1)) == 0) ++end;
        if (end - at >= count && end - at <= smallest) {
          chunk = i;
          first = at;
          smallest = end - at;
        }
        at = end + 1;
      }
    }
    if (chunk < 0) chunk = reuses ? fresh : dealt++;
    used[chunk] |= Mask(first, count);
    return kFirstAddress + static_cast<uint64_t>(chunk) * kChunkBytes +
           static_cast<uint64_t>(first) * kEighth;
  }

  void Free(uint64_t address, uint64_t bytes) {
    const uint64_t place = address - kFirstAddress;
    const int first = static_cast<int>(place % kChunkBytes / kEighth);
    used[place / kChunkBytes] &=
        static_cast<uint8_t>(~Mask(first, static_cast<int>(bytes / kEighth)));
  }

  uint64_t bytes() const {
    uint64_t chunks = 0;
    for (const uint8_t chunk : used) chunks += chunk != 0 ? 1 : 0;
    return chunks * kChunkBytes;
  }
};

const Scenario* scenario = nullptr;
statetest::Turns* turns = nullptr;
Region* region = nullptr;
Account* account = nullptr;
ChunkTable* chunks = nullptr;
Driver driver;
SmallPiece pieces[kMostPieces];
alignas(64) char table_memory[1 << 16];  // anew for each order
size_t memory_used = 0;
int granted = 0;
bool reuses_addresses = false;

[[noreturn]] void Fail(const char* what) {
  fprintf(stderr, "%s: %s: the driver holds %d chunks, %d are charged, after", scenario->name, what,
          static_cast<int>(driver.bytes() / kChunkBytes),
          static_cast<int>(region->cells[0][0].held.look() / kChunkBytes));
  turns->PrintPath();
  exit(9);
}

void Check() {
  if (driver.bytes() > region->cells[0][0].held.look()) Fail("a chunk is not charged");
  if (driver.bytes() > scenario->limit_chunks * kChunkBytes) Fail("beyond the limit");
}

bool Take(int eighths, bool fails, SmallPiece* piece) {
  const uint64_t bytes = static_cast<uint64_t>(eighths) * kEighth;
  PieceGrant grant(account, chunks, kContext, HeapKind::kLinear, bytes);
  if (!grant) return false;
  turns->Step();
  if (fails) return false;
  const uint64_t address = driver.Allocate(eighths);
  turns->Step();
  *piece = {HeapOf(kContext, HeapKind::kLinear), address, bytes};
  if (!grant.Placed(address)) Fail("the driver surprised");
  return true;
}

void Give(const SmallPiece& piece, bool fails) {
  SmallPiece leaving;
  chunks->Leave(piece.address, &leaving);
  turns->Step();
  if (fails) return KeepSmallPiece(account, chunks, piece);
  driver.Free(piece.address, piece.bytes);
  turns->Step();
  EndPiece(account, chunks, piece);
}

void RunScript(int index) {
  for (const Line& line : scenario->script[index]) {
    SmallPiece piece;
    switch (line.deed) {
      case Deed::kEnd:
        return;
      case Deed::kTake:
        if (Take(line.amount, /*fails=*/false, &piece)) ++granted;
        break;
      case Deed::kFail:
        Take(line.amount, /*fails=*/true, &piece);
        break;
      case Deed::kGive:
      case Deed::kKeep:
        Give(pieces[line.amount], line.deed == Deed::kKeep);
        break;
    }
    turns->Step();
  }
}

void Begin() {
  region->cells[0][0].held.put(0);
  region->cells[0][0].asking.put(0);
  region->rows[0].total.put(0);
  driver = {};
  driver.reuses = reuses_addresses;
  granted = 0;
  memset(static_cast<void*>(account), 0, sizeof *account);
  memory_used = 0;
  chunks = static_cast<ChunkTable*>(MapWipedOnFork(sizeof *chunks));
  account->Open({.region = region}, 0, 0, 0, scenario->limit_chunks * kChunkBytes, nullptr);
  for (int i = 0; i < kMostPieces && scenario->pieces[i] > 0; ++i) {
    if (!Take(scenario->pieces[i], /*fails=*/false, &pieces[i])) Fail("no beginning");
  }
}

void Judge() {
  if (region->cells[0][0].asking.look() != 0) Fail("somebody still asks");
  if (region->cells[0][0].held.look() != driver.bytes()) Fail("a charge was lost or kept");
  if (chunks->chunks() * kChunkBytes != driver.bytes()) Fail("a chunk was lost or kept");
  if (chunks->busy()) Fail("something is under way for ever");
  if (granted < scenario->fewest) Fail("somebody was refused what was free");
}

}  // namespace

void statetest::Step() { turns->Step(); }

int statetest::Pass(...) {
  turns->Pass();
  return 0;
}

// One process alone: nobody dies, nobody forks, and its own limit is the lowest.
namespace gpufence {

void* MapWipedOnFork(size_t bytes) {
  if (bytes > sizeof table_memory - memory_used) Fail("the table grows beyond the test");
  void* memory = table_memory + memory_used;
  memory_used += RoundUp(bytes, 64);
  return memset(memory, 0, bytes);
}

void UnmapWipedOnFork(void*, size_t) {}

uint32_t ReclaimDead(const RegionFile&, uint32_t, Effort) { return 0; }
uint32_t ReclaimDeadStricter(const RegionFile&, uint32_t, uint32_t) { return 0; }
bool HeldByDescriptors(const RegionFile&, uint32_t, uint64_t*) { return false; }

void PublishLimit(Region*, uint32_t, uint32_t, uint64_t) {}

void PublishRatio(Region*, uint32_t, uint32_t, uint64_t) {}

uint64_t HighestRatio(const Region*, uint32_t) { return 0; }

uint64_t LowestLimit(const Region*, uint32_t) { return scenario->limit_chunks * kChunkBytes; }

}  // namespace gpufence

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  statetest::Turns search(atoi(argv[1]), RunScript, Check);
  turns = &search;
  void* memory = mmap(nullptr, sizeof(Region), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return 3;
  region = static_cast<Region*>(memory);
  region->header.high_slot.store(1);
  account = static_cast<Account*>(malloc(sizeof(Account)));
  uint64_t executions = 0;
  for (const Scenario& one : kScenarios) {
    scenario = &one;
    int threads = 0;
    while (threads < statetest::Turns::kMost && one.script[threads][0].deed != Deed::kEnd) {
      ++threads;
    }
    const uint64_t before = executions;
    for (const bool reuses : {true, false}) {
      reuses_addresses = reuses;
      do {
        Begin();
        search.Run(threads);
        Judge();
        ++executions;
      } while (search.Advance());
    }
    fprintf(stderr, "%s: %llu\n", one.name, static_cast<unsigned long long>(executions - before));
  }
  printf("{\"executions\": %llu}\n", static_cast<unsigned long long>(executions));
  return 0;
}
