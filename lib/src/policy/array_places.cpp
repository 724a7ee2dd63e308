#include "policy/array_places.h"

#include <string.h>

#include "base/forked.h"

namespace gpufence {
namespace {

constexpr uint64_t kSomewhere = 0;  // the first chunk has number 1

uint32_t Units(uint64_t bytes) {
  return static_cast<uint32_t>(RoundUp(bytes, kSmallStep) / kSmallStep);
}

}  // namespace

// Lock held.
bool ArrayPlaces::TryBegin() {
  if (calls_ > 0 && !out_of_turn_) [[unlikely]]
    return false;
  ++calls_;
  return true;
}

bool ArrayPlaces::TryEnter() {
  SpinGuard guard(&lock_);
  return TryBegin();
}

bool ArrayPlaces::TryEnterAndTake(uint64_t heap, uint64_t bytes, uint64_t* place, Found* found) {
  SpinGuard guard(&lock_);
  if (!TryBegin()) return false;
  *found = Foresee(heap, bytes, place);
  return true;
}

void ArrayPlaces::EnterOutOfTurn() {
  SpinGuard guard(&lock_);
  if (calls_++ > 0) out_of_turn_ = true;
}

// Lock held.
void ArrayPlaces::End() {
  if (--calls_ == 0 && open_ + unknown_ == 0) out_of_turn_ = false;
}

void ArrayPlaces::Leave() {
  SpinGuard guard(&lock_);
  End();
}

// For one hole more than there are.
bool ArrayPlaces::Grow() {
  const size_t room = room_ != 0 ? room_ * 2 : kFirstRoom;
  auto* made = static_cast<Hole*>(MapWipedOnFork(room * sizeof(Hole)));
  if (made == nullptr) return false;
  if (holes_ != nullptr) {
    memcpy(made, holes_, used_ * sizeof(Hole));
    UnmapWipedOnFork(holes_, room_ * sizeof(Hole));
  }
  holes_ = made;
  room_ = room;
  return true;
}

// The hole that the driver chooses; null when `count` units fit in none.
ArrayPlaces::Hole* ArrayPlaces::Best(uint64_t heap, uint32_t count) {
  Hole* best = nullptr;
  for (size_t i = 0; i < used_; ++i) {
    Hole* hole = &holes_[i];
    if (hole->heap != heap || hole->count < count) continue;
    if (best == nullptr || hole->count < best->count ||
        (hole->count == best->count && hole->born < best->born)) {
      best = hole;
    }
  }
  return best;
}

ArrayPlaces::Found ArrayPlaces::Take(uint64_t heap, uint64_t bytes, uint64_t* place) {
  SpinGuard guard(&lock_);
  return Foresee(heap, bytes, place);
}

// Lock held. Taken off the front of a hole; what is left of it is the youngest.
ArrayPlaces::Found ArrayPlaces::Foresee(uint64_t heap, uint64_t bytes, uint64_t* place) {
  const uint32_t count = Units(bytes);
  Hole* hole = out_of_turn_ ? nullptr : Best(heap, count);
  const bool has_hole = hole != nullptr;
  if (!has_hole) {
    if (out_of_turn_ || !MakeRoom()) [[unlikely]] {
      out_of_turn_ = true;
      ++unknown_;
      *place = kSomewhere;
      return Found::kSomewhere;
    }
    hole = &holes_[used_++];
    *hole = {heap, ++made_, 0, 0, kUnits};
    ++open_;
  }
  taken_born_ = hole->born;
  *place = hole->chunk * kChunkBytes + uint64_t{hole->first} * kSmallStep;
  hole->first += count;
  hole->count -= count;
  hole->born = ++births_;
  if (hole->count == 0) Erase(hole);
  return has_hole ? Found::kHole : Found::kNewChunk;
}

ArrayPlaces::Due ArrayPlaces::Give(uint64_t heap, uint64_t place, uint64_t bytes) {
  SpinGuard guard(&lock_);
  return Return(heap, place, bytes, ++births_);
}

ArrayPlaces::Due ArrayPlaces::GiveAndLeave(uint64_t heap, uint64_t place, uint64_t bytes) {
  SpinGuard guard(&lock_);
  const Due due = Return(heap, place, bytes, ++births_);
  End();
  return due;
}

ArrayPlaces::Due ArrayPlaces::Undo(uint64_t heap, uint64_t place, uint64_t bytes) {
  SpinGuard guard(&lock_);
  return Return(heap, place, bytes, taken_born_);
}

// Lock held. Joined with what is free on either side.
ArrayPlaces::Due ArrayPlaces::Return(uint64_t heap, uint64_t place, uint64_t bytes, uint64_t born) {
  if (place == kSomewhere) {
    --unknown_;
    return Due::kNothing;
  }
  Hole made = {heap, place / kChunkBytes, born,
               static_cast<uint32_t>(place % kChunkBytes / kSmallStep), Units(bytes)};
  for (size_t i = used_; i-- > 0;) {
    const Hole& hole = holes_[i];
    if (hole.chunk != made.chunk) continue;
    if (hole.first + hole.count != made.first && made.first + made.count != hole.first) continue;
    if (hole.first < made.first) made.first = hole.first;
    made.count += hole.count;
    Erase(&holes_[i]);
  }
  if (made.count == kUnits) {
    --open_;
    return out_of_turn_ ? Due::kUnknown : Due::kChunk;
  }
  // Forgotten where no memory is left for it: then chunks are not what is foreseen.
  if (MakeRoom()) {
    holes_[used_++] = made;
  } else {
    out_of_turn_ = true;
  }
  return Due::kNothing;
}

uint64_t ArrayPlaces::chunks() {
  SpinGuard guard(&lock_);
  return open_;
}

}  // namespace gpufence
