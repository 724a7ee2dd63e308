#include "state/exported.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <initializer_list>

#include "state/owner.h"
#include "state/region.h"

namespace gpufence {
namespace {

// The kernel's list of all file locks, /proc/locks: the one place where a lock is seen on a file
// that nobody can open a second time. Locks of open files stand there for everybody, whatever his
// pid namespace or user.
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

constexpr char kList[] = "/proc/locks";
constexpr char kOpenFile[] = " OFDLCK ";
constexpr int kListAttempts = 8;

// What the kernel hands out at a time, which is one moment's view.
constexpr size_t kPage = 4096;
constexpr size_t kLongestLine = 256;

uint64_t HashOn(uint64_t hash, const char* text, size_t length) {
  for (size_t i = 0; i < length; ++i) {
    hash = (hash ^ static_cast<unsigned char>(text[i])) * 1099511628211u;
  }
  return hash;
}

// The number that ends at `*end`, which moves in front of it. False: there is none.
bool TakeNumber(const char* line, const char** end, off_t* number) {
  off_t value = 0;
  off_t digit = 1;
  const char* at = *end;
  for (; at > line && at[-1] >= '0' && at[-1] <= '9'; --at) {
    // The largest has 19 digits and begins with a 9.
    if (*end - at >= 19) return false;
    value += (at[-1] - '0') * digit;
    if (*end - at < 18) digit *= 10;
  }
  if (at == *end || at == line || at[-1] != ' ') return false;
  *number = value;
  *end = at - 1;
  return true;
}

// A lock of an open file that somebody has; who still waits for one stands behind an arrow.
bool IsOfOpenFile(const char* line, const char* end) {
  const void* colon = memchr(line, ':', static_cast<size_t>(end - line));
  if (colon == nullptr) return false;
  const char* kind = static_cast<const char*>(colon) + 1;
  return static_cast<size_t>(end - kind) >= sizeof kOpenFile - 1 &&
         memcmp(kind, kOpenFile, sizeof kOpenFile - 1) == 0;
}

struct ListedLocks::Reading {
  off_t from;
  off_t to;
  bool (*wants)(const void* context, off_t start);
  const void* context;
  uint64_t hash;
  int pages;
  int error;
};

// "7: OFDLCK ADVISORY  READ -1 00:0b:1 4611708008659943424 4611708008659943455"
void ListedLocks::TakeLine(const char* line, const char* end, const Reading& reading) {
  off_t last = 0;
  off_t start = 0;
  if (!IsOfOpenFile(line, end) || !TakeNumber(line, &end, &last) ||
      !TakeNumber(line, &end, &start)) {
    return;
  }
  if (start < reading.from || last >= reading.to || last < start) return;
  const off_t length = last - start + 1;
  for (size_t i = 0; i < count_; ++i) {
    if (locks_[i].start != start) continue;
    if (locks_[i].length < length) locks_[i].length = length;
    return;
  }
  if (!reading.wants(reading.context, start)) return;
  if (count_ == kMost) {
    overflown_ = true;
  } else {
    locks_[count_++] = {start, length};
  }
}

bool ListedLocks::ReadOnce(Reading* reading) {
  const int fd = open(kList, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    reading->error = errno;
    return false;
  }
  char text[kLongestLine + kPage];
  size_t used = 0;
  ssize_t got = 0;
  reading->pages = 0;
  reading->hash = 14695981039346656037u;
  while ((got = read(fd, text + used, kPage)) > 0) {
    ++reading->pages;
    reading->hash = HashOn(reading->hash, text + used, static_cast<size_t>(got));
    const char* line = text;
    const char* const filled = text + used + got;
    while (const void* newline = memchr(line, '\n', static_cast<size_t>(filled - line))) {
      const char* end = static_cast<const char*>(newline);
      TakeLine(line, end, *reading);
      line = end + 1;
    }
    used = static_cast<size_t>(filled - line);
    if (used > kLongestLine) break;
    memmove(text, line, used);
  }
  reading->error = got < 0 ? errno : 0;
  close(fd);
  return got == 0;
}

// Between two pages locks come and go, and the kernel counts on by their number: one may be missed.
// So a list of several pages is read until it is the same twice. Where others change it all the
// time, what any of the readings saw is held: who was missed by each of them would have had to lie
// between two pages at eight chance moments.
LockList ListedLocks::Read(off_t from, off_t to, bool (*wants)(const void* context, off_t start),
                           const void* context) {
  Reading reading = {};
  reading.from = from;
  reading.to = to;
  reading.wants = wants;
  reading.context = context;
  count_ = 0;
  overflown_ = false;
  uint64_t before = 0;
  for (int attempt = 0; attempt < kListAttempts; ++attempt) {
    if (!ReadOnce(&reading)) {
      const bool is_absent = reading.error == ENOENT || reading.error == EACCES;
      return is_absent ? LockList::kAbsent : LockList::kUnknown;
    }
    if (overflown_) return LockList::kUnknown;
    if (reading.pages <= 1 || (attempt > 0 && reading.hash == before)) return LockList::kWhole;
    before = reading.hash;
  }
  return LockList::kWhole;
}

// Places of locks.

// A place: one bit that nobody else's locks have, 20 bits for the row of a region, 24 for the
// memory, 18 for its length in chunks of 2 MiB.
constexpr int kLengthBits = 18;
constexpr int kRowShift = kLengthBits + 24;
constexpr off_t kPlaces = off_t{1} << 62;
constexpr off_t kRowLength = off_t{1} << kRowShift;
constexpr off_t kMostChunks = (off_t{1} << kLengthBits) - 1;
constexpr uint64_t kChunk = uint64_t{2} << 20;
constexpr int kAttempts = 64;

// The driver's own descriptors of the node are among a process's first ones.
constexpr int kDescriptorsLookedAt = 1024;
constexpr char kNode[] = "/dev/nvidiactl";
constexpr char kNodeName[] = "/nvidiactl";

// A descriptor of ours on the node, through which locks are only asked about. A forked child may
// use its parent's, since it carries no lock.
constinit std::atomic<int> node_fd{-1};
constinit std::atomic<uint64_t> node_device{0};
constinit std::atomic<uint64_t> node_inode{0};
constinit std::atomic<uint64_t> last_memory{0};

// This process has locked a file that is not the node's, and found the lock in the kernel's list.
// May be true in a forked child, which costs it a look.
constinit std::atomic<bool> any_listed{false};

// FNV-1a by words, mixed so that neighbours differ.
uint64_t Mix(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t hash = 14695981039346656037u;
  for (const uint64_t word : {a, b, c}) {
    hash = (hash ^ word) * 1099511628211u;
    hash ^= hash >> 29;
  }
  return hash;
}

// The same for every process of the container, and hardly for any other.
off_t RowPlaces(const RegionFile& file, uint32_t row) {
  const uint64_t alone = file.fd < 0 ? static_cast<uint64_t>(getpid()) : 0;
  const uint64_t hash = Mix(file.device + alone, file.inode, row) & ((uint64_t{1} << 20) - 1);
  return kPlaces + (static_cast<off_t>(hash) << kRowShift);
}

// Any lock of others in a range. False: the descriptor does not serve.
bool Ask(int fd, off_t from, off_t to, struct flock* found) {
  *found = LockAt(from, to - from, F_WRLCK);
  return fcntl(fd, F_OFD_GETLK, found) == 0;
}

bool IsFree(int fd, off_t place) {
  struct flock found = {};
  return fd >= 0 && Ask(fd, place, place + 1, &found) && found.l_type == F_UNLCK;
}

// The region's file as its locks are asked about, which ours may not be able to: programs close all
// descriptors they have, and with ours the marks of this process went.
class RegionLocks {
 public:
  explicit RegionLocks(const RegionFile& file)
      : fd_(file.fd < 0 || IsOurFile(file) ? file.fd : ReopenRegion(file)),
        is_ours_(fd_ == file.fd),
        is_alone_(file.fd < 0) {}
  ~RegionLocks() {
    if (!is_ours_ && fd_ >= 0) close(fd_);
  }
  RegionLocks(const RegionLocks&) = delete;
  RegionLocks& operator=(const RegionLocks&) = delete;

  bool usable() const { return is_alone_ || fd_ >= 0; }
  bool IsCharged(off_t place) const { return !is_alone_ && !IsFree(fd_, place); }

 private:
  int fd_;
  bool is_ours_;
  bool is_alone_;  // a region of this process's memory: nobody else counts on its marks
};

// Marks a place as charged to this process, or not (F_UNLCK).
void Mark(const RegionFile& file, off_t place, short type) {
  struct flock lock = LockAt(place, 1, type);
  if (file.fd >= 0 && IsOurFile(file)) fcntl(file.fd, F_SETLK, &lock);
}

bool IsNode(int fd) {
  return fd >= 0 && IsSameFile(fd, node_device.load(std::memory_order_relaxed),
                               node_inode.load(std::memory_order_relaxed));
}

// Opens the node anew that one of the process's descriptors leads to.
int FindNode() {
  for (int fd = 0; fd < kDescriptorsLookedAt; ++fd) {
    char link[32];
    char target[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, target, sizeof target - 1);
    if (length <= 0) continue;
    target[length] = '\0';
    const char* name = strrchr(target, '/');
    if (name == nullptr || strncmp(name, kNodeName, sizeof kNodeName - 1) != 0) {
      continue;
    }
    return open(link, O_RDWR | O_CLOEXEC | O_NONBLOCK);
  }
  return open(kNode, O_RDWR | O_CLOEXEC | O_NONBLOCK);
}

// Our descriptor of the node; -1 when none can be had. Programs close all that they have, so it is
// looked at before each use.
int Node() {
  int seen = node_fd.load(std::memory_order_acquire);
  if (IsNode(seen)) return seen;
  const int fd = FindNode();
  struct stat status = {};
  if (fd < 0 || fstat(fd, &status) != 0) return -1;
  node_device.store(status.st_dev, std::memory_order_relaxed);
  node_inode.store(status.st_ino, std::memory_order_relaxed);
  if (node_fd.compare_exchange_strong(seen, fd, std::memory_order_acq_rel)) return fd;
  close(fd);
  return seen;
}

bool Always(const void*, off_t) { return true; }

// Whether a file that nobody can open anew has a lock at the place. True also where that cannot be
// known.
bool IsListed(off_t place) {
  ListedLocks locks;
  const LockList list = locks.Read(place, place + kMostChunks, Always, nullptr);
  return list == LockList::kUnknown || locks.begin() != locks.end();
}

// A place that no memory of the row has, charged or held.
off_t NewPlace(const RegionFile& file, uint32_t row, int node) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    uint64_t memory = last_memory.fetch_add(1, std::memory_order_relaxed);
    if (memory == 0) {
      timespec now = {};
      clock_gettime(CLOCK_MONOTONIC, &now);
      memory = Mix(static_cast<uint64_t>(getpid()), static_cast<uint64_t>(now.tv_nsec), row);
      last_memory.store(memory + 1, std::memory_order_relaxed);
    }
    memory &= (uint64_t{1} << 24) - 1;
    const off_t place = RowPlaces(file, row) + (static_cast<off_t>(memory) << kLengthBits);
    if (IsFree(node, place) && !RegionLocks(file).IsCharged(place)) return place;
  }
  return 0;
}

struct Holders {
  const RegionLocks* region;
  int node;
};

bool IsHeldElsewhere(const void* context, off_t place) {
  const auto* holders = static_cast<const Holders*>(context);
  return !holders->region->IsCharged(place) && IsFree(holders->node, place);
}

// The same for what no descriptor of the node holds.
bool SumListed(const Holders& holders, off_t from, off_t to, uint64_t* bytes) {
  ListedLocks locks;
  const LockList list = locks.Read(from, to, IsHeldElsewhere, &holders);
  if (list != LockList::kWhole) return list == LockList::kAbsent;
  for (const ListedLock& lock : locks) *bytes += static_cast<uint64_t>(lock.length) * kChunk;
  return true;
}

// Adds what descriptors alone hold in a range. The kernel names any lock of it, so both sides of
// that one are left: the shorter is asked about first, which bounds the depth by the range's bits.
bool Sum(const RegionLocks& region, int node, off_t from, off_t to, uint64_t* bytes) {
  while (from < to) {
    struct flock found = {};
    if (!Ask(node, from, to, &found)) return false;
    if (found.l_type == F_UNLCK) return true;
    const off_t end = found.l_start + found.l_len;
    // Not one of ours: somebody locks the node for reasons of his own.
    if (found.l_start < from || found.l_len <= 0 || end > to) return false;
    if (!region.IsCharged(found.l_start)) {
      *bytes += static_cast<uint64_t>(found.l_len) * kChunk;
    }
    if (found.l_start - from < to - end) {
      if (!Sum(region, node, from, found.l_start, bytes)) return false;
      from = end;
    } else {
      if (!Sum(region, node, end, to, bytes)) return false;
      to = found.l_start;
    }
  }
  return true;
}

// A lock that others will see.
bool Lock(int fd, off_t place, off_t length) {
  struct flock lock = LockAt(place, length, F_RDLCK);
  if (fcntl(fd, F_OFD_SETLK, &lock) != 0) return false;
  if (IsNode(fd) || any_listed.load(std::memory_order_relaxed)) return true;
  ListedLocks locks;
  if (locks.Read(place, place + length, Always, nullptr) == LockList::kWhole &&
      locks.begin() != locks.end()) {
    any_listed.store(true, std::memory_order_relaxed);
    return true;
  }
  lock.l_type = F_UNLCK;
  fcntl(fd, F_OFD_SETLK, &lock);
  return false;
}

}  // namespace

bool LockExported(const RegionFile& file, uint32_t row, int fd, uint64_t bytes, uint64_t* place) {
  const int node = Node();
  const auto length = static_cast<off_t>((bytes + kChunk - 1) / kChunk);
  if (length <= 0 || length > kMostChunks) return false;
  const bool is_new = *place == 0;
  const off_t at = is_new ? NewPlace(file, row, node) : static_cast<off_t>(*place);
  if (at == 0) return false;
  // Charged first: until then it would count twice.
  if (is_new) Mark(file, at, F_RDLCK);
  if (!Lock(fd, at, length)) {
    if (is_new) Mark(file, at, F_UNLCK);
    return false;
  }
  *place = static_cast<uint64_t>(at);
  return true;
}

void EndCharged(const RegionFile& file, uint64_t place) {
  Mark(file, static_cast<off_t>(place), F_UNLCK);
}

bool IsHeldByDescriptor(uint64_t place) {
  const auto at = static_cast<off_t>(place);
  return !IsFree(Node(), at) || (any_listed.load(std::memory_order_relaxed) && IsListed(at));
}

bool HeldByDescriptors(const RegionFile& file, uint32_t row, uint64_t* bytes) {
  const int node = Node();
  const RegionLocks region(file);
  if (node < 0 || !region.usable()) return false;
  const off_t from = RowPlaces(file, row);
  *bytes = 0;
  return Sum(region, node, from, from + kRowLength, bytes) &&
         SumListed({&region, node}, from, from + kRowLength, bytes);
}

}  // namespace gpufence
