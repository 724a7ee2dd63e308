#include "config/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace gpufence {
namespace {

constexpr size_t kPathBytes = 4096;

bool IsOperators(int file) {
  struct statvfs mounted = {};
  if (fstatvfs(file, &mounted) == 0 && (mounted.f_flag & ST_RDONLY) != 0) return true;
  struct stat about = {};
  if (fstat(file, &about) != 0 || (about.st_mode & (S_IWGRP | S_IWOTH)) != 0) return false;
  return about.st_uid == 0 || about.st_uid != geteuid();
}

FileResult ReadAll(int file, char* buffer, size_t bytes, std::string_view* content) {
  struct stat about = {};
  if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode)) return FileResult::kUnreadable;
  size_t used = 0;
  while (used < bytes) {
    const ssize_t got = read(file, buffer + used, bytes - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileResult::kUnreadable;
    *content = {buffer, used + static_cast<size_t>(got)};
    if (got == 0) return FileResult::kRead;
    used += static_cast<size_t>(got);
  }
  return FileResult::kTooLarge;
}

}  // namespace

FileResult ReadWholeFile(const char* root, const char* path, char* buffer, size_t bytes,
                         std::string_view* content, bool* is_operators) {
  *content = {};
  *is_operators = false;
  char full[kPathBytes];
  const int length = snprintf(full, sizeof full, "%s%s", root, path);
  if (length < 0 || static_cast<size_t>(length) >= sizeof full) return FileResult::kUnreadable;
  const int saved_errno = errno;
  const int file = open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  FileResult result = FileResult::kUnreadable;
  if (file >= 0) {
    result = ReadAll(file, buffer, bytes, content);
    *is_operators = IsOperators(file);
    close(file);
  } else if (errno == ENOENT || errno == ENOTDIR) {
    result = FileResult::kMissing;
  } else if (errno == EMFILE || errno == ENFILE) {
    result = FileResult::kNoDescriptor;
  }
  errno = saved_errno;
  return result;
}

}  // namespace gpufence
