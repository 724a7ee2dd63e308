// Pieces below 2 MiB of one device: which chunks of 2 MiB they lie in and where those still have
// room, and the grant for one piece from before the driver's call until it is known where the
// memory came to lie, or that it did not. The only record of such pieces: where each begins and
// ends. Must not know CUDA; the table knows no ledger either.
//
// The driver places pieces below 2 MiB in shared chunks, in steps of 512 bytes, and holds a chunk
// from its first piece to its last; so a chunk is what is charged. A new one is taken only when no
// chunk of the same heap has a hole that fits (docs/memory-limiter-details.md). Holes are known
// here, so that a request which needs no chunk asks for none.
//
// The protocol. A request has paid a chunk, or relies on a hole; a free has begun, or is over. What
// those under way have done is learned only when they settle, so a hole may be gone that is seen
// here:
//   1. One request at a time relies on a hole. If it opens a chunk all the same, then since it
//      began somebody took the hole who had paid, or the hole's chunk went: either leaves a charge
//      over.
//   2. The first charge left over while somebody relies on a hole is kept until that one settles.
//   3. If it settles first, its chunk is owed: the charge is still with one who is under way, and
//      that one's hole is still seen here. Nobody relies on a hole until it is paid, or else the
//      same charge would have to pay for a second chunk.
//   4. A hole is not relied on while a free in its chunk is under way.
// So the chunks that the driver holds are at every moment no more than those that are charged.
// tests/state/state_chunk_orders.cpp goes through the orders.
//
// The table is process-local and wiped on fork. Any thread; the lock is held for a few
// instructions.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "base/locks.h"
#include "policy/account.h"
#include "policy/charge.h"

namespace gpufence {

inline constexpr uint32_t kChunkUnits = kChunkBytes / kSmallStep;

// A piece: where it lies, and which heap places it (contexts share none with each other, nor does
// one kind of memory with another).
struct SmallPiece {
  uint64_t heap;
  uint64_t address;
  uint64_t bytes;
};

// What a caller does next about a chunk's charge.
enum class ChunkDue : uint8_t {
  kNothing,
  kSurplus,  // it is not needed any more: give it back, then call GaveBack
  kUnpaid,   // a chunk was opened that nobody paid: pay it, or free the piece
};

class ChunkTable {
 public:
  // How a request begins. True: it relies on a hole, where there was room last. False: the caller
  // asks for a chunk's charge, then calls one of the two below.
  bool Rely(uint64_t heap, uint64_t bytes);
  void Paid();

  // The charge was refused. kHole: another hole was found, and is relied on. kMaybe: others are
  // under way, who may leave a place or a chunk's charge. The request is not under way, but for
  // kHole.
  enum class Room : uint8_t { kHole, kMaybe, kNone };
  Room NotPaid(uint64_t heap, uint64_t bytes);

  // After the driver's call. kUnpaid comes when the driver did what was not foreseen; the holes of
  // that moment are not relied on any more, and after a few surprises none is.
  ChunkDue Placed(const SmallPiece& piece, bool paid);

  // After a call that failed, or was not made.
  ChunkDue Failed(bool paid);

  // Finds the piece that begins at `address`; its bytes come in whole steps. False: none does.
  bool Find(uint64_t address, SmallPiece* piece);

  // The same as a free begins: its place is no piece's any more, and nobody's hole yet.
  bool Leave(uint64_t address, SmallPiece* piece);
  ChunkDue Stay(const SmallPiece& piece);  // the driver refused
  ChunkDue Left(uint64_t address);

  // Begins the end of any piece of a heap that ends as a whole. False: it has none left. `from`:
  // 0 at first; where the last one was found.
  bool LeaveAny(uint64_t heap, size_t* from, SmallPiece* piece);

  // After kSurplus.
  void GaveBack();

  // True while anything is under way.
  bool busy();

  // Chunks that hold a piece now: what is charged, but for requests under way.
  uint64_t chunks() const { return open_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kWords = kChunkUnits / 64;
  static constexpr uint32_t kFirstRoom = 16;
  static constexpr uint32_t kMostSurprises = 8;

  // 64 units, a bit each, side by side: who looks at one of the two needs the other. Used units
  // without a gap begin with a piece, also where pieces overlapped: a chunk without pieces has
  // none, and is opened as it is.
  struct Units {
    uint64_t used;
    uint64_t begins;  // a piece does
  };

  // What is asked of a chunk lies on one cache line with its first units.
  struct alignas(64) Chunk {
    uint64_t number;  // address / 2 MiB; 0: a free place in the table
    uint64_t heap;
    uint32_t pieces;   // placed
    uint32_t leaving;  // on their way out
    bool is_opaque;    // the driver did not use a hole of its: something unknown lies there
    Units units[kWords];

    bool open() const { return pieces + leaving > 0; }
  };

  // A run of free units, as of when it was last looked at; only a placement makes it shorter.
  struct Run {
    uint64_t number;
    uint32_t first;
    uint32_t count;
  };

  Chunk* Find(uint64_t number);
  [[gnu::cold, gnu::noinline]] Chunk* Add(uint64_t number);
  [[gnu::cold, gnu::noinline]] bool Grow();
  void Open(Chunk* chunk);
  [[gnu::cold, gnu::noinline]] void Close(const Chunk& chunk);
  static uint32_t UnitsOf(const Chunk& chunk, uint32_t first);
  static bool Read(const Chunk* chunk, uint32_t first, SmallPiece* piece);
  static void Put(Chunk* chunk, uint32_t first, uint32_t count);
  static void Remove(Chunk* chunk, uint32_t first, uint32_t count);
  void BeginLeaving(Chunk* chunk, const SmallPiece& piece);
  static uint32_t FreeFrom(const Chunk& chunk, uint32_t first);
  static Run NextRun(const Chunk& chunk, uint32_t from);
  Run SmallestRun(uint64_t heap, uint32_t count);
  void Remember(const Chunk& chunk, uint32_t first, uint32_t count);
  bool TryRely(uint64_t heap, uint32_t count, bool thorough);
  bool IsBusy() const;
  void BeSurprised();
  ChunkDue Spare();
  ChunkDue OrOwed(ChunkDue due);
  ChunkDue EndRequest(bool paid, bool opened);

  // What every request reads lies on one cache line: behind a driver call it is cold.
  alignas(64) [[no_unique_address]] BiasedLock lock_;
  bool is_relied_on_;  // a request under way relies on a hole
  bool is_kept_;       // a charge was left over meanwhile, and is that one's should it need it
  bool owed_;          // it needed one and none was left over yet
  uint8_t surprises_;
  Chunk* chunks_;
  uint32_t room_;               // a power of two, or 0
  std::atomic<uint32_t> open_;  // chunks that hold a piece; written under the lock
  Run hint_;
  uint32_t asking_;     // requests that may be about to pay
  uint32_t paid_;       // requests under way that brought a chunk's charge
  uint32_t leaving_;    // frees under way: the last piece's leaves a chunk's charge
  uint32_t returning_;  // charges on their way back to the ledger

  uint32_t used_;  // places taken, by chunks that are gone, too
};

// What never shares a chunk with another kind, or with another context's.
enum class HeapKind : uint8_t {
  kLinear,
  kManaged,
};

constexpr uint64_t HeapOf(uint64_t context, HeapKind kind) {
  return context * 4 + static_cast<uint64_t>(kind);
}

class PieceGrant {
 public:
  // Granted unless it does not fit, dead processes reclaimed and room made. Waits for other
  // threads' pieces that are under way, a moment at most: they may leave a place, or a chunk's
  // charge.
  PieceGrant(Account* account, ChunkTable* chunks, uint64_t context, HeapKind kind, uint64_t bytes,
             Tier tier = Tier::kDevice);

  // Gives back what was not placed.
  ~PieceGrant() {
    if (stage_ != Stage::kPlaced) [[unlikely]]
      GiveUp(asked_, address_, stage_);
  }
  PieceGrant(const PieceGrant&) = delete;
  PieceGrant& operator=(const PieceGrant&) = delete;

  explicit operator bool() const { return stage_ != Stage::kRefused; }

  // After the driver's call, which succeeded. False: it took a chunk for this piece that nobody can
  // pay, and the caller frees the memory before the grant ends. Otherwise the charge stays, and
  // EndPiece gives it back.
  bool Placed(uint64_t address);

 private:
  enum class Stage : uint8_t { kRefused, kUnpaid, kPaid, kWhole, kPlaced, kUndone };
  using Room = ChunkTable::Room;
  using Reserve = bool (Account::*)(uint64_t, Tier);

  struct Asked {
    Account* account;
    ChunkTable* chunks;
    uint64_t heap;
    uint64_t bytes;
    Tier tier;
  };

  // What seldom runs takes copies: see hooks/fence.h.
  static Room AskOnce(const Asked& asked, Reserve reserve, Stage* stage);
  static Room PayOnce(const Asked& asked, Reserve reserve, Stage* stage);
  [[gnu::noinline]] static Stage Pay(Asked asked);
  [[gnu::noinline]] static Stage Settle(Asked asked, ChunkDue due, uint64_t address);
  [[gnu::cold, gnu::noinline]] static void GiveUp(Asked asked, uint64_t address, Stage stage);

  Asked asked_;
  uint64_t address_ = 0;
  Stage stage_;
};

// The second half of a small piece's end, after the driver's free: the first, before it, is
// ChunkTable::Leave.
void EndPiece(Account* account, ChunkTable* chunks, const SmallPiece& piece,
              Tier tier = Tier::kDevice);

// Takes the first half back, where the driver refused.
void KeepSmallPiece(Account* account, ChunkTable* chunks, const SmallPiece& piece,
                    Tier tier = Tier::kDevice);

}  // namespace gpufence
