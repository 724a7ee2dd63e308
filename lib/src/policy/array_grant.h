// A grant for a small array: from before the driver's call until the array is there, or is not.
// Must not know CUDA.
#pragma once

#include <stdint.h>

#include "policy/account.h"
#include "policy/array_places.h"

namespace gpufence {

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
