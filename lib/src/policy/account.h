// One process's account on one device: turns requests into charges in the ledger and decides them
// against the limit, and against the share of it that may be device memory where memory is oversold
// (docs/oversubscription.md). Must not know CUDA, NVML, file paths or the clock.
//
// An account lives in memory that is wiped on fork. Any thread; nothing is held across a driver
// call.
#pragma once

#include <stdint.h>

#include <atomic>

#include "base/locks.h"
#include "policy/charge.h"
#include "shared_layouts.h"
#include "state/ledger.h"
#include "state/limits_file.h"
#include "state/sharing.h"
#include "state/slots.h"

namespace gpufence {

// Where a charge lies when memory is oversold. Both count against the limit, device memory against
// the share as well.
enum class Tier : uint8_t {
  kDevice,
  kUnified,  // on the host, where the GPU reaches it
};

// The ratio says how memory is oversold: 0 is off, 1 is on without a share (unified memory only
// where the driver itself has no more), everything else is limit / share in thousandths.
inline constexpr uint64_t kOversoldWithoutShare = 1;

// Device memory that the container may hold within `limit_bytes`; UINT64_MAX: as much as it may
// hold in all.
constexpr uint64_t ShareBytes(uint64_t limit_bytes, uint64_t ratio) {
  if (ratio <= kRatioUnit || limit_bytes == UINT64_MAX) return UINT64_MAX;
  return static_cast<uint64_t>(static_cast<unsigned __int128>(limit_bytes) * kRatioUnit / ratio);
}

static_assert(ShareBytes(4, 2000) == 2);
static_assert(ShareBytes(uint64_t{1} << 62, 1500) == (uint64_t{1} << 63) / 3);
static_assert(ShareBytes(4, 0) == UINT64_MAX && ShareBytes(4, kOversoldWithoutShare) == UINT64_MAX);

// What a caller can still try when a request does not fit. Returns true when something changed, so
// that asking again makes sense. Called without any lock; may call the driver.
using MakeRoom = bool (*)(uint32_t device);

class Account {
 public:
  // Before first use. `device` is passed to make_room. `own_ratio`: see ShareBytes.
  void Open(const RegionFile& file, uint32_t row, uint32_t slot, uint16_t device,
            uint64_t own_limit_bytes, MakeRoom make_room, uint64_t own_ratio = 0);

  // What is set for the device of this UUID and size holds instead of what processes publish, as
  // far as it is not above the ceiling (kNoLimit: there is none). Before first use, too; without
  // this call nothing is set.
  void Obey(LimitsFile* set_limits, const uint8_t uuid[16], uint64_t total_bytes,
            uint64_t ceiling_bytes);

  // True when a limit holds here: one that was set, this process's own, or a sibling's. What is
  // taken is counted even where none does, since one may be set at any moment.
  bool limited() { return LimitBytes() != kNoLimit; }

  // True when memory beyond the share, or beyond what the driver has, may be unified memory.
  bool oversold() const { return is_oversold_; }

  // Takes physical bytes (multiples of what the driver takes; see policy/charge.h).
  // False: over the limit or the share, after dead processes were reclaimed and make_room was
  // tried.
  bool Reserve(uint64_t bytes, Tier tier = Tier::kDevice) {
    if (TryReserve(bytes, tier)) [[likely]]
      return true;
    return MakeRoomAndReserve(bytes, tier);
  }

  // The same without looking for room where there is none at once.
  bool TryReserve(uint64_t bytes, Tier tier = Tier::kDevice) {
    if (stale()) [[unlikely]]
      ReadStaleNear(bytes);
    return Ask(bytes, tier);
  }

  // Takes bytes that the driver has given out already, whether they fit or not.
  void Book(uint64_t bytes, Tier tier = Tier::kDevice);

  // Gives physical bytes back.
  void Release(uint64_t bytes, Tier tier = Tier::kDevice);

  // Overhead: what the driver holds for this process and no request asked for. It is counted like
  // any charge. Part of it has an owner whose end is seen (a context); the rest is what the driver
  // was found to hold beyond everything known.

  // Turns `reserved` bytes into overhead of `actual` bytes, booking or giving back the difference.
  void OwnOverhead(uint64_t reserved, uint64_t actual);
  void LooseOverhead(uint64_t reserved, int64_t actual);

  // Gives owned overhead back.
  void ReleaseOverhead(uint64_t bytes);

  // A moment of the overhead, to be asked for before the driver is looked at.
  struct OverheadMoment {
    uint64_t version;      // raised by every change
    uint64_t ended_bytes;  // owned once and given back since
  };
  OverheadMoment overhead_moment();

  // Sets all overhead to what was seen; never below its owned part. False, and nothing is set: it
  // changed since `before`, so what was seen may leave out what others booked meanwhile.
  bool SetOverhead(uint64_t bytes, const OverheadMoment& before);

  // Sets it if it is lower. False: it changed since `before`; then what was seen may hold what
  // ended meanwhile, and that is left out.
  bool RaiseOverhead(uint64_t bytes, const OverheadMoment& before);

  // Memory that others let go of and this process imports is part of its overhead, or may be soon:
  // the end of an import is to be read at once, as nobody else can lower this process's figure.
  bool HasAdopted() const {
    return has_adopted_.load(std::memory_order_relaxed) || sharing_.HasOwnOrphans();
  }

  // What this process is charged without overhead and unified memory: what the driver's figure for
  // it is compared with.
  uint64_t charged_bytes();

  // Something grew that no reservation knew about: a request that comes near the limit calls `read`
  // first, which clears the mark.
  void ReadStaleWith(void (*read)(uint32_t device)) { read_stale_ = read; }
  void MarkStale() { stale_.store(true, std::memory_order_relaxed); }
  void ClearStale() { stale_.store(false, std::memory_order_relaxed); }
  bool stale() const { return stale_.load(std::memory_order_relaxed); }

  // A request of `bytes` is one that comes near the limit or the share.
  bool IsNearLimit(uint64_t bytes);

  // False: what was booked brought the container above its limit or its share.
  bool IsWithinLimit();

  // The limit in force: what an operator set, else the lowest among the container's living
  // processes.
  uint64_t LimitBytes() {
    ReadLimits();
    return limit_bytes_.load(std::memory_order_relaxed);
  }

  // Device memory that the container may hold within its limit; kNoLimit: all of that.
  uint64_t ShareBytes();

  // The container's bytes, including what is being asked for and what the dead left; one load.
  uint64_t UsedBytes() const { return ledger_.UsedBytes() + sharing_.OrphanBytes(); }

  // What could still be taken now; a moment's view.
  uint64_t FreeBytes() {
    const uint64_t limit_bytes = LimitBytes();
    const uint64_t used_bytes = UsedBytes();
    return limit_bytes > used_bytes ? limit_bytes - used_bytes : 0;
  }

  // Gives back what dead processes held, at most every 100 ms: for queries, which must not show the
  // dead's bytes but are asked thousands of times a second. `now_ns`: any steady clock, not 0.
  // False: it was not looked.
  bool ReclaimAt(uint64_t now_ns);

  // The same for what shows the account's bytes to a program: an overhead that the last reading
  // could not lower (beside managed memory, say) is read anew. May ask the driver.
  void RefreshAt(uint64_t now_ns);

  // The same as ReclaimAt at once, with what exported descriptors held. Returns how many dead there
  // were, as ReclaimDead does; descriptors that let go count as one.
  uint32_t Reclaim(Effort effort);

  // What the limits did to this process on the device, for display.
  Activity* activity() const { return &file_.region->activity[row()][slot_]; }
  // Counts a refused request. True for the container's first on the device, as far as its living
  // processes have counted.
  bool CountRefusal();
  // What the last request that did not fit asked for; of several at once, one of them.
  uint64_t refused_bytes() const { return refused_bytes_.load(std::memory_order_relaxed); }

  // What this process shares with others on the device.
  const Sharing& sharing() const { return sharing_; }

  const RegionFile& file() const { return file_; }
  uint32_t row() const { return ledger_.row(); }
  uint32_t slot() const { return slot_; }
  uint16_t device() const { return device_; }  // as Open was told

 private:
  [[gnu::noinline]] void ReadStaleNear(uint64_t bytes);
  [[gnu::cold, gnu::noinline]] bool MakeRoomAndReserve(uint64_t bytes, Tier tier);

  // Asks the ledgers for what limit and share leave beside memory without a living owner.
  bool Ask(uint64_t bytes, Tier tier) {
    if (is_oversold_) [[unlikely]]
      return AskBoth(bytes, tier);
    return AskOne(ledger_, Extent::kAll, bytes);
  }
  [[gnu::noinline]] bool AskBoth(uint64_t bytes, Tier tier);
  uint64_t BoundOf(Extent extent) { return extent == Extent::kAll ? LimitBytes() : ShareBytes(); }
  bool AskOne(const Ledger& ledger, Extent extent, uint64_t bytes);

  bool IsNear(const Ledger& ledger, uint64_t bound_bytes, uint64_t bytes) const;
  void ReadLimits() {
    // Pairs with the release in PublishLimit: a new epoch comes with the new limits.
    const uint32_t epoch = ledger_.region()->header.limit_epoch.load(std::memory_order_acquire);
    if (epoch != limit_epoch_.load(std::memory_order_acquire)) [[unlikely]] {
      ReadNewLimits();
    }
  }
  [[gnu::cold, gnu::noinline]] void ReadNewLimits();
  uint64_t LimitNow();

  // Within this much of the limit a stale figure is read again: code and local memory of one kernel
  // seldom take more.
  static constexpr uint64_t kStaleMarginBytes = uint64_t{512} << 20;
  void ChangeOverhead(uint64_t reserved, uint64_t owned, uint64_t loose);
  void ChangeLoose(uint64_t loose);

  // What every request reads lies on one cache line, up to the beginning of `sharing_`: behind a
  // driver call it is cold.
  alignas(64) Ledger ledger_;
  std::atomic<uint64_t> limit_bytes_;
  std::atomic<uint32_t> limit_epoch_;
  bool is_oversold_;
  std::atomic<bool> stale_;
  std::atomic<bool> only_raised_;  // the last reading could not have lowered the overhead
  uint16_t device_;
  Sharing sharing_;

  RegionFile file_;
  Ledger resident_;  // device memory alone, where memory is oversold
  uint32_t slot_;
  MakeRoom make_room_;
  std::atomic<uint64_t> share_bytes_;
  SpinLock limit_lock_;
  LimitsFile* set_limits_;  // null: nothing can be set
  uint8_t uuid_[16];
  uint64_t total_bytes_;
  uint64_t ceiling_bytes_;
  std::atomic<uint64_t> refused_bytes_;
  std::atomic<uint64_t> reclaimed_ns_;  // of the last ReclaimAt that looked; 0: never
  void (*read_stale_)(uint32_t device);
  SpinLock overhead_lock_;  // the four below and their part of the ledger change together
  uint64_t overhead_version_;
  uint64_t owned_overhead_;
  uint64_t ended_overhead_;  // all of it that was ever given back
  uint64_t loose_overhead_;
  std::atomic<bool> has_adopted_;  // some of that is memory which this process imports
};

}  // namespace gpufence
