// The text of an errno for log lines, always in English. A translation may need a converter of
// character sets, which the C library loads first; and another thread may hold the loader's lock.
#pragma once

#include <locale.h>
#include <string.h>

namespace gpufence {

inline const char* ErrorText(int error) {
  // The C library's own "C" locale: nothing is allocated, and there is nothing to free.
  locale_t plain = newlocale(LC_ALL_MASK, "C", nullptr);
  return plain != nullptr ? strerror_l(error, plain) : "unknown error";
}

}  // namespace gpufence
