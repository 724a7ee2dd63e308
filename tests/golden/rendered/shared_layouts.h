// shared_layouts.h: hookgen 1, templates/shared_layouts.h.j2, model 0d5d24616bf57027
// Generated: change the model or the template, never this file.
// clang-format off
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <atomic>

namespace gpufence {

inline constexpr uint32_t kMany = 3u;  // of gadgets, whoever has them
inline constexpr uint64_t kMask = 255u;
inline constexpr uint64_t kGadgetMagic = 3563319709055344999u;
inline constexpr uint32_t kGadgetVersion = 2u;

// The test of the ledger's protocol puts a word in here that stops before every access.
#ifdef GPUFENCE_WORD
using Word = GPUFENCE_WORD;
#else
using Word = std::atomic<uint64_t>;
#endif
static_assert(Word::is_always_lock_free && sizeof(Word) == 8);
static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4);

struct Part {  // of any file
  std::atomic<uint32_t> owner;  // 0: nobody
  uint32_t kind;
  Word used;  // in all
};
static_assert(sizeof(Part) == 16 && alignof(Part) == 8);
static_assert(offsetof(Part, owner) == 0);
static_assert(offsetof(Part, kind) == 4);
static_assert(offsetof(Part, used) == 8);

struct Gadget {  // the whole file
  uint64_t magic;  // first
  uint8_t name[2][4];
  Part parts[kMany];
  alignas(64) Word total;  // on a line of its own
  char text[8];
  uint64_t rest[14];
};
static_assert(sizeof(Gadget) == 192 && alignof(Gadget) == 64);
static_assert(offsetof(Gadget, magic) == 0);
static_assert(offsetof(Gadget, name) == 8);
static_assert(offsetof(Gadget, parts) == 16);
static_assert(offsetof(Gadget, total) == 64);
static_assert(offsetof(Gadget, text) == 72);
static_assert(offsetof(Gadget, rest) == 80);

}  // namespace gpufence
