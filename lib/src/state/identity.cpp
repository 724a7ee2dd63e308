#include "state/identity.h"

#include <ctype.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "state/owner.h"

namespace gpufence {
namespace {

constexpr size_t kLongest = 64;

bool IsPlain(char character) {
  return isalnum(static_cast<unsigned char>(character)) != 0 || character == '.' ||
         character == '_' || character == '-';
}

constexpr uint64_t kHashStart = 0xcbf29ce484222325u;

uint64_t HashByte(uint64_t hash, unsigned char byte) { return (hash ^ byte) * 0x100000001b3u; }

uint64_t InodeOf(const char* path) {
  struct stat found = {};
  return stat(path, &found) == 0 ? static_cast<uint64_t>(found.st_ino) : 0;
}

uint64_t BootIdentity() {
  char boot[64] = "";
  const int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (file >= 0) {
    const ssize_t got = read(file, boot, sizeof boot - 1);
    boot[got > 0 ? got : 0] = '\0';
    close(file);
  }
  return HashText(boot);
}

// The C library's statx came later than the oldest one that we run with.
struct FoundFile {
  uint32_t mask;
  uint32_t ignored[19];
  int64_t born_s;
  uint32_t born_ns;
  uint32_t more[41];
};
static_assert(sizeof(FoundFile) == 256 && offsetof(FoundFile, born_s) == 80);

uint64_t BornAt(const char* path) {
  constexpr uint32_t kBirth = 0x800;  // STATX_BTIME
  FoundFile found = {};
#ifdef SYS_statx
  if (syscall(SYS_statx, AT_FDCWD, path, 0, kBirth, &found) != 0) return 0;
#endif
  if ((found.mask & kBirth) == 0) return 0;
  return static_cast<uint64_t>(found.born_s) * 1'000'000'000u + found.born_ns;
}

uint64_t IdOfPidNamespace() {
  constexpr unsigned long kGetId = _IOR(0xb7, 13, uint64_t);  // NS_GET_ID
  const int file = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  uint64_t id = 0;
  if (ioctl(file, kGetId, &id) != 0) id = 0;
  close(file);
  return id;
}

// Finds the mount of /proc among the lines of mountinfo, and whether it hides processes from other
// users: then some users can read process 1's start and others cannot, and nobody goes by it.
class HidingMounts {
 public:
  void Take(char character) {
    if (character == '\n') {
      if (is_proc_) hides_ = line_hides_;  // of several the last one is on top
      is_proc_ = line_hides_ = false;
      field_ = 0;
      matched_place_ = matched_option_ = 0;
      return;
    }
    if (character == ' ') {
      is_proc_ = is_proc_ || (field_ == kPlaceField && matched_place_ == sizeof kPlace - 1);
      ++field_;
    } else if (field_ == kPlaceField) {
      Match(kPlace, sizeof kPlace - 1, character, &matched_place_);
    }
    if (matched_option_ == sizeof kOption - 1) {
      line_hides_ = character != '0' && character != 'o';  // "off"
      matched_option_ = 0;
    } else if (character == kOption[matched_option_]) {
      ++matched_option_;
    } else {
      matched_option_ = 0;
    }
  }

  bool hides() const { return hides_; }

 private:
  static constexpr char kPlace[] = "/proc";
  static constexpr char kOption[] = "hidepid=";
  static constexpr int kPlaceField = 4;

  static void Match(const char* text, size_t length, char character, size_t* matched) {
    if (*matched < length && character == text[*matched]) {
      ++*matched;
    } else {
      *matched = length + 1;  // another place
    }
  }

  int field_ = 0;
  size_t matched_place_ = 0;
  size_t matched_option_ = 0;
  bool is_proc_ = false;
  bool line_hides_ = false;
  bool hides_ = false;
};

bool HidesProcesses() {
  const int file = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  HidingMounts mounts;
  char chunk[1024];
  for (ssize_t got = 0; (got = read(file, chunk, sizeof chunk)) > 0;) {
    for (ssize_t i = 0; i < got; ++i) mounts.Take(chunk[i]);
  }
  close(file);
  return mounts.hides();
}

}  // namespace

uint64_t HashText(const char* text) {
  uint64_t hash = kHashStart;
  for (; *text != '\0'; ++text) hash = HashByte(hash, static_cast<unsigned char>(*text));
  return hash;
}

uint64_t ClockIdentity() { return BootIdentity() ^ InodeOf("/proc/self/ns/time"); }

Lifetime OwnLifetime() {
  struct stat root = {};
  if (stat("/", &root) != 0) root = {};
  return {.boot = BootIdentity(),
          .pid_namespace = InodeOf("/proc/self/ns/pid"),
          .namespace_id = IdOfPidNamespace(),
          .first_start = HidesProcesses() ? 0 : StartOfFirstProcess(),
          .root_device = root.st_dev,
          .root_inode = root.st_ino,
          .root_born_ns = BornAt("/"),
          .devices_born_ns = BornAt("/dev"),
          .cgroups = InodeOf("/sys/fs/cgroup") ^ InodeOf("/sys/fs/cgroup/memory") << 32};
}

void NameLifetime(const Lifetime& lifetime, char name[kContainerNameBytes]) {
  unsigned char bytes[sizeof lifetime];
  memcpy(bytes, &lifetime, sizeof bytes);
  uint64_t hash = kHashStart;
  for (const unsigned char byte : bytes) hash = HashByte(hash, byte);
  snprintf(name, kContainerNameBytes, "ns%llx-%llx-%016llx",
           static_cast<unsigned long long>(lifetime.pid_namespace),
           static_cast<unsigned long long>(lifetime.first_start),
           static_cast<unsigned long long>(hash));
}

void NameContainer(const char* given, char name[kContainerNameBytes]) {
  if (given[0] == '\0') return NameLifetime(OwnLifetime(), name);
  bool changed = false;
  size_t length = 0;
  for (; given[length] != '\0' && length < kLongest; ++length) {
    name[length] = IsPlain(given[length]) ? given[length] : '_';
    changed = changed || name[length] != given[length];
  }
  name[length] = '\0';
  // Two names that look alike after the reduction stay two containers.
  if (changed || given[length] != '\0' || name[0] == '.') {
    snprintf(name + length, kContainerNameBytes - length, "-%016llx",
             static_cast<unsigned long long>(HashText(given)));
  }
}

}  // namespace gpufence
