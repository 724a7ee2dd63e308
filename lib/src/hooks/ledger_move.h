// Moves: the time between the ledger's word and the driver's deed. While one is under way the
// ledger counts bytes that the driver does not hold yet, or no longer, and a comparison of the two
// says less than the truth. Whoever compares looks here for a moment without any.
// And what else a thread is in the middle of.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <atomic>

namespace gpufence {

struct FencedDevice;
struct PoolAccount;

// What a thread of ours is in the middle of, in one place: each thread-local costs a look into the
// table of offsets, which is cold behind a driver call.
struct alignas(64) ThisThread {
  uint32_t hooks;          // of ours that it is inside of
  uint32_t moves;          // of its own that are under way (LedgerMove)
  uint32_t asking;         // of them: their bytes are not counted yet
  uint32_t moves_cell;     // which of every device's this thread writes; 0: none yet
  PoolAccount* last_pool;  // that it used (AccountOf)
  uintptr_t frame;         // where the outermost of the hooks is on the stack

  // The first reservation that is neither kept nor given back; null: none.
  const void* reservation;
  FencedDevice* device;
  uint64_t bytes;
  uint32_t tier;

  uint32_t making_room;  // not 0: pools are being trimmed for a request
};
extern constinit thread_local ThisThread this_thread;

// Chooses this_thread.moves_cell.
[[gnu::cold, gnu::noinline]] uint32_t ClaimMovesCell();

// The moves on a device. A thread has a cell of its own, which it writes without a locked
// instruction; those that come when all are taken share the last one. In a cell: moves under way
// (low half) and moves ever begun (high half).
class Moves {
 public:
  static constexpr uint32_t kCells = 32;

  // What one thread says of itself, or the threads that came last together.
  struct alignas(64) Cell {
    std::atomic<uint64_t> moves;
    std::atomic<uint64_t> ends;
    std::atomic<uint64_t> managed_bytes;  // what was charged less what was given back: wraps
  };

  // Of all cells together. Two equal readings without moves under way mean that there was none in
  // between either, since what a cell has begun never falls. What is read before a call of this is
  // compared with it, and what is read after.
  uint64_t Read() const {
    // With the release fence in Begin: who saw anything of a move sees that it has begun.
    std::atomic_thread_fence(std::memory_order_acquire);
    uint64_t sum = 0;
    for (const Cell& cell : cells_) sum += cell.moves.load(std::memory_order_acquire);
    return sum;
  }

  static constexpr uint64_t UnderWay(uint64_t moves) { return moves & UINT32_MAX; }

  // Returns the thread's cell, in which the move ends.
  Cell* Begin() {
    Cell* own = Own();
    Add(own, &Cell::moves, (uint64_t{1} << 32) + 1);
    std::atomic_thread_fence(std::memory_order_release);
    return own;
  }

  static void End(Cell* own) { Add(own, &Cell::moves, UINT64_MAX); }
  void End() { End(Own()); }

  // The thread's moves here never end: it was taken out of its calls by a jump. What the threads
  // say together cannot be told apart, and stays.
  void Abandon() {
    const uint32_t own = this_thread.moves_cell - 1;
    if (own >= kCells - 1) return;
    std::atomic<uint64_t>* moves = &cells_[own].moves;
    moves->store(moves->load(std::memory_order_relaxed) & ~uint64_t{UINT32_MAX},
                 std::memory_order_release);
  }

  // Managed memory, which is charged in full though it is resident only where it was touched: asked
  // between two equal readings without moves under way, what is charged.
  uint64_t ManagedBytes() const {
    uint64_t sum = 0;
    for (const Cell& cell : cells_) sum += cell.managed_bytes.load(std::memory_order_acquire);
    return sum;
  }

  // During the move that charges it, or gives it back.
  static void AddManaged(Cell* own, uint64_t bytes) { Add(own, &Cell::managed_bytes, bytes); }
  void AddManaged(uint64_t bytes) { AddManaged(Own(), bytes); }
  void TakeManaged(uint64_t bytes) { AddManaged(Own(), 0 - bytes); }

  // Contexts that ended: of the device (low half), and the primary one of them (high half). To be
  // told before what was allocated in it is given back: then who books something after that finds
  // the count changed. Each cell has its own, since who asks has just written there.
  void ContextEnded(bool primary) {
    for (Cell& cell : cells_) {
      cell.ends.fetch_add(primary ? kPrimaryEnd + 1 : 1, std::memory_order_seq_cst);
    }
  }

  // As this thread's cell has it: between Begin and End.
  static uint64_t Ends(const Cell* own) { return own->ends.load(std::memory_order_relaxed); }
  static constexpr bool IsPrimaryAmong(uint64_t before, uint64_t after) {
    return before / kPrimaryEnd != after / kPrimaryEnd;
  }

 private:
  static constexpr uint64_t kPrimaryEnd = uint64_t{1} << 32;

  Cell* Own() {
    const uint32_t own = this_thread.moves_cell - 1;
    if (own >= kCells - 1) [[unlikely]]
      return FindOwn();
    return &cells_[own];
  }

  // The thread has no cell yet, or shares the last one.
  [[gnu::cold, gnu::noinline]] Cell* FindOwn() {
    uint32_t own = this_thread.moves_cell;
    if (own == 0) own = ClaimMovesCell();
    return &cells_[own - 1];
  }

  static void Add(Cell* own, std::atomic<uint64_t> Cell::* word, uint64_t change) {
    if (this_thread.moves_cell >= kCells) [[unlikely]]
      return AddTogether(&(own->*word), change);
    const uint64_t seen = (own->*word).load(std::memory_order_relaxed);
    (own->*word).store(seen + change, std::memory_order_release);
  }

  [[gnu::cold, gnu::noinline]] static void AddTogether(std::atomic<uint64_t>* word,
                                                       uint64_t change) {
    word->fetch_add(change, std::memory_order_acq_rel);
  }

  Cell cells_[kCells];
};

// One move on a device.
class LedgerMove {
 public:
  LedgerMove() = default;
  explicit LedgerMove(Moves* moves) { Begin(moves); }
  ~LedgerMove() { End(); }
  LedgerMove(const LedgerMove&) = delete;
  LedgerMove& operator=(const LedgerMove&) = delete;

  // Before the ledger is asked.
  void Begin(Moves* moves) {
    asking_ = true;
    ++this_thread.asking;
    BeginCounted(moves);
    ends_ = Moves::Ends(cell_);
  }

  // Before the driver frees what the ledger counts.
  void BeginCounted(Moves* moves) {
    ++this_thread.moves;
    cell_ = moves->Begin();
  }

  // The ledger counts the bytes.
  void Granted() {
    asking_ = false;
    --this_thread.asking;
  }

  // A context of the device ended since the ledger was asked: what the driver granted may have gone
  // with it. Asked once that is booked.
  bool SawEnd() const { return Moves::Ends(cell_) != ends_; }
  bool SawPrimaryEnd() const { return Moves::IsPrimaryAmong(ends_, Moves::Ends(cell_)); }

  // Managed memory that this move charges.
  void AddManaged(uint64_t bytes) { Moves::AddManaged(cell_, bytes); }

  // Ledger and driver agree again.
  void End() {
    if (cell_ == nullptr) return;
    if (this_thread.moves != 0) [[likely]] {  // 0: taken for abandoned, and ended
      if (asking_) --this_thread.asking;
      --this_thread.moves;
      Moves::End(cell_);
    }
    cell_ = nullptr;
  }

 private:
  Moves::Cell* cell_ = nullptr;  // null: no move is under way
  uint64_t ends_ = 0;
  bool asking_ = false;
};

}  // namespace gpufence
