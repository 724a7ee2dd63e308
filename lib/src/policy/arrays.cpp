#include "policy/arrays.h"

#include <string.h>

#include "base/forked.h"
#include "policy/account.h"
#include "policy/patience.h"

namespace gpufence {

// ---- places ----

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

// ---- grants ----

namespace {

using Due = ArrayPlaces::Due;
using Found = ArrayPlaces::Found;

// A tenth of a second in all, longer than others wait: what is foreseen is lost behind it, and on a
// crowded machine whoever has the turn may not run for a while.
constexpr int kTurnWaits = 1500;

// A chunk's charge that the next reading of the overhead keeps or gives back.
void BecomeOverhead(Account* account) {
  account->LooseOverhead(kChunkBytes, kChunkBytes);
  account->MarkStale();
}

// Calls enter() until it is the caller's turn. False: it entered out of turn.
template <typename Enter>
bool WaitUntil(ArrayPlaces* places, Enter enter) {
  for (int turn = 0; turn < kTurnWaits; ++turn) {
    Wait(turn);
    if (enter()) return true;
  }
  places->EnterOutOfTurn();
  return false;
}

[[gnu::cold, gnu::noinline]] void EnterLate(ArrayPlaces* places) {
  WaitUntil(places, [=] { return places->TryEnter(); });
}

[[gnu::cold, gnu::noinline]] Found TakeLate(ArrayPlaces* places, uint64_t heap, uint64_t bytes,
                                            uint64_t* place) {
  Found found = Found::kSomewhere;
  const auto enter = [&] { return places->TryEnterAndTake(heap, bytes, place, &found); };
  return WaitUntil(places, enter) ? found : places->Take(heap, bytes, place);
}

void PayDue(Account* account, Due due) {
  if (due == Due::kChunk) account->Release(kChunkBytes);
  if (due == Due::kUnknown) BecomeOverhead(account);
}

}  // namespace

void ArrayTurn::Begin(ArrayPlaces* places) {
  places_ = places;
  if (!places->TryEnter()) EnterLate(places);
}

ArrayPlaces::Found ArrayTurn::BeginTaking(ArrayPlaces* places, uint64_t heap, uint64_t bytes,
                                          uint64_t* place) {
  places_ = places;
  Found found = Found::kSomewhere;
  if (places->TryEnterAndTake(heap, bytes, place, &found)) [[likely]]
    return found;
  return TakeLate(places, heap, bytes, place);
}

void ArrayTurn::EndFreeing(Account* account, uint64_t heap, uint64_t place, uint64_t bytes) {
  PayDue(account, places_->GiveAndLeave(heap, place, bytes));
  places_ = nullptr;
}

ArrayGrant::ArrayGrant(Account* account, ArrayPlaces* places, uint64_t heap, uint64_t bytes)
    : account_(account), places_(places), heap_(heap), bytes_(bytes), stage_(Ask()) {}

// A chunk that is not paid yet is seen by nobody else: they wait for their turn, or foresee
// nothing.
ArrayGrant::Stage ArrayGrant::Ask() {
  const Found found = Take();
  if (found == Found::kHole) return Stage::kPlaced;
  if (!account_->TryReserve(kChunkBytes)) [[unlikely]]
    return AskAgain();
  return found == Found::kSomewhere ? Stage::kSomewhere : Stage::kPlaced;
}

// Where there is no room at once it is made, which may take long, while others have their turn.
ArrayGrant::Stage ArrayGrant::AskAgain() {
  places_->Undo(heap_, place_, bytes_);  // whose chunk nobody paid
  turn_.End();
  if (!account_->Reserve(kChunkBytes)) return Stage::kRefused;
  const Found found = Take();
  if (found == Found::kHole) account_->Release(kChunkBytes);
  return found == Found::kSomewhere ? Stage::kSomewhere : Stage::kPlaced;
}

void ArrayGrant::Keep() {
  if (stage_ == Stage::kSomewhere) BecomeOverhead(account_);
  stage_ = Stage::kKept;
}

ArrayGrant::~ArrayGrant() {
  if (stage_ == Stage::kRefused || stage_ == Stage::kKept) return;
  if (stage_ == Stage::kSomewhere) account_->Release(kChunkBytes);
  PayDue(account_, places_->Undo(heap_, place_, bytes_));
}

void EndArray(Account* account, ArrayPlaces* places, uint64_t heap, uint64_t place,
              uint64_t bytes) {
  PayDue(account, places->Give(heap, place, bytes));
}

}  // namespace gpufence
