// A file that processes share as memory: found in one of several folders, or made in the first that
// every user can use, whole or not at all. A folder is judged by facts that are the same for each
// process of a container, whatever its user, so that all of them pass by the same ones. Must not
// know what is in the file.
#pragma once

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/futex.h"

namespace gpufence {

enum class Standing : uint8_t {
  kOpen,      // every user can keep files there
  kAbsent,    // there is no such folder, or not every user may write to it
  kReadOnly,  // its file system is read-only here
  kUnknown,   // errno says why this process cannot find out
};

Standing StandingOf(const char* folder);

// What makes a file one of its kind.
struct SharedFileKind {
  size_t bytes;            // of the whole file, which is sparse
  size_t allocated_bytes;  // from its start: what is in use from the beginning
  void (*write_header)(void* memory);
  bool (*is_ready)(const void* memory);
};

// Where to look, in order, and under which name. Texts are the caller's. Of several folders, those
// that not every user can use are passed by (StandingOf); a folder that stands alone is used
// whoever can use it, and made where it is missing.
struct SharedFilePlaces {
  static constexpr size_t kMost = 4;
  const char* folders[kMost];  // nullptr ends the list early
  const char* file_name;
  const char* lock_folder;  // what all who may make the file can open
};

struct SharedFile {
  void* memory = nullptr;
  int fd = -1;
  uint64_t device = 0;  // which file the descriptor was opened for
  uint64_t inode = 0;
  uint32_t place = 0;  // in which of the folders it is
};

// Both of these hold the file in its place: until HasPlace, or for as long as it is open, nobody
// removes it as one that is no longer used. So whoever comes later finds the same file.
//
// Maps what is there, `mode` being O_RDWR or O_RDONLY, and makes nothing.
bool FindSharedFile(const SharedFileKind& kind, const SharedFilePlaces& places, int mode,
                    SharedFile* file);

// Maps the file, made if need be. False: errno says why, of `path`; "": no folder is open. Two
// processes that are given the same places never get two files: who cannot use the first folder
// that everybody else can is refused. One thread at a time.
bool OpenSharedFile(const SharedFileKind& kind, const SharedFilePlaces& places, SharedFile* file,
                    char* path, size_t path_bytes);

// The folder in which the file would be made now; null: none is open.
const char* FolderOf(const SharedFilePlaces& places);

// A descriptor that is none of the standard streams' numbers: a program that closed those goes on
// writing to them, and must not write into the file. -1 with errno, EMFILE or so, when there is no
// other number. The second opens a file so, and never through a link.
int BeyondStreams(int fd);
int OpenBeyondStreams(const char* path, int flags, mode_t mode = 0);

// To be called once the lock on a slot's byte shows that the file is in use.
void HasPlace(int fd);

// Lets go of mapping and descriptor.
void CloseSharedFile(const SharedFileKind& kind, SharedFile* file);

// Waits for what others hold for a moment only; false when one of them was stopped in it.
template <typename Try>
bool WaitFor(int most_ms, Try attempt) {
  for (int waited_ms = 0; !attempt(); ++waited_ms) {
    if (waited_ms == most_ms) return false;
    Nap(1'000'000);
  }
  return true;
}

// True while the descriptor is still the file's: daemons close all they have.
bool IsSameFile(int fd, uint64_t device, uint64_t inode);

// Allocates a part before it is written: writing to a hole of a full file system is a fatal signal.
bool AllocateRange(int fd, size_t offset, size_t bytes);

// What this process opened. A forked child inherits descriptor and mapping, which would keep the
// parent's locks alive when the parent is dead.
class OpenedFile {
 public:
  void Remember(const SharedFile& file, size_t bytes);

  // Another descriptor of whatever its name leads to now; -1 when there is nothing. The caller
  // closes it.
  int Reopen() const;

  // In a forked child: lets go of what the parent had open.
  void CloseInherited();

 private:
  pid_t opener_ = 0;
  SharedFile file_ = {};
  size_t bytes_ = 0;
  char path_[PATH_MAX] = "";
};

}  // namespace gpufence
