// Reading a whole small file without surprises: no blocking on a pipe, no allocation, a bound.
#pragma once

#include <stddef.h>

#include <string_view>

namespace gpufence {

enum class FileResult { kRead, kMissing, kNoDescriptor, kUnreadable, kTooLarge };

// Reads root + path into `buffer`. kMissing: nothing is there. kNoDescriptor: nobody could look,
// since the process or the machine has as many files open as it may. kUnreadable: something is, but
// it cannot be opened, is no regular file, or fails to be read. kTooLarge: `bytes` were not enough;
// the buffer is filled then.
//
// `is_operators`: this process's user could not have written what was read. The file lies on a
// read-only mount; or nobody but its owner may write to it, who is root or another user.
FileResult ReadWholeFile(const char* root, const char* path, char* buffer, size_t bytes,
                         std::string_view* content, bool* is_operators);

}  // namespace gpufence
