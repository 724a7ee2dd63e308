#include "state/identity.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gpufence {
namespace {

constexpr size_t kLongest = 64;

bool IsPlain(char character) {
  return isalnum(static_cast<unsigned char>(character)) != 0 || character == '.' ||
         character == '_' || character == '-';
}

uint64_t InodeOf(const char* path) {
  struct stat found = {};
  return stat(path, &found) == 0 ? static_cast<uint64_t>(found.st_ino) : 0;
}

}  // namespace

uint64_t HashText(const char* text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (; *text != '\0'; ++text) hash = (hash ^ static_cast<unsigned char>(*text)) * 0x100000001b3u;
  return hash;
}

uint64_t ClockIdentity() {
  char boot[64] = "";
  const int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (file >= 0) {
    const ssize_t got = read(file, boot, sizeof boot - 1);
    boot[got > 0 ? got : 0] = '\0';
    close(file);
  }
  struct stat clock = {};
  if (stat("/proc/self/ns/time", &clock) != 0) clock = {};
  return HashText(boot) ^ clock.st_ino;
}

void NameContainer(const char* given, char name[kContainerNameBytes]) {
  if (given[0] == '\0') {
    struct stat root = {};
    if (stat("/", &root) != 0) root = {};
    snprintf(name, kContainerNameBytes, "ns%llx-%llx-%llx",
             static_cast<unsigned long long>(InodeOf("/proc/self/ns/pid")),
             static_cast<unsigned long long>(root.st_dev),
             static_cast<unsigned long long>(root.st_ino));
    return;
  }
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
