#include "state/owner.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared_layouts.h"

namespace gpufence {
namespace {

struct flock LockOf(uint32_t byte, short type) { return LockAt(off_t{kLockBase} + byte, 1, type); }

struct ProcessStat {
  uint64_t start_ticks;  // field 22; 0 when it cannot be read
  bool ended;            // a zombie without a thread that lives on
};

// Of its first thread, which started when the process did: qemu's user emulation makes up
// /proc/PID/stat for whoever asks for its own, with another start than everybody else reads.
ProcessStat ReadStat(uint32_t pid) {
  char path[48];
  snprintf(path, sizeof path, "/proc/%u/task/%u/stat", pid, pid);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  char text[1024];
  const ssize_t got = read(file, text, sizeof text - 1);
  close(file);
  if (got <= 0) return {};
  text[got] = '\0';
  const char* field = strrchr(text, ')');  // the command's name may hold blanks and brackets
  if (field == nullptr || field[1] == '\0') return {};
  ProcessStat stat = {};
  stat.ended = field[2] == 'Z' || field[2] == 'X';
  for (int number = 3; (field = strchr(field + 1, ' ')) != nullptr && number <= 22; ++number) {
    if (number == 20 && strtoull(field + 1, nullptr, 10) > 1) stat.ended = false;
    if (number == 22) stat.start_ticks = strtoull(field + 1, nullptr, 10);
  }
  return stat;
}

}  // namespace

bool SetLock(int fd, uint32_t byte, short type) {
  struct flock lock = LockOf(byte, type);
  return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

bool IsLocked(int fd, uint32_t byte) {
  struct flock lock = LockOf(byte, F_WRLCK);
  return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

bool AnyLocked(int fd) {
  struct flock lock = LockAt(off_t{kLockBase}, 0, F_WRLCK);  // a length of 0 means to the end
  return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

uint64_t OwnStartTicks() {
  char link[16];
  const ssize_t length = readlink("/proc/self", link, sizeof link - 1);
  if (length <= 0) return 0;
  link[length] = '\0';
  return atoi(link) == getpid() ? ReadStat(static_cast<uint32_t>(getpid())).start_ticks : 0;
}

uint64_t StartOfFirstProcess() { return ReadStat(1).start_ticks; }

uint64_t OwnPidNamespace() {
  struct stat found = {};
  return stat("/proc/self/ns/pid", &found) == 0 ? found.st_ino : 0;
}

Owner AskPid(const ProcessRecord& record, uint64_t own_namespace, Effort effort) {
  const uint32_t pid = record.pid.load(std::memory_order_acquire);
  if (pid == 0) return Owner::kGone;
  if (own_namespace == 0 || record.pid_namespace != own_namespace) return Owner::kUnknown;
  if (kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) return Owner::kGone;
  if (effort == Effort::kQuick || record.start_ticks == 0) return Owner::kUnknown;
  const ProcessStat stat = ReadStat(pid);
  if (stat.start_ticks == 0) return Owner::kUnknown;
  return stat.ended || stat.start_ticks != record.start_ticks ? Owner::kGone : Owner::kAlive;
}

}  // namespace gpufence
