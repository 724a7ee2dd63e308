// Which chunks of 2 MiB the small pieces of one device lie in, and where they still have room.
//
// The driver places pieces below 2 MiB in shared chunks, in steps of 512 bytes, and holds a chunk from
// its first piece to its last; so a chunk is what is charged. A new one is taken only when no chunk
// of the same heap has a hole that fits (measured: docs/memory-limiter.md). Holes are known here, so
// that a request which needs no chunk asks for none, and one that is granted by a hole never makes the
// driver take a chunk that nobody paid. Must not know the ledger, nor CUDA.
//
// Process-local, wiped on fork. Any thread; the lock is held for a few instructions.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "core/spin.h"
#include "policy/charge.h"

namespace gpufence {

inline constexpr uint32_t kChunkUnits = kChunkBytes / kSmallStep;

// A piece: where it lies, and which heap places it (contexts share none with each other, nor does one
// kind of memory with another).
struct SmallPiece {
  uint64_t heap;
  uint64_t address;
  uint64_t bytes;
};

// What a caller does next about chunks' charges.
struct ChunkDue {
  uint32_t surplus = 0;    // this many are not needed any more
  bool is_unpaid = false;  // the piece opened a chunk that nobody paid: pay it, or free the piece
};

class ChunkTable {
 public:
  // Before a request that has not paid for a chunk: true when a hole is there whatever those do that
  // are under way. `thorough` looks at every chunk, not only where there was room last.
  bool EnterUnpaid(uint64_t heap, uint64_t bytes, bool thorough);

  // Before a request that has been charged a chunk.
  void EnterPaid();

  // After the driver's call. is_unpaid comes when the driver did what was not foreseen; the holes of
  // that moment are not relied on any more, and after a few surprises none is.
  ChunkDue Placed(const SmallPiece& piece, bool paid);

  // After a call that failed, or was not made.
  ChunkDue Failed(uint64_t bytes, bool paid);

  // A free under way: its place is no piece's any more, and nobody's hole yet.
  void Leave(const SmallPiece& piece);
  void Stay(const SmallPiece& piece);  // the driver refused
  ChunkDue Left(uint64_t address);

  // For memory without an address: foresees where the driver places the piece. kNoRoom: no chunk of
  // the heap has a hole; with `is_paid` a new one is made then, unless memory is short.
  enum class Foreseen : uint8_t { kNoRoom, kInHole, kInNewChunk };
  Foreseen Foresee(SmallPiece* piece, bool is_paid);

  // A request is over, the charge that it did not need given back.
  void Done() { under_way_.fetch_sub(1, std::memory_order_release); }

  // True while a request is under way: it may leave a place, or a chunk's charge.
  bool busy() const { return under_way_.load(std::memory_order_acquire) > 0; }

  // Chunks that hold a piece now: what is charged, but for requests under way.
  uint64_t chunks();

 private:
  static constexpr size_t kWords = kChunkUnits / 64;
  static constexpr size_t kFirstRoom = 16;
  static constexpr uint32_t kMostSurprises = 8;

  struct Chunk {
    uint64_t number;  // address / 2 MiB; 0: a free place in the table
    uint64_t heap;
    uint32_t pieces;   // placed
    uint32_t leaving;  // on their way out
    bool is_opaque;    // the driver did not use a hole of its: something unknown lies there
    uint64_t used[kWords];

    bool open() const { return pieces + leaving > 0; }
  };

  // A run of free units, as of when it was last looked at; only a placement makes it shorter.
  struct Run {
    uint64_t number;
    uint32_t first;
    uint32_t count;
  };

  Chunk* Find(uint64_t number);
  Chunk* FindOrAdd(uint64_t number);
  bool Grow();
  static void Mark(Chunk* chunk, uint32_t first, uint32_t count, bool used);
  static uint32_t FreeFrom(const Chunk& chunk, uint32_t first);
  static Run NextRun(const Chunk& chunk, uint32_t from);
  Run SmallestRun(uint64_t heap, uint32_t count);
  void Remember(const Chunk& chunk, uint32_t first, uint32_t count);
  bool HasRoom(uint64_t heap, uint32_t count, bool thorough);
  void BeSurprised();
  uint32_t Spare();
  ChunkDue EndRequest(uint64_t bytes, bool paid, bool opened);
  void Place(Chunk* chunk, uint64_t heap, uint32_t first, uint32_t count);

  SpinLock lock_;
  Chunk* chunks_;
  size_t room_;  // a power of two, or 0
  size_t used_;  // places taken, by chunks that are gone, too
  uint64_t open_;
  uint64_t foreseen_;
  Run hint_;
  uint64_t unpaid_heap_;
  uint32_t unpaid_;        // requests under way that rely on holes
  uint32_t unpaid_units_;  // what they need together
  uint32_t paid_;          // requests under way that brought a chunk's charge
  uint32_t spare_;         // charges that no chunk needs, kept while somebody relies on holes
  uint32_t owed_;          // chunks opened on what somebody under way brings, or leaves
  uint32_t leaving_;       // frees under way: the last piece's leaves a chunk's charge
  uint32_t surprises_;
  std::atomic<uint32_t> under_way_;
};

}  // namespace gpufence
