// Locks on ranges of files, as the calls of the kernel want them told. Must not know which file, or
// what a range means.
#pragma once

#include <fcntl.h>
#include <unistd.h>

// glibc has these behind _GNU_SOURCE alone.
#ifndef F_OFD_SETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif

namespace gpufence {

// `type`: F_RDLCK, F_WRLCK or F_UNLCK.
inline struct flock LockAt(off_t place, off_t length, short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = place;
  lock.l_len = length;
  return lock;
}

}  // namespace gpufence
