// One process's account on one device: turns requests into charges in the ledger and decides them
// against the limit. Must not know CUDA, NVML, file paths or the clock.
//
// Lives in memory that is wiped on fork. Any thread; nothing is held across a driver call.
#pragma once

#include <stdint.h>

#include <atomic>

#include "core/spin.h"
#include "policy/charge.h"
#include "state/ledger.h"
#include "state/slots.h"

namespace gpufence {

// What a caller can still try when a request does not fit. Returns true when something changed, so
// that asking again makes sense. Called without any lock; may call the driver.
using MakeRoom = bool (*)(uint32_t device);

class Account {
 public:
  // Before first use. `device` is passed to make_room.
  void Open(const RegionFile& file, uint32_t row, uint32_t slot, uint32_t device,
            uint64_t own_limit_bytes, MakeRoom make_room);

  // True when a limit holds here: this process's own, or a sibling's.
  bool limited() { return LimitBytes() != kNoLimit; }

  // Takes physical bytes (multiples of what the driver takes; see policy/charge.h).
  // False: over the limit, after dead processes were reclaimed and make_room was tried.
  bool Reserve(uint64_t bytes);

  // Takes bytes that the driver has given out already, whether they fit or not.
  void Book(uint64_t bytes) { ledger_.Book(bytes); }

  // Gives physical bytes back.
  void Release(uint64_t bytes);

  // The same for linear memory of a requested size: small sizes share chunks. The charge to give
  // back later is LinearCharge(bytes), whether small or not.
  bool ReserveLinear(uint64_t bytes);
  void ReleaseLinear(uint64_t bytes);

  // Sets what the driver holds for this process beyond all charges; booked at once.
  void SetOverhead(uint64_t bytes);
  uint64_t overhead_bytes() const { return overhead_.load(std::memory_order_relaxed); }

  // What this process is charged without overhead.
  uint64_t charged_bytes() const;

  // The limit in force: the lowest among the living processes of the container.
  uint64_t LimitBytes();

  // Sum over the container, saturated. Includes what is being asked for.
  uint64_t UsedBytes() const;

  // What could still be taken now; a moment's view.
  uint64_t FreeBytes() {
    const uint64_t limit_bytes = LimitBytes();
    const uint64_t used_bytes = UsedBytes();
    return limit_bytes > used_bytes ? limit_bytes - used_bytes : 0;
  }

  const RegionFile& file() const { return file_; }
  uint32_t row() const { return ledger_.row(); }
  uint32_t slot() const { return slot_; }

 private:
  void ShrinkChunks();

  RegionFile file_;
  Ledger ledger_;
  uint32_t slot_;
  uint32_t device_;
  MakeRoom make_room_;
  std::atomic<uint64_t> limit_bytes_;
  std::atomic<uint32_t> limit_epoch_;
  std::atomic<uint64_t> small_bytes_;   // linear memory that shares chunks
  std::atomic<uint64_t> chunk_bytes_;   // what is charged for those chunks
  std::atomic<uint64_t> overhead_;
  SpinLock overhead_lock_;
};

// What linear memory of a requested size counts in a holding.
constexpr uint64_t LinearCharge(uint64_t bytes) {
  return IsSmall(bytes) ? RoundUp(bytes, kSmallStep) : RoundUp(bytes, kChunkBytes);
}

}  // namespace gpufence
