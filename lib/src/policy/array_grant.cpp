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

void Settle(Account* account, Due due) {
  if (due == Due::kChunk) account->Release(kChunkBytes);
  if (due == Due::kUnknown) BecomeOverhead(account);
}

}  // namespace

void ArrayTurn::Begin(ArrayPlaces* places) {
  places_ = places;
  for (int turn = 0; turn < kTurnWaits; ++turn) {
    if (places->TryEnter()) [[likely]]
      return;
    Wait(turn);
  }
  places->EnterOutOfTurn();
}

ArrayGrant::ArrayGrant(Account* account, ArrayPlaces* places, uint64_t heap, uint64_t bytes)
    : account_(account), places_(places), heap_(heap), bytes_(bytes), stage_(Ask()) {}

// Where there is no room at once it is made, which may take long, while others have their turn.
ArrayGrant::Stage ArrayGrant::Ask() {
  turn_.Begin(places_);
  if (places_->Take(heap_, bytes_, /*is_paid=*/false, &place_) == Found::kHole) {
    return Stage::kPlaced;
  }
  if (!account_->TryReserve(kChunkBytes)) [[unlikely]] {
    turn_.End();
    if (!account_->Reserve(kChunkBytes)) return Stage::kRefused;
    turn_.Begin(places_);
  }
  const Found found = places_->Take(heap_, bytes_, /*is_paid=*/true, &place_);
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
