// The bytes of a notice: what a container says of itself on one GPU, for its neighbours to read.
// Changing anything here means a new kNoticeVersion, which is part of the file's name: containers
// whose libraries have different ones do not see each other. Must not know files, nor what the
// words mean to whoever decides.
//
// Its author alone writes it, and nobody trusts it: whoever reads it copies it first, and any word
// may hold anything.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace gpufence {

inline constexpr uint32_t kNoticeRuns = 48;
inline constexpr uint64_t kNoticeMagic = 0x326e727574706667;  // "gfpturn2"
inline constexpr uint32_t kNoticeVersion = 2;

struct Notice {
  uint64_t magic;
  uint64_t author;    // as in the file's name
  uint64_t device;    // RowKey of the GPU's UUID
  uint64_t began_us;  // the latest turn that its author knows of: when it began ...
  uint64_t holder;    // ... and whose it is; 0: nobody's
  uint64_t beat_ns;   // when this was written
  uint64_t wants_ns;  // since when it waits for the GPU or uses it; 0: it does not
  uint64_t idle_ns;   // since when nothing of it is outstanding; 0: something is
  uint64_t ends_ns;   // when that is expected to be done; 0: unknown
  uint64_t due_ns;    // policy/share.h
  uint64_t served_ns;
  uint64_t active_ns;  // when it last wanted or used the GPU
  uint64_t shares;     // PackShares
  uint64_t quantum_ns;
  uint64_t charged_ns;         // all GPU time that it was ever charged
  uint64_t terms;              // PackTerms
  uint64_t runs[kNoticeRuns];  // when it had work on the GPU lately (policy/beside.h)
  uint64_t check;              // of all before
};
static_assert(sizeof(Notice) == 136 + 8 * kNoticeRuns);

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
