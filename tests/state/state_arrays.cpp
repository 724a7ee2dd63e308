// link: state
// flags: -pthread
// Small arrays of one process, over heaps that place them as the driver does: what is charged
// covers what the heaps hold at every moment.
//
//   state_arrays turns FOLDER THREADS OPERATIONS   exact after every call, whoever else is about to
//   state_arrays late FOLDER THREADS OPERATIONS    one of them never ends its calls in time: never
//                                                  less, and exact again once all arrays are gone
//   state_arrays unknown FOLDER 0 0                what seems empty out of turn may hold others
//   state_arrays room FOLDER 0 0                   others have their turn while room is made
#include <string.h>
#include <time.h>

#include <atomic>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "policy/arrays.h"
#include "support/state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint64_t kLimitBytes = 64 * kMiB;
constexpr uint64_t kContext = 0x1000;

// The driver: in each heap the smallest hole that fits, the oldest of several, else a new chunk.
class Driver {
 public:
  struct Place {
    uint64_t heap;
    uint64_t address;
    uint64_t bytes;
  };

  Place Make(uint64_t heap, uint64_t bytes) {
    const std::lock_guard guard(lock_);
    bytes = RoundUp(bytes, kSmallStep);
    std::map<uint64_t, Hole>& holes = heaps_[heap];
    auto best = holes.end();
    for (auto hole = holes.begin(); hole != holes.end(); ++hole) {
      if (hole->second.bytes < bytes) continue;
      if (best == holes.end() || hole->second.bytes < best->second.bytes ||
          (hole->second.bytes == best->second.bytes && hole->second.born < best->second.born)) {
        best = hole;
      }
    }
    if (best == holes.end()) {
      best = holes.insert({next_, {kChunkBytes, 0}}).first;
      next_ += 2 * kChunkBytes;
      Change(+1);
    }
    const uint64_t address = best->first;
    const uint64_t left = best->second.bytes - bytes;
    holes.erase(best);
    if (left > 0) holes[address + bytes] = {left, ++births_};
    return {heap, address, bytes};
  }

  void End(const Place& place) {
    const std::lock_guard guard(lock_);
    std::map<uint64_t, Hole>& holes = heaps_[place.heap];
    auto made = holes.insert({place.address, {place.bytes, ++births_}}).first;
    const auto next = std::next(made);
    if (next != holes.end() && made->first + made->second.bytes == next->first) {
      made->second.bytes += next->second.bytes;
      holes.erase(next);
    }
    if (made != holes.begin()) {
      const auto before = std::prev(made);
      if (before->first + before->second.bytes == made->first) {
        before->second = {before->second.bytes + made->second.bytes, births_};
        holes.erase(made);
        made = before;
      }
    }
    if (made->second.bytes != kChunkBytes) return;
    holes.erase(made);
    Change(-1);
  }

  uint64_t bytes() const { return chunks_.load() * kChunkBytes; }

  // Odd while the chunks change, another number afterwards.
  uint64_t changes() const { return changes_.load(); }

 private:
  void Change(int64_t chunks) {
    ++changes_;
    chunks_.fetch_add(static_cast<uint64_t>(chunks));
    ++changes_;
  }

  struct Hole {
    uint64_t bytes;
    uint64_t born;
  };
  std::mutex lock_;
  std::map<uint64_t, std::map<uint64_t, Hole>> heaps_;
  std::atomic<uint64_t> chunks_{0};
  std::atomic<uint64_t> changes_{0};
  uint64_t next_ = kChunkBytes;
  uint64_t births_ = 0;
};

struct Array {
  Driver::Place in_driver;
  uint64_t place;
  uint64_t bytes;
};

struct World {
  Member* member;
  ArrayPlaces* places;
  Driver driver;
  bool is_exact;
  std::atomic<uint64_t> granted{0};
  std::atomic<uint64_t> refused{0};
};

// The moment of a call in which another thread could be in the driver, too.
void Linger(World* world, bool is_late) {
  const timespec pause{0, is_late ? 400'000'000 : 10'000};
  if (!world->is_exact || is_late) nanosleep(&pause, nullptr);
}

void Check(World* world) {
  const uint64_t changes = world->driver.changes();
  const uint64_t held = world->driver.bytes();
  const uint64_t charged = HeldBy(*world->member, world->member->slot);
  // Two figures of one moment only where nothing changed between them.
  const bool is_moment = changes % 2 == 0 && changes == world->driver.changes();
  if (is_moment && charged < held) CHECK_EQ(charged, held);
}

bool Make(World* world, Random* random, bool is_late, Array* array) {
  const uint64_t heap = ArrayHeapOf(kContext, 4u << random->Below(2));
  array->bytes = 1 + random->Below(random->Below(3) == 0 ? kMiB : 100'000);
  ArrayGrant grant(&world->member->account, world->places, heap, array->bytes);
  if (!grant) return false;
  Linger(world, is_late);
  if (random->Below(16) == 0) return false;  // the driver refuses
  array->in_driver = world->driver.Make(heap, array->bytes);
  array->place = grant.place();
  grant.Keep();
  if (world->is_exact) CHECK_EQ(world->places->chunks() * kChunkBytes, world->driver.bytes());
  return true;
}

void End(World* world, bool is_late, const Array& array) {
  ArrayTurn turn;
  turn.Begin(world->places);
  if (world->is_exact) CHECK_EQ(world->places->chunks() * kChunkBytes, world->driver.bytes());
  Linger(world, is_late);
  world->driver.End(array.in_driver);
  Check(world);
  turn.EndFreeing(&world->member->account, array.in_driver.heap, array.place, array.bytes);
}

void Work(World* world, uint64_t seed, uint64_t operations, bool is_late) {
  Random random(seed);
  std::vector<Array> live;
  for (uint64_t i = 0; i < operations; ++i) {
    Array array;
    if (live.size() < 30 && random.Below(2) == 0) {
      const bool made = Make(world, &random, is_late, &array);
      ++(made ? world->granted : world->refused);
      if (made) live.push_back(array);
    } else if (!live.empty()) {
      const size_t index = random.Below(live.size());
      End(world, is_late, live[index]);
      live[index] = live.back();
      live.pop_back();
    }
    Check(world);
  }
  for (const Array& array : live) End(world, false, array);
}

// Two calls at the same time, so that nobody knows in which chunk the second array lies: it is the
// first one's, which therefore must not be given back with that one.
void Unknown(World* world) {
  const uint64_t heap = ArrayHeapOf(kContext, 4);
  Account& account = world->member->account;
  const auto make = [&] {
    Array array = {{}, 0, 100'000};
    ArrayGrant grant(&account, world->places, heap, array.bytes);
    CHECK(static_cast<bool>(grant));
    array.in_driver = world->driver.Make(heap, array.bytes);
    array.place = grant.place();
    grant.Keep();
    return array;
  };
  Array arrays[2] = {make(), {}};
  CHECK(world->places->TryEnter());
  world->places->EnterOutOfTurn();
  world->places->Leave();
  world->places->Leave();
  arrays[1] = make();
  account.SetOverhead(0, account.overhead_moment());  // the driver's figure: one chunk, charged
  CHECK_EQ(HeldBy(*world->member, world->member->slot), kChunkBytes);

  End(world, false, arrays[0]);
  CHECK_EQ(world->driver.bytes(), kChunkBytes);
  CHECK_EQ(HeldBy(*world->member, world->member->slot), kChunkBytes);
  CHECK(account.stale());

  End(world, false, arrays[1]);
  account.SetOverhead(0, account.overhead_moment());
  CHECK_EQ(HeldBy(*world->member, world->member->slot), 0);
}

World* full_world = nullptr;

// What another array leaves behind, which can end only in turn.
bool MakeRoomInTurn(uint32_t) {
  CHECK(full_world->places->TryEnter());
  full_world->places->Leave();
  full_world->member->account.Release(kChunkBytes);
  return true;
}

// A request that no chunk is left for: it waits outside of its turn until there is room, and has
// the turn again before it takes its place.
void RoomFor(World* world, const char* folder) {
  full_world = world;
  Account& account = world->member->account;
  account.Open(MustOpen(folder), world->member->row, world->member->slot, 0, kLimitBytes,
               MakeRoomInTurn);
  CHECK(account.Reserve(kLimitBytes));

  {
    ArrayGrant grant(&account, world->places, ArrayHeapOf(kContext, 4), 100'000);
    CHECK(static_cast<bool>(grant));
    CHECK(!world->places->TryEnter());
    CHECK_EQ(HeldBy(*world->member, world->member->slot), kLimitBytes);
  }

  CHECK(world->places->TryEnter());
  CHECK_EQ(HeldBy(*world->member, world->member->slot), kLimitBytes - kChunkBytes);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const bool with_late = strcmp(argv[1], "late") == 0;
  const auto threads = static_cast<unsigned>(atoi(argv[3]));
  const auto operations = static_cast<uint64_t>(atoll(argv[4]));
  World world = {.member = NewMember(argv[2], kLimitBytes),
                 .places = static_cast<ArrayPlaces*>(MapWipedOnFork(sizeof(ArrayPlaces))),
                 .driver = {},
                 .is_exact = !with_late};
  if (strcmp(argv[1], "unknown") == 0) {
    world.is_exact = false;
    Unknown(&world);
    return 0;
  }
  if (strcmp(argv[1], "room") == 0) {
    RoomFor(&world, argv[2]);
    return 0;
  }
  std::vector<std::thread> workers;
  for (unsigned i = 0; i < threads; ++i) {
    const bool is_late = with_late && i == 0;
    workers.emplace_back(Work, &world, i + 1, is_late ? 4 : operations, is_late);
  }
  for (std::thread& worker : workers) worker.join();
  Account& account = world.member->account;
  CHECK_EQ(world.driver.bytes(), 0);
  CHECK_EQ(world.places->chunks(), 0);
  CHECK_EQ(account.charged_bytes(), 0);  // what was not known became overhead
  const uint64_t overhead = HeldBy(*world.member, world.member->slot);
  CHECK(account.stale() == (overhead > 0));
  CHECK(with_late || overhead == 0);
  // In turn again, nothing becomes overhead any more.
  account.SetOverhead(0, account.overhead_moment());
  world.is_exact = true;
  Work(&world, 99, 200, false);
  CHECK_EQ(HeldBy(*world.member, world.member->slot), 0);
  printf("{\"granted\": %llu, \"refused\": %llu, \"overhead\": %llu}\n",
         static_cast<unsigned long long>(world.granted),
         static_cast<unsigned long long>(world.refused), static_cast<unsigned long long>(overhead));
  return 0;
}
