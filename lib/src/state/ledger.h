// The ledger: bytes per process and device, decided by publish, sum, decide.
// No lock and no shared total: a process that dies or stops anywhere leaves only its own cell.
// Must not know limits' origin, what the bytes are, or CUDA.
#pragma once

#include <stdint.h>

#include "state/layout.h"

namespace gpufence {

enum class Verdict : uint8_t {
  kGranted,
  kNoRoom,  // final: does not fit even if every other request were withdrawn
};

struct Totals {
  uint64_t held;
  uint64_t asking;
};

// One row of the region, seen from one slot. Cheap to copy; valid while the region is mapped.
class Ledger {
 public:
  Ledger() = default;
  Ledger(Region* region, uint32_t row, uint32_t slot) : region_(region), row_(row), slot_(slot) {}

  // Takes `bytes` if the row's sum stays within `limit_bytes`. Waits for nobody: when it fits only
  // without what others are asking for, tries again a bounded number of times.
  Verdict Reserve(uint64_t bytes, uint64_t limit_bytes) const;

  // Books bytes that the driver has already given out: counts against the next request.
  void Book(uint64_t bytes) const;

  // Gives `bytes` of this slot back. Never goes below zero.
  void Release(uint64_t bytes) const;

  // Everything held and asked for on the device. Saturates instead of wrapping: a damaged cell can
  // make the container look full, never empty.
  Totals Sum() const;

  // What this slot holds.
  uint64_t Own() const { return cell().held.load(std::memory_order_relaxed); }

  // The part of Own() that is overhead, shown by tools.
  void ShowOverhead(uint64_t bytes) const;

  uint32_t row() const { return row_; }

 private:
  Cell& cell() const { return region_->cells[row_][slot_]; }

  Region* region_ = nullptr;
  uint32_t row_ = 0;
  uint32_t slot_ = 0;
};

}  // namespace gpufence
