#include "state/region.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/forked.h"

namespace gpufence {
namespace {

// Every uid of the container uses the same file, whoever came first. One that not all of them can
// open is nobody's: those who can would share a limit that the others do not.
constexpr mode_t kFileMode = 0666;
constexpr mode_t kFolderMode = 01777;

// kDamaged: readable, but no region of this layout. Regions appear whole (see Make), so it is not
// one that somebody is still building.
enum class Opened { kReady, kAbsent, kDamaged, kUnusable };

bool PathOf(const char* folder, const char* container, char* path) {
  const int length =
      snprintf(path, PATH_MAX, "%s/gpufence-%s.v%u", folder, container, kLayoutVersion);
  return length > 0 && length < PATH_MAX;
}

bool IsReady(const Region& region) {
  return region.header.magic.load(std::memory_order_acquire) == kRegionMagic &&
         region.header.layout_version == kLayoutVersion &&
         region.header.max_processes == kMaxProcesses && region.header.max_devices == kMaxDevices;
}

Opened MapFile(int fd, int protection, RegionFile* file) {
  struct stat found = {};
  if (fstat(fd, &found) != 0 || !S_ISREG(found.st_mode) ||
      (found.st_mode & kFileMode) != kFileMode ||
      found.st_size != static_cast<off_t>(sizeof(Region))) {
    errno = EEXIST;
    return Opened::kDamaged;
  }
  void* address = mmap(nullptr, sizeof(Region), protection, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return Opened::kUnusable;
  file->region = static_cast<Region*>(address);
  file->fd = fd;
  file->device = found.st_dev;
  file->inode = found.st_ino;
  if (IsReady(*file->region)) return Opened::kReady;
  munmap(address, sizeof(Region));
  errno = EEXIST;
  return Opened::kDamaged;
}

// Without O_CREAT: sticky world-writable folders refuse even an existing file of another user then
// (fs.protected_regular).
Opened OpenExisting(const char* path, int mode, RegionFile* file) {
  const int fd = open(path, mode | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return errno == ENOENT || errno == ENOTDIR ? Opened::kAbsent : Opened::kUnusable;
  const int protection = mode == O_RDONLY ? PROT_READ : PROT_READ | PROT_WRITE;
  const Opened opened = MapFile(fd, protection, file);
  if (opened == Opened::kReady) return opened;
  close(fd);
  return opened;
}

void WriteHeader(Region* region) {
  region->header.layout_version = kLayoutVersion;
  region->header.max_processes = kMaxProcesses;
  region->header.max_devices = kMaxDevices;
  region->header.magic.store(kRegionMagic, std::memory_order_release);
}

// Writing to a hole of a full file system is a fatal signal; here it is an error.
bool Allocate(int fd) {
  return fallocate(fd, 0, 0, static_cast<off_t>(offsetof(Region, limits))) == 0 ||
         errno == EOPNOTSUPP || errno == ENOSYS;
}

// Growing a file beyond RLIMIT_FSIZE is a fatal signal, too.
bool MayBeSoLarge(off_t bytes) {
  rlimit most = {};
  return getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur >= static_cast<rlim_t>(bytes);
}

bool Fill(int fd) {
  constexpr auto kBytes = static_cast<off_t>(sizeof(Region));
  if (!MayBeSoLarge(kBytes)) {
    errno = EFBIG;
    return false;
  }
  if (fchmod(fd, kFileMode) != 0 || ftruncate(fd, kBytes) != 0 || !Allocate(fd)) return false;
  void* address = mmap(nullptr, sizeof(Region), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return false;
  WriteHeader(static_cast<Region*>(address));
  munmap(address, sizeof(Region));
  return true;
}

// Built beside its place and linked there whole, so that nobody ever opens half a region. The draft
// has a name that no other maker takes, not even one with our number in another pid namespace; a
// maker killed in here leaves it, and nobody ever opens it.
Opened Make(const char* folder, const char* path, RegionFile* file) {
  // A folder that is there already is as its owner wants it; one of ours is as the umask does not.
  if (mkdir(folder, kFolderMode) == 0) chmod(folder, kFolderMode);
  char draft[PATH_MAX];
  if (snprintf(draft, sizeof draft, "%s.XXXXXX", path) >= PATH_MAX) {
    errno = ENAMETOOLONG;
    return Opened::kUnusable;
  }
  const int fd = mkostemp(draft, O_CLOEXEC);
  if (fd < 0) return Opened::kUnusable;
  const bool made = Fill(fd) && (link(draft, path) == 0 || errno == EEXIST);
  const int error = errno;
  unlink(draft);
  close(fd);
  errno = error;
  return made ? OpenExisting(path, O_RDWR, file) : Opened::kUnusable;
}

// One maker at a time, so that two who start together and may write to different folders do not make
// one region each, nor remove the other's as damaged. The kernel drops the lock at death; a maker
// that is stopped holds others up for a moment only. The root folder is what every process of the
// container can open, whatever its uid.
class MakersTurn {
 public:
  MakersTurn() : fd_(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    for (int attempt = 0; fd_ >= 0 && attempt < kTurnAttempts; ++attempt) {
      if (flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
      const timespec pause{0, kTurnPauseNs};
      nanosleep(&pause, nullptr);
    }
  }
  ~MakersTurn() {
    if (fd_ >= 0) close(fd_);
  }
  MakersTurn(const MakersTurn&) = delete;
  MakersTurn& operator=(const MakersTurn&) = delete;

 private:
  static constexpr int kTurnAttempts = 500;
  static constexpr long kTurnPauseNs = 1'000'000;
  int fd_;
};

bool FindExisting(const RegionPlaces& places, int mode, RegionFile* file) {
  char path[PATH_MAX];
  for (const char* folder : places.folders) {
    if (folder == nullptr) break;
    if (PathOf(folder, places.container, path) &&
        OpenExisting(path, mode, file) == Opened::kReady) {
      return true;
    }
  }
  return false;
}

bool MakeInFirst(const RegionPlaces& places, RegionFile* file, char* why, size_t why_bytes) {
  const MakersTurn turn;
  if (FindExisting(places, O_RDWR, file)) return true;
  char path[PATH_MAX] = "";
  int error = ENOENT;
  for (const char* folder : places.folders) {
    if (folder == nullptr) break;
    if (!PathOf(folder, places.container, path)) continue;
    // Living processes that still map a damaged file keep it; newcomers meet in a fresh one.
    if (OpenExisting(path, O_RDWR, file) == Opened::kDamaged) unlink(path);
    if (Make(folder, path, file) == Opened::kReady) return true;
    error = errno;
  }
  snprintf(why, why_bytes, "no place for the container's shared region (last tried %s: %s)", path,
           strerror(error));
  return false;
}

// What this process opened, or, in a forked child, what its parent had open: descriptor and mapping
// would keep the parent's lock alive when the parent is dead.
constinit pid_t opener = 0;
constinit RegionFile opened = {};
constinit char opened_path[PATH_MAX] = "";

// As the kernel has it: whole, wherever the program goes from here.
void RememberPath(int fd) {
  char link[32];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, opened_path, sizeof opened_path - 1);
  opened_path[length > 0 ? length : 0] = '\0';
}

void CloseInherited() {
  if (opened.region == nullptr || opener == getpid()) return;
  munmap(opened.region, sizeof(Region));
  struct stat found = {};
  // The number may be another file's by now: daemons close all they have.
  if (fstat(opened.fd, &found) == 0 && found.st_dev == opened.device &&
      found.st_ino == opened.inode) {
    close(opened.fd);
  }
  opened = {};
}

}  // namespace

bool OpenRegion(const RegionPlaces& places, RegionFile* file, char* why, size_t why_bytes) {
  CloseInherited();
  if (!FindExisting(places, O_RDWR, file) && !MakeInFirst(places, file, why, why_bytes)) {
    return false;
  }
  opener = getpid();
  opened = *file;
  RememberPath(file->fd);
  return true;
}

int ReopenRegion(const RegionFile& file) {
  const int fd = open(opened_path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  struct stat found = {};
  if (fd < 0 ||
      (fstat(fd, &found) == 0 && found.st_dev == file.device && found.st_ino == file.inode)) {
    return fd;
  }
  close(fd);
  return -1;
}

bool FindRegion(const RegionPlaces& places, RegionFile* file) {
  return FindExisting(places, O_RDONLY, file);
}

void CloseRegion(RegionFile* file) {
  munmap(file->region, sizeof(Region));
  close(file->fd);
  *file = {};
}

bool OpenPrivateRegion(RegionFile* file) {
  void* address = MapWipedOnFork(sizeof(Region));
  if (address == nullptr) return false;
  file->region = static_cast<Region*>(address);
  file->fd = -1;
  WriteHeader(file->region);
  return true;
}

}  // namespace gpufence
