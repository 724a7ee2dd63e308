// Whether a folder may hold what the processes of a container share, judged by facts that are the
// same for each of them, whatever its user: so all of them pass by the same folders. Must not know
// which files lie there.
#pragma once

#include <stdint.h>

namespace gpufence {

enum class Standing : uint8_t {
  kOpen,      // every user can keep files there
  kAbsent,    // there is no such folder, or not every user may write to it
  kReadOnly,  // its file system is read-only here
  kUnknown,   // errno says why this process cannot find out
};

Standing StandingOf(const char* folder);

}  // namespace gpufence
