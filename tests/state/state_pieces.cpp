// link: state
// The record of small pieces, without a driver: which piece begins at an address, what ends with
// its heap, and what a piece that lies over others leaves of them.
//
//   state_pieces FOLDER   the region's
#include "base/forked.h"
#include "policy/chunks.h"
#include "support/state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint64_t kLimitBytes = 256 * kMiB;
constexpr uint64_t kContext = 0x1000;
constexpr uint64_t kOther = 0x1010;
constexpr uint64_t kStart = uint64_t{1} << 42;

struct World {
  Member* member;
  ChunkTable* chunks;

  void Place(uint64_t address, uint64_t bytes, uint64_t context = kContext) const {
    PieceGrant grant(&member->account, chunks, context, HeapKind::kLinear, bytes);
    CHECK(grant);
    CHECK(grant.Placed(address));
  }

  void End(const SmallPiece& piece) const { EndPiece(&member->account, chunks, piece); }

  void Free(uint64_t address, uint64_t bytes) const {
    SmallPiece piece;
    CHECK(chunks->Leave(address, &piece));
    CHECK_EQ(piece.address, address);
    CHECK_EQ(piece.bytes, bytes);
    End(piece);
  }

  void CheckEmpty() const {
    CHECK_EQ(chunks->chunks(), 0);
    CHECK_EQ(member->account.UsedBytes(), 0);
    CHECK(!chunks->busy());
  }
};

void FindPieces(const World& world) {
  constexpr uint64_t kNext = kStart + 3 * kSmallStep;
  SmallPiece found;
  CHECK(!world.chunks->Find(kStart, &found));
  world.Place(kStart, 2 * kSmallStep + 1);
  world.Place(kNext, kMiB);
  CHECK(world.chunks->Find(kStart, &found));
  CHECK_EQ(found.bytes, 3 * kSmallStep);
  CHECK(world.chunks->Find(kNext, &found));
  CHECK_EQ(found.bytes, kMiB);
  CHECK_EQ(found.heap, HeapOf(kContext, HeapKind::kLinear));
  for (const uint64_t nowhere : {kStart + 1, kStart + kSmallStep, kNext + kSmallStep, kNext + kMiB,
                                 kStart + kChunkBytes, kStart - kSmallStep}) {
    CHECK(!world.chunks->Find(nowhere, &found));
    CHECK(!world.chunks->Leave(nowhere, &found));
  }
  CHECK(!world.chunks->busy());
  world.Free(kStart, 3 * kSmallStep);
  CHECK(!world.chunks->Leave(kStart, &found));
  world.Free(kNext, kMiB);
  world.CheckEmpty();
}

// The driver refused to free it.
void KeepAPiece(const World& world) {
  SmallPiece piece;
  world.Place(kStart, kSmallStep);
  world.Place(kStart + kSmallStep, kMiB);
  CHECK(world.chunks->Leave(kStart, &piece));
  CHECK(!world.chunks->Find(kStart, &piece));
  KeepSmallPiece(&world.member->account, world.chunks, piece);
  CHECK(!world.chunks->busy());
  world.Free(kStart, kSmallStep);
  world.Free(kStart + kSmallStep, kMiB);
  world.CheckEmpty();
}

// A piece lies where others did that nobody was seen to free: they are gone, once.
void PlaceOverOthers(const World& world) {
  world.Place(kStart, kSmallStep);
  world.Place(kStart + 60 * kSmallStep, 8 * kSmallStep);
  world.Place(kStart + 70 * kSmallStep, kSmallStep);
  world.Place(kStart, 64 * kSmallStep);
  CHECK_EQ(world.chunks->chunks(), 1);
  world.Free(kStart + 70 * kSmallStep, kSmallStep);
  CHECK_EQ(world.chunks->chunks(), 1);
  world.Free(kStart, 68 * kSmallStep);  // what was left of the one that it covered is its own now
  world.CheckEmpty();
}

// A context ends: its pieces do, in however many chunks they lie, and nobody else's.
void EndAHeap(const World& world) {
  constexpr uint64_t kChunks = 40;
  for (uint64_t i = 0; i < kChunks; ++i) {
    const uint64_t context = i % 2 == 0 ? kContext : kOther;
    world.Place(kStart + i * kChunkBytes, kSmallStep, context);
    world.Place(kStart + i * kChunkBytes + kMiB, kMiB - 1, context);
  }
  CHECK_EQ(world.chunks->chunks(), kChunks);
  for (const uint64_t context : {kContext, kOther}) {
    const uint64_t heap = HeapOf(context, HeapKind::kLinear);
    SmallPiece piece;
    uint64_t ended = 0;
    for (size_t from = 0; world.chunks->LeaveAny(heap, &from, &piece); ++ended) {
      CHECK_EQ(piece.heap, heap);
      CHECK(!world.chunks->Find(piece.address, &piece));
      world.End(piece);
    }
    CHECK_EQ(ended, kChunks);
    CHECK_EQ(world.chunks->chunks(), context == kContext ? kChunks / 2 : 0);
  }
  world.CheckEmpty();
}

// The table grows meanwhile, and what was behind the last one found lies before it then.
void EndAHeapThatGrows(const World& world) {
  constexpr uint64_t kChunks = 60;
  const uint64_t heap = HeapOf(kOther, HeapKind::kLinear);
  SmallPiece piece;
  uint64_t placed = 0;
  uint64_t ended = 0;
  const auto place = [&] { world.Place(kStart + placed++ * kChunkBytes, kChunkBytes / 2, kOther); };
  while (placed < 10) place();
  for (size_t from = 0; world.chunks->LeaveAny(heap, &from, &piece); ++ended) {
    world.End(piece);
    for (int i = 0; i < 6 && placed < kChunks; ++i) place();
  }
  CHECK_EQ(ended, kChunks);
  world.CheckEmpty();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const World world{NewMember(argv[1], kLimitBytes),
                    static_cast<ChunkTable*>(MapWipedOnFork(sizeof(ChunkTable)))};
  FindPieces(world);
  KeepAPiece(world);
  PlaceOverOthers(world);
  EndAHeap(world);
  EndAHeapThatGrows(world);
  return 0;
}
