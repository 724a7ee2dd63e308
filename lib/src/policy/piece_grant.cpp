#include "policy/piece_grant.h"

#include "policy/patience.h"

namespace gpufence {
namespace {

void GiveBack(Account* account, ChunkTable* chunks, ChunkDue due, Tier tier) {
  if (due != ChunkDue::kSurplus) return;
  account->Release(kChunkBytes, tier);
  chunks->GaveBack();
}

// The same for those who can free nothing: what nobody paid counts against the next request.
void EndCharge(Account* account, ChunkTable* chunks, ChunkDue due, Tier tier) {
  GiveBack(account, chunks, due, tier);
  if (due == ChunkDue::kUnpaid) account->Book(kChunkBytes, tier);
}

}  // namespace

PieceGrant::PieceGrant(Account* account, ChunkTable* chunks, uint64_t context, HeapKind kind,
                       uint64_t bytes, Tier tier)
    : account_(account), chunks_(chunks), piece_{HeapOf(context, kind), 0, bytes}, tier_(tier) {
  if (!IsSmall(bytes)) {
    stage_ = account->Reserve(RoundUp(bytes, kChunkBytes), tier) ? Stage::kWhole : Stage::kRefused;
  } else {
    stage_ = Ask();
  }
}

// A hole that is known costs nothing; else a chunk is charged, which goes back when it turns out
// that the driver had a hole.
PieceGrant::Stage PieceGrant::Ask() {
  const ChunkTable::Room room = AskOnce(&Account::TryReserve);
  return stage_ != Stage::kRefused ? stage_ : AskAgain(room);
}

// What costs driver calls of ours comes last.
PieceGrant::Stage PieceGrant::AskAgain(ChunkTable::Room room) {
  using Room = ChunkTable::Room;
  for (int turn = 0; turn < kWaits && room == Room::kMaybe; ++turn) {
    Wait(turn);
    room = AskOnce(&Account::TryReserve);
  }
  if (stage_ == Stage::kRefused) AskOnce(&Account::Reserve);
  return stage_;
}

ChunkTable::Room PieceGrant::AskOnce(bool (Account::*reserve)(uint64_t, Tier)) {
  using Room = ChunkTable::Room;
  stage_ = Stage::kUnpaid;
  if (chunks_->Rely(piece_.heap, piece_.bytes)) return Room::kHole;
  if ((account_->*reserve)(kChunkBytes, tier_)) {
    chunks_->Paid();
    stage_ = Stage::kPaid;
    return Room::kHole;
  }
  const Room room = chunks_->NotPaid(piece_.heap, piece_.bytes);
  if (room != Room::kHole) stage_ = Stage::kRefused;
  return room;
}

bool PieceGrant::Placed(uint64_t address) {
  if (stage_ == Stage::kUnpaid || stage_ == Stage::kPaid) {
    piece_.address = address;
    const ChunkDue due = chunks_->Placed(piece_, stage_ == Stage::kPaid);
    GiveBack(account_, chunks_, due, tier_);
    if (due == ChunkDue::kUnpaid && !account_->TryReserve(kChunkBytes, tier_)) {
      chunks_->Leave(address, &piece_);
      stage_ = Stage::kUndone;
      return false;
    }
  }
  stage_ = Stage::kPlaced;
  return true;
}

void PieceGrant::GiveUp() {
  switch (stage_) {
    case Stage::kRefused:
    case Stage::kPlaced:
      return;
    case Stage::kWhole:
      account_->Release(RoundUp(piece_.bytes, kChunkBytes), tier_);
      return;
    case Stage::kUnpaid:
    case Stage::kPaid:
      EndCharge(account_, chunks_, chunks_->Failed(stage_ == Stage::kPaid), tier_);
      return;
    case Stage::kUndone:
      // Its chunk was never paid, and somebody else's piece may lie in it by now.
      account_->Book(kChunkBytes, tier_);
      EndPiece(account_, chunks_, piece_, tier_);
      return;
  }
}

void KeepSmallPiece(Account* account, ChunkTable* chunks, const SmallPiece& piece, Tier tier) {
  EndCharge(account, chunks, chunks->Stay(piece), tier);
}

void EndPiece(Account* account, ChunkTable* chunks, const SmallPiece& piece, Tier tier) {
  EndCharge(account, chunks, chunks->Left(piece.address), tier);
}

}  // namespace gpufence
