// Proof of life and death of a slot's owner: the lock on the slot's byte, and the pid in its
// record. Must not know what becomes of the dead.
#pragma once

#include <stdint.h>

#include "shared_layouts.h"

namespace gpufence {

// How much proof of death to look for.
enum class Effort : uint8_t {
  kQuick,     // a released lock, or a pid that is nobody's
  kThorough,  // also zombies and reused pids whose lock a child of theirs keeps alive
};

// Behind the bytes of all slots: whoever opened a file holds it for reading until it has a place
// there, and whoever removes a file holds all of them (tools/gpufence/container/leftovers.py).
inline constexpr uint32_t kComingByte = UINT32_MAX;

// Takes (F_RDLCK, F_WRLCK) or drops (F_UNLCK) the open-file-description lock on a byte; never
// waits.
bool SetLock(int fd, uint32_t byte, short type);

// True when another open file holds the lock. Works on a read-only descriptor.
bool IsLocked(int fd, uint32_t byte);

// True when another open file holds any slot's lock, or is coming to take one. Likewise.
bool AnyLocked(int fd);

// What a slot's record says of its owner: worth something only in our own pid namespace, where the
// number means the same process.
enum class Owner : uint8_t { kAlive, kGone, kUnknown };
Owner AskPid(const ProcessRecord& record, uint64_t own_namespace, Effort effort);

// Field 22 of our own stat line; 0 where /proc is another pid namespace's: there our number is
// somebody else's.
uint64_t OwnStartTicks();

// The same of process 1 as /proc shows it; 0 when it cannot be read.
uint64_t StartOfFirstProcess();

// Inode of our pid namespace; 0 when it cannot be read.
uint64_t OwnPidNamespace();

}  // namespace gpufence
