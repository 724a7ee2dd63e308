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
    : account_(account), chunks_(chunks), piece_{HeapOf(context, kind), 0, bytes}, tier_(tier) {
  if (!IsSmall(bytes)) {
    stage_ = account->Reserve(RoundUp(bytes, kChunkBytes), tier) ? Stage::kWhole : Stage::kRefused;
  } else if (chunks->Rely(piece_.heap, bytes)) [[likely]] {
    stage_ = Stage::kUnpaid;  // a hole that is known costs nothing
  } else {
    stage_ = Pay(account, chunks, piece_.heap, bytes, tier);
  }
}

// A chunk is charged, which goes back when it turns out that the driver had a hole. What costs
// driver calls of ours comes last.
PieceGrant::Stage PieceGrant::Pay(Account* account, ChunkTable* chunks, uint64_t heap,
                                  uint64_t bytes, Tier tier) {
  Stage stage = Stage::kRefused;
  Room room = PayOnce(account, chunks, heap, bytes, tier, &Account::TryReserve, &stage);
  for (int turn = 0; turn < kWaits && room == Room::kMaybe; ++turn) {
    Wait(turn);
    room = AskOnce(account, chunks, heap, bytes, tier, &Account::TryReserve, &stage);
  }
  if (stage == Stage::kRefused) {
    AskOnce(account, chunks, heap, bytes, tier, &Account::Reserve, &stage);
  }
  return stage;
}

ChunkTable::Room PieceGrant::AskOnce(Account* account, ChunkTable* chunks, uint64_t heap,
                                     uint64_t bytes, Tier tier, Reserve reserve, Stage* stage) {
  *stage = Stage::kUnpaid;
  if (chunks->Rely(heap, bytes)) return Room::kHole;
  return PayOnce(account, chunks, heap, bytes, tier, reserve, stage);
}

// After Rely, which found no hole.
ChunkTable::Room PieceGrant::PayOnce(Account* account, ChunkTable* chunks, uint64_t heap,
                                     uint64_t bytes, Tier tier, Reserve reserve, Stage* stage) {
  if ((account->*reserve)(kChunkBytes, tier)) {
    chunks->Paid();
    *stage = Stage::kPaid;
    return Room::kHole;
  }
  const Room room = chunks->NotPaid(heap, bytes);
  *stage = room == Room::kHole ? Stage::kUnpaid : Stage::kRefused;
  return room;
}

bool PieceGrant::Placed(uint64_t address) {
  if (stage_ == Stage::kUnpaid || stage_ == Stage::kPaid) {
    piece_.address = address;
    const ChunkDue due = chunks_->Placed(piece_, stage_ == Stage::kPaid);
    if (due != ChunkDue::kNothing) [[unlikely]] {
      stage_ = Settle(account_, chunks_, due, address, tier_);
      return stage_ == Stage::kPlaced;
    }
  }
  stage_ = Stage::kPlaced;
  return true;
}

PieceGrant::Stage PieceGrant::Settle(Account* account, ChunkTable* chunks, ChunkDue due,
                                     uint64_t address, Tier tier) {
  GiveBack(account, chunks, due, tier);
  if (due != ChunkDue::kUnpaid || account->TryReserve(kChunkBytes, tier)) return Stage::kPlaced;
  SmallPiece undone;
  chunks->Leave(address, &undone);
  return Stage::kUndone;
}

void PieceGrant::GiveUp(Account* account, ChunkTable* chunks, uint64_t heap, uint64_t address,
                        uint64_t bytes, Tier tier, Stage stage) {
  switch (stage) {
    case Stage::kRefused:
    case Stage::kPlaced:
      return;
    case Stage::kWhole:
      account->Release(RoundUp(bytes, kChunkBytes), tier);
      return;
    case Stage::kUnpaid:
    case Stage::kPaid:
      EndCharge(account, chunks, chunks->Failed(stage == Stage::kPaid), tier);
      return;
    case Stage::kUndone:
      // Its chunk was never paid, and somebody else's piece may lie in it by now.
      account->Book(kChunkBytes, tier);
      EndPiece(account, chunks, {heap, address, bytes}, tier);
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
