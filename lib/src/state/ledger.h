// The ledger: bytes per process and device, and a total per device that is never below their sum.
//
// Cells are the truth, one writer each: a process that dies or stops anywhere leaves only its own
// wrong. The total is an upper bound of them at every instruction, so whoever fits under it is
// granted without looking at anybody; whoever does not asks the cells. What the dead leave in the
// total goes when it is rebuilt from the cells. The proof is in docs/memory-limiter-details.md.
// Must not know limits' origin, what the bytes are, or CUDA.
#pragma once

#include <stdint.h>

#include "shared_layouts.h"

namespace gpufence {

enum class Verdict : uint8_t {
  kGranted,
  kNoRoom,  // final: does not fit even if every other request were withdrawn
};

struct Totals {
  uint64_t held;
  uint64_t asking;
};

// A row's total in one word: bytes below, above them a number that every change raises, so that a
// rebuild can tell that nothing happened between its reading and its writing.
inline constexpr int kTotalBits = 44;
inline constexpr uint64_t kMostBytes = (uint64_t{1} << kTotalBits) - 1;  // 16 TiB: full for good

constexpr uint64_t TotalBytes(uint64_t total) { return total & kMostBytes; }

// What a ledger of a row counts. Each has cells and a total of its own; none knows the other.
enum class Extent : uint8_t {
  kAll,
  kResident,  // device memory only, where memory is oversold
};

// One row of the region, seen from one slot. Cheap to copy; valid while the region is mapped.
class Ledger {
 public:
  Ledger() = default;
  Ledger(Region* region, uint32_t row, uint32_t slot, Extent extent = Extent::kAll)
      : region_(region),
        cell_(extent == Extent::kAll ? &region->cells[row][slot] : &region->resident[row][slot]),
        total_(extent == Extent::kAll ? &region->rows[row].total
                                      : &region->resident_rows[row].total),
        row_(row),
        slot_(slot) {}

  // Takes `bytes` if the row's sum stays within `limit_bytes`. Waits for nobody: when it fits only
  // without what others are asking for, tries again a bounded number of times.
  Verdict Reserve(uint64_t bytes, uint64_t limit_bytes) const;

  // Books bytes that the driver has already given out: counts against the next request.
  void Book(uint64_t bytes) const;

  // Gives `bytes` of this slot back, after the driver did. Never goes below zero.
  void Release(uint64_t bytes) const;

  // The container's bytes on the device, requests included: one load. Above the truth by what the
  // dead left since the last rebuild.
  uint64_t UsedBytes() const { return TotalBytes(total().load(std::memory_order_acquire)); }

  // Puts the total back to what the cells say. False when it changed again and again meanwhile, or
  // was right. O(processes).
  bool Rebuild() const;

  // Everything held and asked for on the device, cell by cell. Saturates instead of wrapping: a
  // damaged cell can make the container look full, never empty. O(processes).
  Totals Sum() const;

  // What this slot holds.
  uint64_t Own() const { return cell().held.load(std::memory_order_relaxed); }

  // The part of Own() that is overhead, shown by tools.
  void ShowOverhead(uint64_t bytes) const;

  uint32_t row() const { return row_; }
  Region* region() const { return region_; }

 private:
  Cell& cell() const { return *cell_; }
  Word& total() const { return *total_; }

  // Asks the cells: the total, which counts the request by now, has no room for it.
  [[gnu::cold, gnu::noinline]] Verdict ReserveSlowly(uint64_t bytes, uint64_t limit_bytes) const;
  void Grant(uint64_t bytes) const;

  // Both keep the order that a rebuild relies on: a request shows in its cell before it counts in
  // the total, and leaves the total before it leaves the cell.
  void Publish(uint64_t bytes) const;
  void Withdraw(uint64_t bytes) const;

  // `seen`: the total as it was read last, with room.
  bool AddToTotalWithin(uint64_t seen, uint64_t bytes, uint64_t limit_bytes) const;
  void AddToTotal(uint64_t bytes) const;
  void TakeFromTotal(uint64_t bytes) const;

  Region* region_ = nullptr;
  Cell* cell_ = nullptr;
  Word* total_ = nullptr;
  uint32_t row_ = 0;
  uint32_t slot_ = 0;
};

}  // namespace gpufence
