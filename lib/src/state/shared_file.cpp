#include "state/shared_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/held_locks.h"
#include "state/owner.h"

namespace gpufence {
namespace {

// Every uid uses the same file, whoever came first. One that not all of them can open is nobody's:
// those who can would share what the others do not.
constexpr mode_t kFileMode = 0666;
constexpr mode_t kFolderMode = 01777;

// How often a file may be swept between two steps of whoever opens it. A sweeper that came once too
// early comes again with the next command only.
constexpr int kOpenAttempts = 100;

// kDamaged: readable, but no file of this kind. Files appear whole (see Make), so it is not one
// that somebody is still building.
enum class Opened { kReady, kAbsent, kDamaged, kUnusable };

bool PathOf(const char* folder, const char* name, char* path) {
  const int length = snprintf(path, PATH_MAX, "%s/%s", folder, name);
  return length > 0 && length < PATH_MAX;
}

Opened MapFile(const SharedFileKind& kind, int fd, int protection, SharedFile* file) {
  struct stat found = {};
  if (fstat(fd, &found) != 0 || !S_ISREG(found.st_mode) ||
      (found.st_mode & kFileMode) != kFileMode || found.st_size != static_cast<off_t>(kind.bytes)) {
    errno = EEXIST;
    return Opened::kDamaged;
  }
  void* address = mmap(nullptr, kind.bytes, protection, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return Opened::kUnusable;
  *file = {.memory = address, .fd = fd, .device = found.st_dev, .inode = found.st_ino};
  if (kind.is_ready(address)) return Opened::kReady;
  munmap(address, kind.bytes);
  errno = EEXIST;
  return Opened::kDamaged;
}

// A link, a folder, or a file that somebody keeps from others: the same for every user, unlike a
// file that this process alone cannot open.
bool IsForNobody(const char* path) {
  struct stat found = {};
  return lstat(path, &found) == 0 &&
         (!S_ISREG(found.st_mode) || (found.st_mode & kFileMode) != kFileMode);
}

Opened WhyNotOpened(const char* path) {
  if (errno == ENOENT || errno == ENOTDIR) return Opened::kAbsent;
  const int error = errno;
  if (IsForNobody(path)) {
    errno = EEXIST;
    return Opened::kDamaged;
  }
  errno = error;
  return Opened::kUnusable;
}

// Without O_CREAT: sticky world-writable folders refuse even an existing file of another user then
// (fs.protected_regular).
Opened OpenExisting(const SharedFileKind& kind, const char* path, int mode, SharedFile* file) {
  const int fd = OpenBeyondStreams(path, mode | O_NONBLOCK);
  if (fd < 0) return WhyNotOpened(path);
  const int protection = mode == O_RDONLY ? PROT_READ : PROT_READ | PROT_WRITE;
  const Opened opened = MapFile(kind, fd, protection, file);
  if (opened == Opened::kReady) return opened;
  close(fd);
  return opened;
}

// Growing a file beyond RLIMIT_FSIZE is a fatal signal; here it is an error.
bool Resize(int fd, size_t bytes) {
  rlimit most = {};
  if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < bytes) {
    errno = EFBIG;
    return false;
  }
  return ftruncate(fd, static_cast<off_t>(bytes)) == 0;
}

// Where the file system knows no locks nobody removes anything, nor gets a place.
bool TakeComing(int fd) {
  return SetLock(fd, kComingByte, F_RDLCK) || (errno != EAGAIN && errno != EACCES);
}

// Built beside its place and linked there whole, so that nobody ever opens half a file; and held
// from before it has a name, so that sweepers who never rest cannot remove one after the other.
// kAbsent: another's was there first, and was swept as soon as it was.
Opened Make(const SharedFileKind& kind, const char* folder, const char* path, SharedFile* file) {
  // Past the umask, and only what we made: whoever made another decided already.
  if (mkdir(folder, kFolderMode) == 0) chmod(folder, kFolderMode);
  char draft[PATH_MAX];
  // Containers that share a folder may use the same process numbers.
  if (snprintf(draft, sizeof draft, "%s.%llx-%d.new", path,
               static_cast<unsigned long long>(OwnPidNamespace()), getpid()) >= PATH_MAX) {
    errno = ENAMETOOLONG;
    return Opened::kUnusable;
  }
  unlink(draft);
  const int fd = OpenBeyondStreams(draft, O_RDWR | O_CREAT | O_EXCL, kFileMode);
  if (fd < 0) return Opened::kUnusable;
  void* address = MAP_FAILED;
  if (fchmod(fd, kFileMode) == 0 && Resize(fd, kind.bytes) &&
      AllocateRange(fd, 0, kind.allocated_bytes)) {
    address = mmap(nullptr, kind.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  bool made = false;
  if (address != MAP_FAILED) {
    kind.write_header(address);
    munmap(address, kind.bytes);
    TakeComing(fd);
    made = link(draft, path) == 0 || errno == EEXIST;
  }
  // By the name that it keeps (see OpenedFile::Remember).
  const Opened opened = made ? OpenExisting(kind, path, O_RDWR, file) : Opened::kUnusable;
  const int error = errno;
  if (opened == Opened::kReady) TakeComing(file->fd);
  unlink(draft);
  close(fd);
  errno = error;
  return opened;
}

// Far beyond what a loaded machine keeps somebody waiting who is only to let go.
constexpr int kMostWaitMs = 2000;

// One maker at a time, so that two who start together and may write to different folders do not
// make one file each, nor remove the other's as damaged. The kernel drops the lock at death; a
// maker that is stopped holds others up for a moment only.
class MakersTurn {
 public:
  explicit MakersTurn(const char* folder) : fd_(open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (fd_ < 0) return;
    WaitFor(kMostWaitMs,
            [&] { return flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK; });
  }
  ~MakersTurn() {
    if (fd_ >= 0) close(fd_);
  }
  MakersTurn(const MakersTurn&) = delete;
  MakersTurn& operator=(const MakersTurn&) = delete;

 private:
  CountedLock counted_;
  int fd_;
};

// A person chose the only folder: whether all users can use it is that person's to see to, and who
// cannot is refused.
Standing StandingIn(const SharedFilePlaces& places, const char* folder) {
  return places.folders[1] == nullptr ? Standing::kOpen : StandingOf(folder);
}

// Whether a process has a place in the file; not when it cannot be opened to ask.
bool IsInUse(const char* path) {
  const int fd = OpenBeyondStreams(path, O_RDONLY | O_NONBLOCK);
  if (fd < 0) return false;
  const bool in_use = AnyLocked(fd);
  close(fd);
  return in_use;
}

enum class Search : uint8_t { kFound, kNone, kRefused };

// Whether the file is to be looked for there. What another mount made read-only for this process
// alone holds the file of those who can write to it.
Search LooksInto(const SharedFilePlaces& places, const char* folder, const char* path, int mode) {
  switch (StandingIn(places, folder)) {
    case Standing::kOpen:
      return Search::kFound;
    case Standing::kAbsent:
      return Search::kNone;
    case Standing::kUnknown:
      return Search::kRefused;
    case Standing::kReadOnly:
      break;
  }
  if (!IsInUse(path)) return Search::kNone;
  errno = EROFS;
  return mode == O_RDONLY ? Search::kFound : Search::kRefused;
}

// The first folder that has the file. Whatever keeps this process alone from using it ends the
// search: a process that went on would share another file than the others. `path` is PATH_MAX long.
Search FindFirst(const SharedFileKind& kind, const SharedFilePlaces& places, int mode,
                 SharedFile* file, char* path) {
  for (uint32_t place = 0; place < SharedFilePlaces::kMost; ++place) {
    const char* folder = places.folders[place];
    if (folder == nullptr) break;
    if (!PathOf(folder, places.file_name, path)) {
      errno = ENAMETOOLONG;
      return Search::kRefused;
    }
    const Search here = LooksInto(places, folder, path, mode);
    if (here == Search::kRefused) return here;
    if (here == Search::kNone) continue;
    const Opened opened = OpenExisting(kind, path, mode, file);
    file->place = place;
    if (opened == Opened::kReady) return Search::kFound;
    if (opened == Opened::kUnusable) return Search::kRefused;
  }
  return Search::kNone;
}

// In the first open folder. The next one is for a damaged file's sake alone, which everybody passes
// by who cannot remove it.
bool MakeInFirst(const SharedFileKind& kind, const SharedFilePlaces& places, SharedFile* file,
                 char* path) {
  int error = ENOENT;
  path[0] = '\0';
  for (uint32_t place = 0; place < SharedFilePlaces::kMost; ++place) {
    const char* folder = places.folders[place];
    if (folder == nullptr) break;
    if (StandingIn(places, folder) != Standing::kOpen) continue;
    PathOf(folder, places.file_name, path);
    // Living processes that still map a damaged file keep it; newcomers meet in a fresh one.
    if (OpenExisting(kind, path, O_RDWR, file) == Opened::kDamaged) unlink(path);
    Opened made = Opened::kAbsent;
    for (int attempt = 0; made == Opened::kAbsent && attempt < kOpenAttempts; ++attempt) {
      made = Make(kind, folder, path, file);
    }
    error = errno;
    file->place = place;
    if (made == Opened::kReady) return true;
    if (made != Opened::kDamaged) break;
  }
  errno = error;
  return false;
}

bool FindOrMake(const SharedFileKind& kind, const SharedFilePlaces& places, SharedFile* file,
                char* path) {
  Search found = FindFirst(kind, places, O_RDWR, file, path);
  if (found != Search::kNone) return found == Search::kFound;
  const MakersTurn turn(places.lock_folder);
  found = FindFirst(kind, places, O_RDWR, file, path);
  if (found != Search::kNone) return found == Search::kFound;
  return MakeInFirst(kind, places, file, path);
}

bool LeadsTo(const char* path, const SharedFile& file) {
  struct stat found = {};
  return lstat(path, &found) == 0 && found.st_dev == file.device && found.st_ino == file.inode;
}

enum class Locked { kInPlace, kRemoved, kBeingRemoved };

// A name that still leads to the file while we hold it does so for as long as we hold it.
Locked LockInPlace(const SharedFile& file, const char* path) {
  if (!WaitFor(kMostWaitMs, [&] { return TakeComing(file.fd); })) return Locked::kBeingRemoved;
  return LeadsTo(path, file) ? Locked::kInPlace : Locked::kRemoved;
}

template <typename Map>
bool MapInPlace(const SharedFileKind& kind, SharedFile* file, const char* path, Map map) {
  for (int attempt = 0; attempt < kOpenAttempts; ++attempt) {
    if (!map()) return false;
    const Locked locked = LockInPlace(*file, path);
    if (locked == Locked::kInPlace) return true;
    CloseSharedFile(kind, file);
    if (locked == Locked::kBeingRemoved) break;
  }
  errno = EBUSY;
  return false;
}

}  // namespace

int BeyondStreams(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int beyond = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  close(fd);
  errno = error;
  return beyond;
}

int OpenBeyondStreams(const char* path, int flags, mode_t mode) {
  return BeyondStreams(open(path, flags | O_CLOEXEC | O_NOFOLLOW, mode));
}

bool FindSharedFile(const SharedFileKind& kind, const SharedFilePlaces& places, int mode,
                    SharedFile* file) {
  char path[PATH_MAX];
  return MapInPlace(kind, file, path,
                    [&] { return FindFirst(kind, places, mode, file, path) == Search::kFound; });
}

bool OpenSharedFile(const SharedFileKind& kind, const SharedFilePlaces& places, SharedFile* file,
                    char* path, size_t path_bytes) {
  char last_path[PATH_MAX] = "";
  const bool opened =
      MapInPlace(kind, file, last_path, [&] { return FindOrMake(kind, places, file, last_path); });
  const int error = errno;
  snprintf(path, path_bytes, "%s", last_path);
  errno = error;
  return opened;
}

const char* FolderOf(const SharedFilePlaces& places) {
  for (const char* folder : places.folders) {
    if (folder != nullptr && StandingIn(places, folder) == Standing::kOpen) return folder;
  }
  return nullptr;
}

void HasPlace(int fd) { SetLock(fd, kComingByte, F_UNLCK); }

void CloseSharedFile(const SharedFileKind& kind, SharedFile* file) {
  munmap(file->memory, kind.bytes);
  close(file->fd);
  *file = {};
}

bool IsSameFile(int fd, uint64_t device, uint64_t inode) {
  struct stat found = {};
  return fd >= 0 && fstat(fd, &found) == 0 && found.st_dev == device && found.st_ino == inode;
}

bool AllocateRange(int fd, size_t offset, size_t bytes) {
  return fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0 ||
         errno == EOPNOTSUPP || errno == ENOSYS;
}

void OpenedFile::Remember(const SharedFile& file, size_t bytes) {
  opener_ = getpid();
  file_ = file;
  bytes_ = bytes;
  // As the kernel has it: whole, wherever the program changes its folder to.
  char link[32];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file.fd);
  const ssize_t length = readlink(link, path_, sizeof path_ - 1);
  path_[length > 0 ? length : 0] = '\0';
}

int OpenedFile::Reopen() const { return OpenBeyondStreams(path_, O_RDWR | O_NONBLOCK); }

void OpenedFile::CloseInherited() {
  if (file_.memory == nullptr || opener_ == getpid()) return;
  munmap(file_.memory, bytes_);
  // The number may be another file's by now.
  if (IsSameFile(file_.fd, file_.device, file_.inode)) close(file_.fd);
  file_ = {};
}

namespace {

constexpr mode_t kForEverybody = S_IWOTH | S_IXOTH;

}  // namespace

// By the mode and not by access(2), which answers for one user.
Standing StandingOf(const char* folder) {
  struct stat found = {};
  if (stat(folder, &found) != 0) {
    return errno == ENOENT || errno == ENOTDIR ? Standing::kAbsent : Standing::kUnknown;
  }
  if (!S_ISDIR(found.st_mode) || (found.st_mode & kForEverybody) != kForEverybody) {
    return Standing::kAbsent;
  }
  struct statvfs mounted = {};
  if (statvfs(folder, &mounted) != 0) return Standing::kUnknown;
  return (mounted.f_flag & ST_RDONLY) != 0 ? Standing::kReadOnly : Standing::kOpen;
}

}  // namespace gpufence
