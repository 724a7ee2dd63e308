#include "state/region.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/forked.h"

namespace gpufence {
namespace {

// Every uid of the container uses the same file, whoever came first.
constexpr mode_t kFileMode = 0666;
constexpr mode_t kFolderMode = 01777;

// kDamaged: readable, but no region of this layout. Regions appear whole (see Make), so it is not
// one that somebody is still building.
enum class Opened { kReady, kAbsent, kDamaged, kUnusable };

bool PathOf(const char* folder, const char* container, char* path) {
  const int length = snprintf(path, PATH_MAX, "%s/gpufence-%s.v%u", folder, container,
                              kLayoutVersion);
  return length > 0 && length < PATH_MAX;
}

bool IsReady(const Region& region) {
  return region.header.magic.load(std::memory_order_acquire) == kRegionMagic &&
         region.header.layout_version == kLayoutVersion &&
         region.header.max_processes == kMaxProcesses &&
         region.header.max_devices == kMaxDevices;
}

Opened MapFile(int fd, RegionFile* file) {
  struct stat found = {};
  if (fstat(fd, &found) != 0 || !S_ISREG(found.st_mode) ||
      found.st_size != static_cast<off_t>(sizeof(Region))) {
    return Opened::kDamaged;
  }
  void* address = mmap(nullptr, sizeof(Region), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return Opened::kUnusable;
  file->region = static_cast<Region*>(address);
  file->fd = fd;
  if (IsReady(*file->region)) return Opened::kReady;
  munmap(address, sizeof(Region));
  return Opened::kDamaged;
}

// Without O_CREAT: sticky world-writable folders refuse even an existing file of another user then
// (fs.protected_regular).
Opened OpenExisting(const char* path, RegionFile* file) {
  const int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return errno == ENOENT || errno == ENOTDIR ? Opened::kAbsent : Opened::kUnusable;
  const Opened opened = MapFile(fd, file);
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

// Built beside its place and linked there whole, so that nobody ever opens half a region. When two
// processes make it at once, the second link fails and its maker uses the first one's.
Opened Make(const char* folder, const char* path, RegionFile* file) {
  mkdir(folder, kFolderMode);
  chmod(folder, kFolderMode);  // fails unless we made it: then its owner decided already
  char draft[PATH_MAX];
  if (snprintf(draft, sizeof draft, "%s.%d.new", path, getpid()) >= PATH_MAX) {
    return Opened::kUnusable;
  }
  unlink(draft);
  const int fd = open(draft, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kFileMode);
  if (fd < 0) return Opened::kUnusable;
  bool made = fchmod(fd, kFileMode) == 0 && ftruncate(fd, sizeof(Region)) == 0;
  void* address = MAP_FAILED;
  if (made) address = mmap(nullptr, sizeof(Region), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address != MAP_FAILED) {
    WriteHeader(static_cast<Region*>(address));
    munmap(address, sizeof(Region));
  }
  made = address != MAP_FAILED && (link(draft, path) == 0 || errno == EEXIST);
  unlink(draft);
  close(fd);
  return made ? OpenExisting(path, file) : Opened::kUnusable;
}

}  // namespace

bool OpenRegion(const RegionPlaces& places, RegionFile* file, char* why, size_t why_bytes) {
  char path[PATH_MAX];
  for (const char* folder : places.folders) {
    if (folder == nullptr) break;
    if (PathOf(folder, places.container, path) && OpenExisting(path, file) == Opened::kReady) {
      return true;
    }
  }
  int error = ENOENT;
  for (const char* folder : places.folders) {
    if (folder == nullptr) break;
    if (!PathOf(folder, places.container, path)) continue;
    // Living processes that still map a damaged file keep it; newcomers meet in a fresh one.
    const Opened found = OpenExisting(path, file);
    if (found == Opened::kReady) return true;
    if (found == Opened::kDamaged) unlink(path);
    if (Make(folder, path, file) == Opened::kReady) return true;
    error = errno;
  }
  snprintf(why, why_bytes, "no place for the container's shared region (last tried %s: %s)", path,
           strerror(error));
  return false;
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
