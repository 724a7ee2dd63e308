// The program of the node image: puts the library where a node's containers mount it from.
//
//   install SOURCE TARGET [SHARED ...]
//
// Copies every file of SOURCE into TARGET, and opens each SHARED folder to all users. Each file is
// written beside its place and renamed over the old one, as `gpufence install` does: a program that
// starts meanwhile loads the old library or the new one. Exit status: 0, 1 with a line, 2 usage.
//
// Static, because the image holds nothing else. Must not know which files a release has.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int Failed(const char* path) {
  fprintf(stderr, "install: '%s' cannot be written: %s. Mount a folder that root may write to.\n",
          path, strerror(errno));
  return 1;
}

// False with errno set. What was written of `to` may be there.
static int Copy(const char* from, const char* to) {
  static char block[1 << 16];
  const int in = open(from, O_RDONLY | O_CLOEXEC);
  if (in < 0) return 0;
  const int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  ssize_t got = out < 0 ? -1 : 0;
  while (out >= 0 && (got = read(in, block, sizeof block)) > 0) {
    if (write(out, block, (size_t)got) != got) {
      got = -1;
      break;
    }
  }
  // Readable by everybody and on the disk before it gets the name that programs load.
  const int done = got == 0 && fchmod(out, 0644) == 0 && fsync(out) == 0;
  const int error = errno;
  if (out >= 0) close(out);
  close(in);
  errno = error;
  return done;
}

static int CopyAll(const char* source, const char* target) {
  DIR* folder = opendir(source);
  if (folder == NULL) return Failed(source);
  struct dirent* entry;
  int status = 0;
  while (status == 0 && (entry = readdir(folder)) != NULL) {
    if (entry->d_name[0] == '.') continue;
    char from[PATH_MAX], draft[PATH_MAX], to[PATH_MAX];
    snprintf(from, sizeof from, "%s/%s", source, entry->d_name);
    snprintf(draft, sizeof draft, "%s/.%s.new", target, entry->d_name);
    snprintf(to, sizeof to, "%s/%s", target, entry->d_name);
    if (!Copy(from, draft) || rename(draft, to) != 0) {
      status = Failed(to);
      unlink(draft);
    } else {
      printf("installed  %s\n", to);
    }
  }
  closedir(folder);
  return status;
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: install SOURCE TARGET [SHARED ...]\n");
    return 2;
  }
  if (CopyAll(argv[1], argv[2]) != 0) return 1;
  for (int i = 3; i < argc; ++i) {
    if (chmod(argv[i], 01777) != 0) return Failed(argv[i]);
  }
  return 0;
}
