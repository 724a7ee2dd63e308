#include "state/lock_list.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

namespace gpufence {
namespace {

constexpr char kList[] = "/proc/locks";
constexpr char kOpenFile[] = " OFDLCK ";
constexpr int kAttempts = 8;

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

}  // namespace

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
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
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

}  // namespace gpufence
