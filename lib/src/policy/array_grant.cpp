#include "policy/array_grant.h"

#include "policy/patience.h"

namespace gpufence {
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

void Settle(Account* account, Due due) {
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
  Settle(account, places_->GiveAndLeave(heap, place, bytes));
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
  Settle(account_, places_->Undo(heap_, place_, bytes_));
}

void EndArray(Account* account, ArrayPlaces* places, uint64_t heap, uint64_t place,
              uint64_t bytes) {
  Settle(account, places->Give(heap, place, bytes));
}

}  // namespace gpufence
