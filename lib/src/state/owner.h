// Locks on files, and what they prove: that the owner of a slot lives, or that he died. The other
// proof is the pid in the slot's record. Must not know what becomes of the dead, nor what a range
// of a file means.
#pragma once

#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>

#include "shared_layouts.h"

// glibc has these behind _GNU_SOURCE alone.
#ifndef F_OFD_SETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif

namespace gpufence {

// A lock as the calls of the kernel want it described. `type`: F_RDLCK, F_WRLCK or F_UNLCK.
inline struct flock LockAt(off_t place, off_t length, short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = place;
  lock.l_len = length;
  return lock;
}

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
