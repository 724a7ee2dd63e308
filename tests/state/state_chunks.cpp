// link: state
// flags: -pthread
// Small pieces of one process, over a heap that deals chunks as the driver does: whatever the
// threads do, the chunks that the heap holds are paid, within the limit, and charged no longer than
// held.
//
//   state_chunks random FOLDER THREADS OPERATIONS    any sizes, near the limit all the time
//   state_chunks alone FOLDER 1 OPERATIONS           after every call: not a byte more or less
//   state_chunks fill FOLDER THREADS ROUNDS          all ask until refused: every place is taken
//   state_chunks steps FOLDER 1 1                    calls under way at once, in one order each
//   state_chunks stranger FOLDER THREADS OPERATIONS  over a heap that never fills holes:
//                                                    charged right all the same
#include <string.h>

#include <atomic>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "policy/chunks.h"
#include "support/state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint64_t kLimitBytes = 16 * kMiB;
constexpr uint64_t kContext = 0x1000;

// The driver: the smallest hole that fits, else a new chunk; a chunk goes with its last piece.
class Heap {
 public:
  explicit Heap(bool fills_holes) : fills_holes_(fills_holes) {}

  uint64_t Allocate(uint64_t bytes) {
    std::lock_guard guard(lock_);
    bytes = RoundUp(bytes, kSmallStep);
    uint64_t best = 0;
    for (const auto& [address, size] : holes_) {
      if (size < bytes || (best != 0 && size >= holes_[best])) continue;
      if (fills_holes_ || pieces_in_[address / kChunkBytes] == 0) best = address;
    }
    if (best == 0) {
      best = next_;
      next_ += kChunkBytes;
      holes_[best] = kChunkBytes;
      ++chunks_;
      most_ = chunks_ > most_ ? chunks_ : most_;
    }
    const uint64_t left = holes_[best] - bytes;
    holes_.erase(best);
    if (left > 0) holes_[best + bytes] = left;
    ++pieces_in_[best / kChunkBytes];
    return best;
  }

  bool HasHole(uint64_t bytes) {
    std::lock_guard guard(lock_);
    for (const auto& hole : holes_) {
      if (hole.second >= RoundUp(bytes, kSmallStep)) return true;
    }
    return false;
  }

  void Free(uint64_t address, uint64_t bytes) {
    std::lock_guard guard(lock_);
    const uint64_t chunk = address / kChunkBytes;
    uint64_t end = address + RoundUp(bytes, kSmallStep);
    auto next = holes_.find(end);
    if (next != holes_.end() && end / kChunkBytes == chunk) {
      end += next->second;
      holes_.erase(next);
    }
    auto before = holes_.lower_bound(address);
    if (before != holes_.begin()) {
      --before;
      if (before->first + before->second == address && before->first / kChunkBytes == chunk) {
        address = before->first;
      }
    }
    holes_[address] = end - address;
    if (--pieces_in_[chunk] > 0) return;
    holes_.erase(chunk * kChunkBytes);
    --chunks_;
  }

  uint64_t bytes() {
    std::lock_guard guard(lock_);
    return chunks_ * kChunkBytes;
  }
  uint64_t most_bytes() {
    std::lock_guard guard(lock_);
    return most_ * kChunkBytes;
  }

 private:
  const bool fills_holes_;
  std::mutex lock_;
  std::map<uint64_t, uint64_t> holes_;  // address -> bytes
  std::map<uint64_t, uint64_t> pieces_in_;
  uint64_t next_ = uint64_t{1} << 40;
  uint64_t chunks_ = 0;
  uint64_t most_ = 0;
};

struct World {
  Member* member;
  ChunkTable* chunks;
  Heap* heap;

  bool Take(uint64_t bytes, SmallPiece* piece) const {
    PieceGrant grant(&member->account, chunks, kContext, HeapKind::kLinear, bytes);
    if (!grant) return false;
    const uint64_t address = heap->Allocate(bytes);
    *piece = {HeapOf(kContext, HeapKind::kLinear), address, bytes};
    if (grant.Placed(address)) return true;
    heap->Free(address, bytes);
    return false;
  }

  void Give(const SmallPiece& piece) const {
    SmallPiece leaving;
    CHECK(chunks->Leave(piece.address, &leaving));
    CHECK_EQ(leaving.bytes, RoundUp(piece.bytes, kSmallStep));
    heap->Free(piece.address, piece.bytes);
    EndPiece(&member->account, chunks, piece);
  }

  // A free that the driver refuses.
  void Keep(const SmallPiece& piece) const {
    SmallPiece leaving;
    CHECK(chunks->Leave(piece.address, &leaving));
    CHECK_EQ(leaving.bytes, RoundUp(piece.bytes, kSmallStep));
    KeepSmallPiece(&member->account, chunks, piece);
  }
};

template <typename Body>
void InThreads(int count, Body body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

uint64_t AnySize(Random* random) {
  switch (random->Below(4)) {
    case 0:
      return 1 + random->Below(2 * kMiB - kSmallStep);
    case 1:
      return (1 + random->Below(7)) * 256 * 1024;
    default:
      return 1 + random->Below(64 * 1024);
  }
}

void DoRandom(const World& world, int threads, uint64_t operations) {
  std::atomic<uint64_t> granted{0};
  std::atomic<uint64_t> refused{0};
  InThreads(threads, [&](int index) {
    Random random(static_cast<uint64_t>(index) + 1);
    std::vector<SmallPiece> held;
    for (uint64_t i = 0; i < operations; ++i) {
      SmallPiece piece;
      if (held.empty() || random.Below(100) < 55) {
        const bool fits = world.Take(AnySize(&random), &piece);
        (fits ? granted : refused).fetch_add(1);
        if (fits) held.push_back(piece);
        continue;
      }
      std::swap(held[random.Below(held.size())], held.back());
      if (random.Below(16) == 0) {
        world.Keep(held.back());
        continue;
      }
      world.Give(held.back());
      held.pop_back();
    }
    for (const SmallPiece& piece : held) world.Give(piece);
  });
  CHECK(granted.load() > 0 && refused.load() > 0);
}

// With one thread nothing is under way: what is charged is what the heap holds, after every call.
void DoAlone(const World& world, uint64_t operations) {
  Random random(7);
  std::vector<SmallPiece> held;
  for (uint64_t i = 0; i < operations; ++i) {
    SmallPiece piece;
    if (held.empty() || random.Below(100) < 55) {
      const uint64_t before = world.heap->bytes();
      const uint64_t bytes = AnySize(&random);
      if (world.Take(bytes, &piece)) {
        held.push_back(piece);
      } else {
        // None is refused that a hole or a chunk was there for.
        CHECK_EQ(before, kLimitBytes);
        CHECK(!world.heap->HasHole(bytes));
      }
    } else {
      std::swap(held[random.Below(held.size())], held.back());
      world.Give(held.back());
      held.pop_back();
    }
    CHECK_EQ(world.member->account.UsedBytes(), world.heap->bytes());
  }
  for (const SmallPiece& piece : held) world.Give(piece);
}

void DoFill(const World& world, int threads, uint64_t rounds) {
  constexpr uint64_t kSizes[] = {kMiB / 2, kMiB, 700 * 1024, 512, 64 * 1024};
  for (uint64_t round = 0; round < rounds; ++round) {
    const uint64_t bytes = kSizes[round % 5];
    std::mutex lock;
    std::vector<SmallPiece> all;
    InThreads(threads, [&](int) {
      SmallPiece piece;
      while (world.Take(bytes, &piece)) {
        std::lock_guard guard(lock);
        all.push_back(piece);
      }
    });
    CHECK_EQ(all.size(), kLimitBytes / kChunkBytes * (kChunkBytes / RoundUp(bytes, kSmallStep)));
    for (const SmallPiece& piece : all) world.Give(piece);
    CHECK_EQ(world.member->account.UsedBytes(), 0);
  }
}

SmallPiece PieceAt(uint64_t address, uint64_t bytes) {
  return {HeapOf(kContext, HeapKind::kLinear), address, bytes};
}

// Two requests of 1 MiB beside one hole of 1 MiB: the first relies on it, the second pays a chunk,
// and the driver serves the second first.
void TakeAnothersHole(const World& world, bool payer_returns_first) {
  SmallPiece first;
  CHECK(world.Take(kMiB, &first));
  uint64_t taken = 0;
  uint64_t opened = 0;
  {
    PieceGrant relying(&world.member->account, world.chunks, kContext, HeapKind::kLinear, kMiB);
    CHECK(relying);
    CHECK_EQ(world.member->account.UsedBytes(), kChunkBytes);
    PieceGrant paying(&world.member->account, world.chunks, kContext, HeapKind::kLinear, kMiB);
    CHECK(paying);
    CHECK_EQ(world.member->account.UsedBytes(), 2 * kChunkBytes);
    taken = world.heap->Allocate(kMiB);
    opened = world.heap->Allocate(kMiB);
    CHECK_EQ(world.heap->bytes(), 2 * kChunkBytes);
    if (payer_returns_first) CHECK(paying.Placed(taken));
    CHECK_EQ(world.member->account.UsedBytes(), 2 * kChunkBytes);
    CHECK(relying.Placed(opened));
    if (!payer_returns_first) CHECK(paying.Placed(taken));
  }
  CHECK_EQ(world.member->account.UsedBytes(), 2 * kChunkBytes);
  for (const uint64_t address : {first.address, taken, opened}) world.Give(PieceAt(address, kMiB));
  CHECK_EQ(world.member->account.UsedBytes(), 0);
}

// The driver opens a chunk where a hole was known. It is paid where there is room, else freed
// again.
void BeSurprised(const World& world, bool has_room) {
  SmallPiece first;
  CHECK(world.Take(kMiB, &first));
  const uint64_t others = kLimitBytes - (has_room ? 2 : 1) * kChunkBytes;
  CHECK(world.member->account.Reserve(others));
  constexpr uint64_t kElsewhere = uint64_t{1} << 41;
  {
    PieceGrant relying(&world.member->account, world.chunks, kContext, HeapKind::kLinear, kMiB);
    CHECK(relying);
    CHECK_EQ(relying.Placed(kElsewhere), has_room);
  }
  CHECK_EQ(world.member->account.UsedBytes(), kLimitBytes);
  CHECK_EQ(world.chunks->chunks(), has_room ? 2 : 1);
  if (has_room) {
    SmallPiece leaving;
    CHECK(world.chunks->Leave(kElsewhere, &leaving));
    EndPiece(&world.member->account, world.chunks, PieceAt(kElsewhere, kMiB));
  }
  world.member->account.Release(others);
  world.Give(first);
}

// Pieces that ended by a door that was not seen lie where others are placed. When all have ended,
// the chunk is as empty as a new one: a piece of one step ends where it began.
void ReopenAfterOverlaps(const World& world) {
  Account* account = &world.member->account;
  constexpr uint64_t kAt = uint64_t{3} << 40;
  constexpr SmallPiece kOverlapping[] = {
      {0, kAt, kMiB},
      {0, kAt + kMiB / 2, kMiB},
      {0, kAt + kMiB / 4, kMiB / 2},
      {0, kAt, kMiB / 8},
  };
  const auto place = [&](uint64_t address, uint64_t bytes) {
    PieceGrant grant(account, world.chunks, kContext, HeapKind::kLinear, bytes);
    CHECK(grant);
    CHECK(grant.Placed(address));
    CHECK_EQ(account->UsedBytes(), kChunkBytes);
  };
  SmallPiece leaving;
  for (const SmallPiece& piece : kOverlapping) place(piece.address, piece.bytes);
  for (const SmallPiece& piece : kOverlapping) {
    if (world.chunks->Leave(piece.address, &leaving)) EndPiece(account, world.chunks, leaving);
  }
  CHECK_EQ(account->UsedBytes(), 0);
  for (uint64_t at = kAt; at < kAt + kChunkBytes; at += kMiB / 8) {
    place(at, kSmallStep);
    CHECK(world.chunks->Leave(at, &leaving));
    CHECK_EQ(leaving.bytes, kSmallStep);
    EndPiece(account, world.chunks, leaving);
    CHECK_EQ(account->UsedBytes(), 0);
  }
}

// The last chunk is about to be opened by somebody else: its second half is waited for.
void WaitForAnothersChunk(const World& world) {
  CHECK(world.member->account.Reserve(kLimitBytes - kChunkBytes));
  SmallPiece second;
  auto* opening =
      new PieceGrant(&world.member->account, world.chunks, kContext, HeapKind::kLinear, kMiB);
  CHECK(*opening);
  std::thread opener([&] {
    usleep(3000);
    CHECK(opening->Placed(world.heap->Allocate(kMiB)));
    delete opening;
  });
  CHECK(world.Take(kMiB, &second));
  opener.join();
  CHECK_EQ(world.heap->bytes(), kChunkBytes);
  world.Give(second);
  world.Give(PieceAt(second.address - kMiB, kMiB));
  world.member->account.Release(kLimitBytes - kChunkBytes);
}

void DoSteps(const World& world) {
  TakeAnothersHole(world, /*payer_returns_first=*/true);
  TakeAnothersHole(world, /*payer_returns_first=*/false);
  WaitForAnothersChunk(world);
  ReopenAfterOverlaps(world);
  BeSurprised(world, /*has_room=*/true);
  BeSurprised(world, /*has_room=*/false);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const bool is_stranger = strcmp(argv[1], "stranger") == 0;
  const int threads = atoi(argv[3]);
  const uint64_t amount = strtoull(argv[4], nullptr, 10);
  Heap heap(!is_stranger);
  const World world{NewMember(argv[2], kLimitBytes),
                    static_cast<ChunkTable*>(MapWipedOnFork(sizeof(ChunkTable))), &heap};
  if (strcmp(argv[1], "fill") == 0) {
    DoFill(world, threads, amount);
  } else if (strcmp(argv[1], "steps") == 0) {
    DoSteps(world);
  } else if (strcmp(argv[1], "alone") == 0) {
    DoAlone(world, amount);
  } else {
    DoRandom(world, threads, amount);
  }
  CHECK_EQ(heap.bytes(), 0);
  CHECK_EQ(world.chunks->chunks(), 0);
  CHECK_EQ(world.member->account.UsedBytes(), 0);
  // Whoever deals otherwise surprises once; each thread's piece of that moment may stand above.
  const uint64_t excess = is_stranger ? static_cast<uint64_t>(threads) * kChunkBytes : 0;
  CHECK(heap.most_bytes() <= kLimitBytes + excess);
  printf("{\"most_bytes\": %llu}\n", static_cast<unsigned long long>(heap.most_bytes()));
  return 0;
}
