// The bytes of a region file: shared by every process of a container, across library versions.
// Changing anything here means a new kLayoutVersion, which is part of the file's name, so that old
// and new libraries never read each other's bytes. Must not know how the file is found.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <atomic>

namespace gpufence {

inline constexpr uint64_t kRegionMagic = 0x3165636e65667067;  // "gpfence1"
inline constexpr uint32_t kLayoutVersion = 5;
inline constexpr uint32_t kMaxProcesses = 4096;
inline constexpr uint32_t kMaxDevices = 64;
inline constexpr uint64_t kNoLimit = UINT64_MAX;

// The test of the ledger's protocol puts a word in here that stops before every access.
#ifdef GPUFENCE_WORD
using Word = GPUFENCE_WORD;
#else
using Word = std::atomic<uint64_t>;
#endif
static_assert(Word::is_always_lock_free && sizeof(Word) == 8);

// One process on one device: what the row's total is rebuilt from.
struct Cell {
  Word held;    // bytes the process may hold: granted, whether or not the driver call is done
  Word asking;  // bytes it is deciding about right now
};

// Who owns a slot. For display and for the second proof of death (state/slots.h); the first is the
// lock on the slot's byte.
struct ProcessRecord {
  std::atomic<uint32_t> pid;  // 0: nobody
  uint32_t uid;
  uint64_t start_ticks;    // field 22 of /proc/<pid>/stat
  uint64_t pid_namespace;  // inode of /proc/<pid>/ns/pid
  uint64_t reserved[5];
};
static_assert(sizeof(ProcessRecord) == 64);

// The total stands on a line of its own: every reservation of the container writes it.
struct DeviceRow {
  Word key;            // first eight bytes of the UUID, never 0: claims the row in one step
  uint8_t uuid[16];    // for display
  Word context_bytes;  // last measured footprint of an empty context
  Word orphans;        // bytes whose owner is gone while importers live (see state/sharing.h)
  uint64_t reserved[3];
  alignas(64) Word total;  // what all cells hold and ask for, or more (see state/ledger.h)
  uint64_t reserved_after[7];
};
static_assert(sizeof(DeviceRow) == 128 && offsetof(DeviceRow, total) == 64);

// One process on one device, as far as its memory is also other processes'.
struct Shares {
  Word exported;  // bytes that it is charged and others may hold, too
  Word imports;   // handles and addresses it holds of others' memory
};

// What limits did to one process on one device. Only grows while the process lives; when its slot
// is zeroed, it moves to the row's past. For display: nothing is decided by it.
struct Activity {
  Word refusals;  // requests for memory that got CUDA_ERROR_OUT_OF_MEMORY for the limit's sake
  Word launches_held;
  Word held_ns;  // that launches waited, all of them together
  uint64_t reserved;
};
static_assert(sizeof(Activity) == 32);

// What an operator's file allows one process on one device at most, whatever is set. For display:
// each process holds to its own.
struct Ceilings {
  Word memory_bytes;  // 0: none
  Word shares;  // of GPU time, thousandths of a percent: hard below, soft from bit 32; 0: none
};

// The part of a row that lies on the device, where memory is oversold: the same protocol over cells
// of its own (see state/ledger.h).
struct ResidentRow {
  alignas(64) Word total;
  uint64_t reserved[7];
};
static_assert(sizeof(ResidentRow) == 64);

struct RegionHeader {
  Word magic;  // stored last by the maker
  uint32_t layout_version;
  uint32_t max_processes;
  uint32_t max_devices;
  std::atomic<uint32_t> high_slot;    // no slot at or above this one was ever claimed
  std::atomic<uint32_t> limit_epoch;  // changes whenever a process publishes a limit, or one is set
  std::atomic<uint32_t> set_generation;  // of the limits file that `limit_epoch` last told of
  uint32_t reserved[8];
};
static_assert(sizeof(RegionHeader) == 64);

struct Region {
  RegionHeader header;
  DeviceRow rows[kMaxDevices];
  ProcessRecord processes[kMaxProcesses];
  Word limits[kMaxDevices][kMaxProcesses];    // as each process resolved it; 0: no claim
  Word overhead[kMaxDevices][kMaxProcesses];  // the part of `held` that no allocation explains
  Cell cells[kMaxDevices][kMaxProcesses];
  Shares shares[kMaxDevices][kMaxProcesses];
  Activity activity[kMaxDevices][kMaxProcesses];
  Activity past[kMaxDevices];  // of processes that ended
  ResidentRow resident_rows[kMaxDevices];
  Cell resident[kMaxDevices][kMaxProcesses];  // of `held` and `asking`: what is device memory
  Word ratios[kMaxDevices][kMaxProcesses];    // limit / share in thousandths; 0: not oversold
  Ceilings ceilings[kMaxDevices][kMaxProcesses];
};
static_assert(offsetof(Region, resident_rows) % 64 == 0);
static_assert(offsetof(Region, rows) == 64);
static_assert(offsetof(Region, processes) == 64 + 128 * kMaxDevices);

}  // namespace gpufence
