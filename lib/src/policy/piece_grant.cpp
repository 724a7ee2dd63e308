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
[[gnu::noinline]] void EndCharge(Account* account, ChunkTable* chunks, ChunkDue due, Tier tier) {
  GiveBack(account, chunks, due, tier);
  if (due == ChunkDue::kUnpaid) account->Book(kChunkBytes, tier);
}

}  // namespace

PieceGrant::PieceGrant(Account* account, ChunkTable* chunks, uint64_t context, HeapKind kind,
                       uint64_t bytes, Tier tier)
    : asked_{account, chunks, HeapOf(context, kind), bytes, tier} {
  if (!IsSmall(bytes)) {
    stage_ = account->Reserve(RoundUp(bytes, kChunkBytes), tier) ? Stage::kWhole : Stage::kRefused;
  } else if (chunks->Rely(asked_.heap, bytes)) [[likely]] {
    stage_ = Stage::kUnpaid;  // a hole that is known costs nothing
  } else {
    stage_ = Pay(asked_);
  }
}

// A chunk is charged, which goes back when it turns out that the driver had a hole. What costs
// driver calls of ours comes last.
PieceGrant::Stage PieceGrant::Pay(Asked asked) {
  Stage stage = Stage::kRefused;
  Room room = PayOnce(asked, &Account::TryReserve, &stage);
  for (int turn = 0; turn < kWaits && room == Room::kMaybe; ++turn) {
    Wait(turn);
    room = AskOnce(asked, &Account::TryReserve, &stage);
  }
  if (stage == Stage::kRefused) AskOnce(asked, &Account::Reserve, &stage);
  return stage;
}

ChunkTable::Room PieceGrant::AskOnce(const Asked& asked, Reserve reserve, Stage* stage) {
  *stage = Stage::kUnpaid;
  if (asked.chunks->Rely(asked.heap, asked.bytes)) return Room::kHole;
  return PayOnce(asked, reserve, stage);
}

// After Rely, which found no hole.
ChunkTable::Room PieceGrant::PayOnce(const Asked& asked, Reserve reserve, Stage* stage) {
  if ((asked.account->*reserve)(kChunkBytes, asked.tier)) {
    asked.chunks->Paid();
    *stage = Stage::kPaid;
    return Room::kHole;
  }
  const Room room = asked.chunks->NotPaid(asked.heap, asked.bytes);
  *stage = room == Room::kHole ? Stage::kUnpaid : Stage::kRefused;
  return room;
}

bool PieceGrant::Placed(uint64_t address) {
  if (stage_ == Stage::kUnpaid || stage_ == Stage::kPaid) {
    address_ = address;
    const ChunkDue due = asked_.chunks->Placed({asked_.heap, address, asked_.bytes},
                                               /*paid=*/stage_ == Stage::kPaid);
    if (due != ChunkDue::kNothing) [[unlikely]] {
      stage_ = Settle(asked_, due, address);
      return stage_ == Stage::kPlaced;
    }
  }
  stage_ = Stage::kPlaced;
  return true;
}

PieceGrant::Stage PieceGrant::Settle(Asked asked, ChunkDue due, uint64_t address) {
  GiveBack(asked.account, asked.chunks, due, asked.tier);
  if (due != ChunkDue::kUnpaid || asked.account->TryReserve(kChunkBytes, asked.tier)) {
    return Stage::kPlaced;
  }
  SmallPiece undone;
  asked.chunks->Leave(address, &undone);
  return Stage::kUndone;
}

void PieceGrant::GiveUp(Asked asked, uint64_t address, Stage stage) {
  switch (stage) {
    case Stage::kRefused:
    case Stage::kPlaced:
      return;
    case Stage::kWhole:
      asked.account->Release(RoundUp(asked.bytes, kChunkBytes), asked.tier);
      return;
    case Stage::kUnpaid:
    case Stage::kPaid:
      EndCharge(asked.account, asked.chunks, asked.chunks->Failed(stage == Stage::kPaid),
                asked.tier);
      return;
    case Stage::kUndone:
      // Its chunk was never paid, and somebody else's piece may lie in it by now.
      asked.account->Book(kChunkBytes, asked.tier);
      EndPiece(asked.account, asked.chunks, {asked.heap, address, asked.bytes}, asked.tier);
      return;
  }
}

void KeepSmallPiece(Account* account, ChunkTable* chunks, const SmallPiece& piece, Tier tier) {
  EndCharge(account, chunks, chunks->Stay(piece), tier);
}

void EndPiece(Account* account, ChunkTable* chunks, const SmallPiece& piece, Tier tier) {
  const ChunkDue due = chunks->Left(piece.address);
  if (due != ChunkDue::kNothing) [[unlikely]]
    EndCharge(account, chunks, due, tier);
}

}  // namespace gpufence
