// Small arrays of one device: where they lie, and the grant for one from before the driver's call
// until the array is there, or is not. The driver places arrays below 2 MiB like any small piece,
// in shared chunks: in the smallest hole of their heap that fits, the oldest of several
// (docs/memory-limiter-details.md). But arrays have no address, so their places are foreseen, by
// the same rule, from where all the others lie.
//
// Two calls that place or free arrays at the same time would leave open for good which of them came
// first; so they take turns. Once somebody did not get a turn, nothing is foreseen until no array
// is left: each costs a chunk then, and what leaves a chunk leaves its charge behind, to be set
// right when the driver is asked what it holds.
//
// Must not know CUDA. Places are process-local and wiped on fork, know no ledger, and hold their
// lock for a few instructions; any thread.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/locks.h"
#include "policy/account.h"
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

// A call that places or frees a small array: it waits for others, a moment at most.
class ArrayTurn {
 public:
  ArrayTurn() = default;
  ~ArrayTurn() { End(); }
  ArrayTurn(const ArrayTurn&) = delete;
  ArrayTurn& operator=(const ArrayTurn&) = delete;

  void Begin(ArrayPlaces* places);

  // The same for a call that places one: where, by what is known at once.
  ArrayPlaces::Found BeginTaking(ArrayPlaces* places, uint64_t heap, uint64_t bytes,
                                 uint64_t* place);

  void End() {
    if (places_ != nullptr) places_->Leave();
    places_ = nullptr;
  }

  // The same once the driver has freed the array that lay there: with its charge, where nothing
  // else lies in its chunk. Whoever has the next turn may ask for a chunk before that is given
  // back, as for any memory whose free has not returned.
  void EndFreeing(Account* account, uint64_t heap, uint64_t place, uint64_t bytes);

 private:
  ArrayPlaces* places_ = nullptr;
};

class ArrayGrant {
 public:
  // Granted unless a chunk is needed that does not fit, dead processes reclaimed and room made.
  ArrayGrant(Account* account, ArrayPlaces* places, uint64_t heap, uint64_t bytes);

  // Gives back what was not kept.
  ~ArrayGrant();
  ArrayGrant(const ArrayGrant&) = delete;
  ArrayGrant& operator=(const ArrayGrant&) = delete;

  explicit operator bool() const { return stage_ != Stage::kRefused; }

  // The driver made the array: its charge stays until EndArray.
  void Keep();

  // For EndArray.
  uint64_t place() const { return place_; }

 private:
  enum class Stage : uint8_t { kRefused, kPlaced, kSomewhere, kKept };

  Stage Ask();
  [[gnu::cold, gnu::noinline]] Stage AskAgain();
  ArrayPlaces::Found Take() { return turn_.BeginTaking(places_, heap_, bytes_, &place_); }

  Account* account_;
  ArrayPlaces* places_;
  uint64_t heap_;
  uint64_t bytes_;
  uint64_t place_ = 0;
  ArrayTurn turn_;
  Stage stage_;
};

// The end of an array that went without a call of its own, out of anybody's turn: with its context.
void EndArray(Account* account, ArrayPlaces* places, uint64_t heap, uint64_t place, uint64_t bytes);

}  // namespace gpufence
