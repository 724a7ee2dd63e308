// A grant for memory that the driver places in chunks: from before its call until it is known where
// the memory came to lie, or that it did not. Must not know CUDA.
#pragma once

#include <stdint.h>

#include "policy/account.h"
#include "policy/chunks.h"

namespace gpufence {

// What never shares a chunk with another kind, or with another context's.
enum class HeapKind : uint8_t {
  kLinear,
  kManaged,
};

constexpr uint64_t HeapOf(uint64_t context, HeapKind kind) {
  return context * 4 + static_cast<uint64_t>(kind);
}

class PieceGrant {
 public:
  // Granted unless it does not fit, dead processes reclaimed and room made. Waits for other
  // threads' pieces that are under way, a moment at most: they may leave a place, or a chunk's
  // charge.
  PieceGrant(Account* account, ChunkTable* chunks, uint64_t context, HeapKind kind, uint64_t bytes,
             Tier tier = Tier::kDevice);

  // Gives back what was not placed.
  ~PieceGrant() {
    if (stage_ != Stage::kPlaced) [[unlikely]]
      GiveUp(asked_, address_, stage_);
  }
  PieceGrant(const PieceGrant&) = delete;
  PieceGrant& operator=(const PieceGrant&) = delete;

  explicit operator bool() const { return stage_ != Stage::kRefused; }

  // After the driver's call, which succeeded. False: it took a chunk for this piece that nobody can
  // pay, and the caller frees the memory before the grant ends. Otherwise the charge stays, and
  // EndPiece gives it back.
  bool Placed(uint64_t address);

 private:
  enum class Stage : uint8_t { kRefused, kUnpaid, kPaid, kWhole, kPlaced, kUndone };
  using Room = ChunkTable::Room;
  using Reserve = bool (Account::*)(uint64_t, Tier);

  struct Asked {
    Account* account;
    ChunkTable* chunks;
    uint64_t heap;
    uint64_t bytes;
    Tier tier;
  };

  // What seldom runs takes copies: see hooks/fence.h.
  static Room AskOnce(const Asked& asked, Reserve reserve, Stage* stage);
  static Room PayOnce(const Asked& asked, Reserve reserve, Stage* stage);
  [[gnu::noinline]] static Stage Pay(Asked asked);
  [[gnu::noinline]] static Stage Settle(Asked asked, ChunkDue due, uint64_t address);
  [[gnu::cold, gnu::noinline]] static void GiveUp(Asked asked, uint64_t address, Stage stage);

  Asked asked_;
  uint64_t address_ = 0;
  Stage stage_;
};

// The second half of a small piece's end, after the driver's free: the first, before it, is
// ChunkTable::Leave.
void EndPiece(Account* account, ChunkTable* chunks, const SmallPiece& piece,
              Tier tier = Tier::kDevice);

// Takes the first half back, where the driver refused.
void KeepSmallPiece(Account* account, ChunkTable* chunks, const SmallPiece& piece,
                    Tier tier = Tier::kDevice);

}  // namespace gpufence
