#include "policy/piece_grant.h"

#include <sched.h>
#include <time.h>

namespace gpufence {
namespace {

// Some twenty milliseconds in all: longer than a driver call that allocates, and shorter than a caller
// would mind where one hangs.
constexpr int kWaits = 300;
constexpr int kYields = 32;
constexpr timespec kWait{0, 5000};

void Wait(int turn) {
  if (turn < kYields) {
    sched_yield();
  } else {
    nanosleep(&kWait, nullptr);
  }
}

void GiveBack(Account* account, ChunkDue due) {
  if (due.surplus > 0) account->Release(due.surplus * kChunkBytes);
}

}  // namespace

PieceGrant::PieceGrant(Account* account, ChunkTable* chunks, uint64_t context, HeapKind kind,
                       uint64_t bytes)
    : account_(account), chunks_(chunks), piece_{HeapOf(context, kind), 0, bytes} {
  if (!IsSmall(bytes)) {
    stage_ = account->Reserve(RoundUp(bytes, kChunkBytes)) ? Stage::kWhole : Stage::kRefused;
  } else {
    stage_ = kind == HeapKind::kArrays ? AskForArray() : Ask();
  }
}

// A hole that is known costs nothing; else a chunk is charged, which goes back when it turns out that
// the driver had a hole. What costs driver calls of ours comes last.
PieceGrant::Stage PieceGrant::Ask() {
  for (int turn = 0; turn < kWaits; ++turn) {
    if (chunks_->EnterUnpaid(piece_.heap, piece_.bytes, /*thorough=*/false)) return Stage::kUnpaid;
    if (account_->TryReserve(kChunkBytes)) {
      chunks_->EnterPaid();
      return Stage::kPaid;
    }
    if (chunks_->EnterUnpaid(piece_.heap, piece_.bytes, /*thorough=*/true)) return Stage::kUnpaid;
    if (!chunks_->busy()) break;
    Wait(turn);
  }
  if (account_->Reserve(kChunkBytes)) {
    chunks_->EnterPaid();
    return Stage::kPaid;
  }
  const bool has_hole = chunks_->EnterUnpaid(piece_.heap, piece_.bytes, /*thorough=*/true);
  return has_hole ? Stage::kUnpaid : Stage::kRefused;
}

PieceGrant::Stage PieceGrant::AskForArray() {
  using Foreseen = ChunkTable::Foreseen;
  if (chunks_->Foresee(&piece_, /*is_paid=*/false) == Foreseen::kInHole) return Stage::kForeseen;
  if (!account_->Reserve(kChunkBytes)) return Stage::kRefused;
  const Foreseen place = chunks_->Foresee(&piece_, /*is_paid=*/true);
  if (place != Foreseen::kInNewChunk) account_->Release(kChunkBytes);
  return place == Foreseen::kNoRoom ? Stage::kRefused : Stage::kForeseen;
}

bool PieceGrant::Placed(uint64_t address) {
  if (stage_ == Stage::kUnpaid || stage_ == Stage::kPaid) {
    piece_.address = address;
    const ChunkDue due = chunks_->Placed(piece_, stage_ == Stage::kPaid);
    GiveBack(account_, due);
    chunks_->Done();
    if (due.is_unpaid && !account_->TryReserve(kChunkBytes)) {
      chunks_->Leave(piece_);
      stage_ = Stage::kUndone;
      return false;
    }
  }
  stage_ = Stage::kPlaced;
  return true;
}

PieceGrant::~PieceGrant() {
  switch (stage_) {
    case Stage::kRefused:
    case Stage::kPlaced:
      return;
    case Stage::kWhole:
      account_->Release(RoundUp(piece_.bytes, kChunkBytes));
      return;
    case Stage::kUnpaid:
    case Stage::kPaid:
      GiveBack(account_, chunks_->Failed(piece_.bytes, stage_ == Stage::kPaid));
      chunks_->Done();
      return;
    case Stage::kForeseen:
      chunks_->Leave(piece_);
      EndPiece(account_, chunks_, piece_);
      return;
    case Stage::kUndone: {
      // Its chunk was never paid. Should somebody else's piece lie in it by now, it must be.
      const ChunkDue due = chunks_->Left(piece_.address);
      if (due.surplus == 0) account_->Book(kChunkBytes);
      return;
    }
  }
}

void EndPiece(Account* account, ChunkTable* chunks, const SmallPiece& piece) {
  if (IsSmall(piece.bytes)) {
    GiveBack(account, chunks->Left(piece.address));
  } else {
    account->Release(RoundUp(piece.bytes, kChunkBytes));
  }
}

}  // namespace gpufence
