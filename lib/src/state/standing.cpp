#include "state/standing.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

namespace gpufence {
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
