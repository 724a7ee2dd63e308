// See shared_file.h.
#include "cuda/sharing/shared_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

namespace sim::shared_file {
namespace {

// The kernel shows a memory file's name as "/memfd:NAME (deleted)".
constexpr char kArenaShown[] = "/memfd:gpufence-sim-device-memory";

bool ReadShownName(int fd, char* name, size_t capacity) {
  char path[64];
  snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
  const ssize_t bytes = readlink(path, name, capacity - 1);
  name[bytes > 0 ? bytes : 0] = '\0';
  return bytes > 0;
}

// Whether a descriptor is some process's device memory arena.
bool IsArena(int fd) {
  char name[128];
  return ReadShownName(fd, name, sizeof(name)) &&
         strncmp(name, kArenaShown, sizeof(kArenaShown) - 1) == 0;
}

}  // namespace

int OpenForeign(int pid, int fd, uint64_t inode) {
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
  const int opened = open(path, O_RDWR | O_CLOEXEC);
  if (opened < 0) return -1;
  if (InodeOf(opened) == inode && IsArena(opened)) return opened;
  close(opened);
  return -1;
}

uint64_t InodeOf(int fd) {
  struct stat status;
  return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

}  // namespace sim::shared_file
