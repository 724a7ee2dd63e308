// Where the small arrays of one device lie. The driver places those below 2 MiB like any small
// piece, in shared chunks: in the smallest hole of their heap that fits, the oldest of several
// (docs/memory-limiter-details.md). But arrays have no address, so their places are foreseen, by
// the same rule, from where all the others lie.
//
// Two calls that place or free arrays at the same time would leave open for good which of them came
// first; so they take turns. Once somebody did not get a turn, nothing is foreseen until no array
// is left: each costs a chunk then, and what leaves a chunk leaves its charge behind, to be set
// right when the driver is asked what it holds.
//
// Process-local, wiped on fork. Any thread; the lock is held for a few instructions. Must not know
// the ledger, nor CUDA.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/locks.h"
#include "policy/charge.h"

namespace gpufence {

// Arrays share chunks with others of their context whose elements are as large.
constexpr uint64_t ArrayHeapOf(uint64_t context, uint32_t element_bytes) {
  return context * 32 + element_bytes;  // 16 at most; contexts are addresses
}

class ArrayPlaces {
 public:
  // Around a call that places or frees an array. The first is false while another one is under way;
  // the second does not wait for it.
  bool TryEnter();
  [[gnu::cold, gnu::noinline]] void EnterOutOfTurn();
  void Leave();

  // Where an array will lie. The caller pays a chunk for it, unless a hole was found.
  enum class Found : uint8_t {
    kHole,
    kNewChunk,
    kSomewhere,  // nobody can tell where
  };
  Found Take(uint64_t heap, uint64_t bytes, uint64_t* place);

  // TryEnter, then Take, in one step.
  bool TryEnterAndTake(uint64_t heap, uint64_t bytes, uint64_t* place, Found* found);

  enum class Due : uint8_t {
    kNothing,
    kChunk,    // nothing lies in it any more
    kUnknown,  // a chunk in which others may lie
  };
  Due Give(uint64_t heap, uint64_t place, uint64_t bytes);

  // Give, then Leave, in one step.
  Due GiveAndLeave(uint64_t heap, uint64_t place, uint64_t bytes);

  // The same in the turn of Take, when the driver took nothing.
  Due Undo(uint64_t heap, uint64_t place, uint64_t bytes);

  // Chunks that hold a piece by what is known.
  uint64_t chunks();

 private:
  static constexpr uint32_t kUnits = kChunkBytes / kSmallStep;
  static constexpr size_t kFirstRoom = 64;

  struct Hole {
    uint64_t heap;
    uint64_t chunk;
    uint64_t born;
    uint32_t first;
    uint32_t count;
  };

  bool TryBegin();
  void End();
  Found Foresee(uint64_t heap, uint64_t bytes, uint64_t* place);
  bool MakeRoom() { return used_ < room_ || Grow(); }
  [[gnu::cold, gnu::noinline]] bool Grow();
  Due Return(uint64_t heap, uint64_t place, uint64_t bytes, uint64_t born);
  Hole* Best(uint64_t heap, uint32_t count);
  void Erase(Hole* hole) { *hole = holes_[--used_]; }

  SpinLock lock_;
  Hole* holes_;
  size_t room_;
  size_t used_;
  uint64_t births_;
  uint64_t taken_born_;  // of the hole that was taken last
  uint64_t made_;        // chunks ever
  uint64_t open_;        // chunks
  uint64_t unknown_;     // pieces that lie somewhere
  uint32_t calls_;       // under way
  bool out_of_turn_;     // some of them at the same time, since there were arrays
};

}  // namespace gpufence
