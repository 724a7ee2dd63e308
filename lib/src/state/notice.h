// What tells that a notice is whole, and which word of it neighbours sleep on. Its words are in
// lib/layouts/shared_files.txt: its author alone writes them, and nobody trusts them. Must not know
// files, nor what the words mean to whoever decides.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "shared_layouts.h"

namespace gpufence {

// What neighbours sleep on: the lower half of `began_us`, which changes with every turn.
inline constexpr size_t kNoticeFutexAt = offsetof(Notice, began_us);

inline uint64_t CheckOf(const Notice& notice) {
  const auto* words = reinterpret_cast<const uint64_t*>(&notice);
  uint64_t check = kNoticeVersion;
  for (size_t i = 0; i < offsetof(Notice, check) / sizeof(uint64_t); ++i) {
    check = (check ^ words[i]) * 0x9e3779b97f4a7c15u;
    check ^= check >> 29;
  }
  return check;
}

}  // namespace gpufence
