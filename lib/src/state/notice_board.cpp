#include "state/notice_board.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "base/futex.h"
#include "state/identity.h"
#include "state/owner.h"
#include "state/shared_file.h"

namespace gpufence {
namespace {

// Whoever may read the folder may read a notice; only its maker may write it.
constexpr mode_t kNoticeMode = 0644;
constexpr uint32_t kLivingByte = 0;

// How often the folder is asked whether it changed, and how often it is read, changed or not.
constexpr uint64_t kAskNs = 5'000'000;
constexpr uint64_t kScanNs = 20'000'000;
constexpr uint64_t kRescanNs = 1'000'000'000;
// What a folder full of files that are no notices may cost at a time.
constexpr uint64_t kLifeNs = 10'000'000;
constexpr int kMostReads = 16;
constexpr uint32_t kMostOpens = 256;
constexpr int kMakeAttempts = 8;
constexpr uint64_t kNapNs = 200'000;

// As the kernel writes it behind getdents64.
struct FolderEntry {
  uint64_t inode;
  int64_t offset;
  unsigned short length;
  unsigned char type;
  char name[];
};

constinit NoticeBoard* boards = nullptr;

// The author that a name ends in; 0: in none.
uint64_t AuthorIn(const char* name) {
  const char* dash = strrchr(name, '-');
  uint64_t author = 0;
  for (const char* digit = dash == nullptr ? "" : dash + 1; *digit != '\0'; ++digit) {
    const char character = *digit;
    const bool is_number = character >= '0' && character <= '9';
    if (!is_number && (character < 'a' || character > 'f')) return 0;
    const int value = is_number ? character - '0' : character - 'a' + 10;
    author = author << 4 | static_cast<uint64_t>(value);
  }
  return author;
}

bool IsNotice(const struct stat& found) {
  return S_ISREG(found.st_mode) && found.st_nlink == 1 && (found.st_mode & 07777) == kNoticeMode;
}

const void* MapPage(int fd) {
  void* page = mmap(nullptr, sizeof(Notice), PROT_READ, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) return nullptr;
  // A child would keep the lock of a parent that is dead.
  madvise(page, sizeof(Notice), MADV_DONTFORK);
  return page;
}

// A write at the limit of a file's size is a fatal signal.
bool MayWrite() {
  rlimit most = {};
  return getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur >= sizeof(Notice);
}

// A change within the folder's clock tick of the last scan is not told by its time.
bool IsFresh(uint64_t changed_ns) {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec) <
         changed_ns + kScanNs;
}

uint64_t ChangedNs(const struct stat& found) {
  return static_cast<uint64_t>(found.st_mtim.tv_sec) * 1'000'000'000u +
         static_cast<uint64_t>(found.st_mtim.tv_nsec);
}

const std::atomic<uint32_t>* FutexOf(const void* page) {
  return reinterpret_cast<const std::atomic<uint32_t>*>(static_cast<const char*>(page) +
                                                        kNoticeFutexAt);
}

}  // namespace

NoticeBoard* NoticeBoard::Open(const char* folder, uint64_t device, uint64_t author, char* why,
                               size_t why_bytes) {
  for (NoticeBoard* board = boards; board != nullptr;) {
    NoticeBoard* next = board->next_;
    if (board->opener_ != getpid()) Close(board);
    board = next;
  }
  void* memory = mmap(nullptr, sizeof(NoticeBoard), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    snprintf(why, why_bytes, "%s", strerror(errno));
    return nullptr;
  }
  auto* board = static_cast<NoticeBoard*>(memory);
  board->opener_ = getpid();
  board->device_ = device;
  board->author_ = author;
  board->clock_ = static_cast<uint32_t>(ClockIdentity());
  board->own_.fd = -1;
  for (Neighbour& neighbour : board->neighbours_) neighbour.fd = -1;
  snprintf(board->folder_, sizeof board->folder_, "%s", folder);
  board->next_ = boards;
  boards = board;
  if (board->OpenOwn(why, why_bytes)) return board;
  const int error = errno;
  Close(board);
  errno = error;
  return nullptr;
}

void NoticeBoard::Close(NoticeBoard* board) {
  for (NoticeBoard** link = &boards; *link != nullptr; link = &(*link)->next_) {
    if (*link != board) continue;
    *link = board->next_;
    break;
  }
  board->CloseAll();
  munmap(board, sizeof(NoticeBoard));
}

void NoticeBoard::CloseAll() {
  const auto let_go = [this](Neighbour* file) {
    const void* page = file->page.exchange(nullptr, std::memory_order_relaxed);
    // A child has none of its parent's pages; something else may be there.
    if (page != nullptr && opener_ == getpid()) munmap(const_cast<void*>(page), sizeof(Notice));
    // The number may be another file's by now.
    if (IsSameFile(file->fd, file->device, file->inode)) close(file->fd);
    file->fd = -1;
    file->author = 0;
  };
  let_go(&own_);
  for (Neighbour& neighbour : neighbours_) let_go(&neighbour);
}

void NoticeBoard::NameOf(uint64_t author, char name[NAME_MAX]) const {
  snprintf(name, NAME_MAX, "gpufence-turns%u-%08x-%016llx-%016llx", kNoticeVersion, clock_,
           static_cast<unsigned long long>(device_), static_cast<unsigned long long>(author));
}

void NoticeBoard::PathOf(uint64_t author, char path[PATH_MAX]) const {
  char name[NAME_MAX];
  NameOf(author, name);
  if (snprintf(path, PATH_MAX, "%s/%s", folder_, name) >= PATH_MAX) path[0] = '\0';
}

// ---- the own notice ----

// False with errno: it cannot be the container's own.
bool NoticeBoard::HoldOwn(int fd) {
  struct stat found = {};
  struct stat named = {};
  char path[PATH_MAX];
  PathOf(author_, path);
  if (fstat(fd, &found) != 0 || !IsNotice(found) || found.st_uid != geteuid()) {
    errno = EEXIST;
    return false;
  }
  if (!SetLock(fd, kLivingByte, F_RDLCK)) return false;
  // Somebody may have removed it as one that nobody uses.
  if (lstat(path, &named) != 0 || named.st_dev != found.st_dev || named.st_ino != found.st_ino) {
    errno = EAGAIN;
    return false;
  }
  own_.fd = fd;
  own_.device = found.st_dev;
  own_.inode = found.st_ino;
  own_.page.store(MapPage(fd), std::memory_order_release);
  return true;
}

bool NoticeBoard::MakeOwn() {
  char path[PATH_MAX];
  PathOf(author_, path);
  int fd = OpenBeyondStreams(path, O_RDWR | O_NONBLOCK);
  if (fd < 0 && errno == ENOENT) {
    fd = OpenBeyondStreams(path, O_RDWR | O_CREAT | O_EXCL, kNoticeMode);
    // Past the umask.
    if (fd >= 0) fchmod(fd, kNoticeMode);
    if (fd < 0 && errno == EEXIST) errno = EAGAIN;
  }
  if (fd < 0) return false;
  if (HoldOwn(fd)) return true;
  const int error = errno;
  close(fd);
  errno = error;
  return false;
}

bool NoticeBoard::OpenOwn(char* why, size_t why_bytes) {
  struct stat folder = {};
  errno = stat(folder_, &folder) == 0 && !S_ISDIR(folder.st_mode) ? ENOTDIR : EAGAIN;
  for (int attempt = 0; attempt < kMakeAttempts && errno == EAGAIN; ++attempt) {
    if (!MakeOwn()) continue;
    struct stat found = {};
    Notice idle = {};
    idle.idle_ns = 1;
    // What a sibling wrote stays.
    if (fstat(own_.fd, &found) == 0 && found.st_size == 0) Post(idle);
    return true;
  }
  const int error = errno;
  snprintf(
      why, why_bytes, "%s",
      error == EEXIST ? "the container's notice there belongs to another user" : strerror(error));
  errno = error;
  return false;
}

// Who removed or replaced the file may be anybody whom the folder lets do so.
void NoticeBoard::KeepName() {
  struct stat named = {};
  char path[PATH_MAX];
  PathOf(author_, path);
  const bool is_named =
      lstat(path, &named) == 0 && named.st_dev == own_.device && named.st_ino == own_.inode;
  if (is_named && IsSameFile(own_.fd, own_.device, own_.inode)) return;
  const int old = own_.fd;
  const uint64_t device = own_.device;
  const uint64_t inode = own_.inode;
  const void* page = own_.page.load(std::memory_order_relaxed);
  if (!MakeOwn()) return;
  if (IsSameFile(old, device, inode)) close(old);
  if (page != nullptr) munmap(const_cast<void*>(page), sizeof(Notice));
}

void NoticeBoard::Post(Notice notice) {
  if (!IsSameFile(own_.fd, own_.device, own_.inode) || !MayWrite()) return;
  notice.magic = kNoticeMagic;
  notice.author = author_;
  notice.device = device_;
  notice.check = CheckOf(notice);
  own_.began_us.store(notice.began_us, std::memory_order_relaxed);
  // What cannot be written is not seen; the others then go on without this container.
  if (pwrite(own_.fd, &notice, sizeof notice, 0) < 0) return;
}

// ---- the neighbours' ----

void NoticeBoard::Consider(int folder, const char* name, Place place, void* context) {
  char expected[NAME_MAX];
  const uint64_t author = AuthorIn(name);
  if (author == 0 || author == author_ || opens_left_ == 0) return;
  NameOf(author, expected);
  if (strcmp(name, expected) != 0) return;
  for (const Neighbour& neighbour : neighbours_) {
    if (neighbour.author == author) return;
  }
  --opens_left_;
  const int opened = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  const int fd = BeyondStreams(opened);
  struct stat found = {};
  bool is_taken = false;
  if (fd >= 0 && fstat(fd, &found) == 0 && IsNotice(found)) {
    saw_unfinished_ |= found.st_size < static_cast<off_t>(sizeof(Notice));
    const bool is_whole = found.st_size == static_cast<off_t>(sizeof(Notice));
    const uint32_t at = is_whole && IsLocked(fd, kLivingByte) ? place(context, author) : kMost;
    if (at < kMost) {
      Drop(at);
      Neighbour& neighbour = neighbours_[at];
      neighbour.fd = fd;
      neighbour.device = found.st_dev;
      neighbour.inode = found.st_ino;
      neighbour.author = author;
      neighbour.began_us.store(0, std::memory_order_relaxed);
      neighbour.page.store(MapPage(fd), std::memory_order_release);
      is_taken = true;
    } else if (is_whole && !IsLocked(fd, kLivingByte)) {
      unlinkat(folder, name, 0);  // of the dead
    }
  }
  if (fd >= 0 && !is_taken) close(fd);
}

void NoticeBoard::LookAround(uint64_t now_ns, Place place, void* context) {
  struct stat found = {};
  if (now_ns - asked_ns_ < kAskNs) return;
  asked_ns_ = now_ns;
  const bool is_due = now_ns - scanned_ns_ >= kRescanNs;
  if (stat(folder_, &found) != 0) return;
  const uint64_t changed_ns = ChangedNs(found);
  if (!is_due && changed_ns == folder_changed_ && !saw_unfinished_) return;
  if (now_ns - scanned_ns_ < kScanNs) return;
  scanned_ns_ = now_ns;
  folder_changed_ = changed_ns;
  saw_unfinished_ = IsFresh(changed_ns);
  opens_left_ = kMostOpens;
  KeepName();
  const int folder = OpenBeyondStreams(folder_, O_RDONLY | O_DIRECTORY);
  if (folder < 0) return;
  alignas(FolderEntry) char entries[8192];
  for (int round = 0; round < kMostReads; ++round) {
    const long got = syscall(SYS_getdents64, folder, entries, sizeof entries);
    if (got <= 0) break;
    for (long at = 0; at < got;) {
      const auto* entry = reinterpret_cast<const FolderEntry*>(entries + at);
      Consider(folder, entry->name, place, context);
      at += entry->length;
    }
  }
  close(folder);
}

bool NoticeBoard::Read(uint32_t place, Notice* notice) {
  Neighbour& neighbour = neighbours_[place];
  if (neighbour.author == 0) return false;
  if (!IsSameFile(neighbour.fd, neighbour.device, neighbour.inode)) {
    Drop(place);
    return false;
  }
  constexpr int kTries = 3;  // it may be being written
  for (int tries = 0; tries < kTries; ++tries) {
    if (pread(neighbour.fd, notice, sizeof *notice, 0) != sizeof *notice) return false;
    if (notice->magic != kNoticeMagic || notice->check != CheckOf(*notice)) continue;
    if (notice->author != neighbour.author || notice->device != device_) return false;
    neighbour.began_us.store(notice->began_us, std::memory_order_relaxed);
    neighbour.job.store(notice->job, std::memory_order_relaxed);
    return true;
  }
  return false;
}

bool NoticeBoard::Lives(uint32_t place, uint64_t now_ns) {
  Neighbour& neighbour = neighbours_[place];
  if (neighbour.author == 0) return false;
  if (now_ns - neighbour.asked_ns < kLifeNs) return true;
  neighbour.asked_ns = now_ns;
  if (IsSameFile(neighbour.fd, neighbour.device, neighbour.inode)) {
    if (IsLocked(neighbour.fd, kLivingByte)) return true;
    char path[PATH_MAX];
    PathOf(neighbour.author, path);
    unlink(path);
  }
  Drop(place);
  return false;
}

void NoticeBoard::Drop(uint32_t place) {
  Neighbour& neighbour = neighbours_[place];
  if (neighbour.author == 0) return;
  const void* page = neighbour.page.exchange(nullptr, std::memory_order_acq_rel);
  if (page != nullptr) munmap(const_cast<void*>(page), sizeof(Notice));
  if (IsSameFile(neighbour.fd, neighbour.device, neighbour.inode)) close(neighbour.fd);
  neighbour.fd = -1;
  neighbour.author = 0;
  neighbour.job.store(0, std::memory_order_relaxed);
}

void NoticeBoard::AwaitChange(uint32_t place, uint64_t began_us, uint64_t most_ns,
                              uint32_t bits) const {
  const Neighbour& neighbour = place == 0 ? own_ : neighbours_[place];
  const void* page = neighbour.page.load(std::memory_order_acquire);
  const bool is_told = neighbour.began_us.load(std::memory_order_relaxed) == began_us;
  if (page == nullptr || !is_told ||
      !FutexWaitShared(FutexOf(page), static_cast<uint32_t>(began_us), most_ns, bits)) {
    Nap(std::min(most_ns, kNapNs));
  }
}

void NoticeBoard::AwaitNews(uint32_t place, uint64_t most_ns) const {
  const Neighbour& neighbour = place == 0 ? own_ : neighbours_[place];
  AwaitChange(place, neighbour.began_us.load(std::memory_order_relaxed), most_ns, kEverybody);
}

void NoticeBoard::Wake(uint32_t place, uint32_t bits) const {
  const Neighbour& file = place == 0 ? own_ : neighbours_[place];
  const void* page = file.page.load(std::memory_order_acquire);
  if (page != nullptr) FutexWakeShared(FutexOf(page), bits);
}

}  // namespace gpufence
