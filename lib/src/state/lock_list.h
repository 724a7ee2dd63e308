// The kernel's list of all file locks, /proc/locks: the one place where a lock is seen on a file
// that nobody can open a second time. Locks of open files stand there for everybody, whatever his
// pid namespace or user. Must not know what a lock means.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

namespace gpufence {

struct ListedLock {
  off_t start;
  off_t length;
};

enum class LockList : uint8_t {
  kWhole,
  kAbsent,   // there is no such list here, so that nobody can have counted on it
  kUnknown,  // it cannot be read now, or holds too much
};

class ListedLocks {
 public:
  // Reads the locks of open files that lie within [from, to), each start once with its longest, as
  // far as wants(context, start) is true.
  LockList Read(off_t from, off_t to, bool (*wants)(const void* context, off_t start),
                const void* context);

  const ListedLock* begin() const { return locks_; }
  const ListedLock* end() const { return locks_ + count_; }

 private:
  static constexpr size_t kMost = 512;
  struct Reading;

  bool ReadOnce(Reading* reading);
  void TakeLine(const char* line, const char* end, const Reading& reading);

  size_t count_ = 0;
  bool overflown_ = false;
  ListedLock locks_[kMost];
};

}  // namespace gpufence
