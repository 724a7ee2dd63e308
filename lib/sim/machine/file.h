// The machine file itself: its layout, its mapping and its locks.
//
// Owns creating, healing and mapping the file, and the gate.  Must not know what slots or bytes
// mean (slots.cpp, usage.cpp).  Private to lib/sim/machine.
#pragma once

#include <stdint.h>

#include <atomic>

#include "machine/machine.h"

namespace sim::machine {

inline constexpr uint64_t kMagic = 0x314d495346504721;  // "!GPFSIM1", written last
inline constexpr uint32_t kLayout = 8;                  // part of the file's name

// What lives as long as anybody holds it (shared.cpp).
enum class SharedKind : int32_t {
  kNone = 0,
  kMemory,  // has its content in the control file; listed under its owner, then under its importer
  kPool,    // what a pool's file keeps; listed under nobody
  kPinned,  // what dma-bufs keep; the same
};

struct SharedMemory {
  uint64_t bytes;  // of the device
  uint64_t
      owner_bytes;  // part of what the owner's process has reserved, and left to this by its end
  uint64_t offset;
  int32_t device;    // -1: host memory
  int32_t owner;     // slot of the process that made it and still holds it, or kNoSlot
  int32_t importer;  // the same of the last process that imported it
  SharedKind kind;
};
inline constexpr int kMaxShared = 4096;

struct MachineFile {
  std::atomic<uint64_t> magic;
  uint32_t layout;
  uint32_t device_count;
  uint64_t machine_id;
  std::atomic<int32_t> slot_limit;  // no slot at or above this was ever claimed
  int32_t shared_limit;             // no memory at or above this place
  MachineClock clock;
  MeetingTable meetings;
  DeviceRecord devices[kMaxDevices];
  Slot slots[kMaxSlots];
  SharedMemory shared[kMaxShared];
};
static_assert(sizeof(DeviceRecord) % 8 == 0 && sizeof(Slot) % 8 == 0);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// The mapping, or nullptr when there is no usable machine (one line was printed).  Once mapped it
// stays mapped until the process ends, also over fork.
MachineFile* Map();

// The machine file's name; valid once a gate was entered.
const char* MachinePath();

// Scope of the machine's gate.  Only holders change who owns what.  The kernel frees the gate of a
// killed holder; a stopped holder is waited for, as the real driver would.
//
// Entering also repairs: a forked child gets its own descriptor and no slot, and a file that was
// deleted under a running process is made anew and this process's part of it carried over.
class Gate {
 public:
  Gate();
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  MachineFile* file() const { return file_; }  // nullptr: no machine

 private:
  MachineFile* file_;
};

// Takes the lock that stands for a slot; false when another process holds it.  Never waits.  Within
// one open file the lock is always granted again: do not ask for the own slot.
bool TryLockSlot(int slot);
void UnlockSlot(int slot);

// Whether another process holds it. Takes nothing.
bool IsSlotLocked(int slot);

// This process's slot.  Changed under the gate; read without it where one late reader is harmless.
int CachedOwnSlot();
void SetOwnSlot(int slot);

// Takes a slot of a file for this process; kNoSlot when all are taken.  Called with the gate held.
int ClaimIn(MachineFile* file);

}  // namespace sim::machine
