// lookup.h: hookgen 1, templates/lookup.h.j2, model 0d5d24616bf57027
// Generated: change the model or the template, never this file.
// clang-format off
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "symbols.h"

namespace gpufence {

// The symbol with exactly this name, or kNoSym. No allocation, no lock: one hash of the name, one
// displacement, one comparison. A name that does not begin like any of ours costs two loads.
constexpr Sym FindSym(const char* name);

// One row: from `cuda_version` on, cuGetProcAddress(base) means `sym`. `base` is an offset into
// kSymNames; per_thread rows answer callers that ask for the per-thread default stream.
struct Threshold {
  uint16_t cuda_version;
  Sym sym;
  bool per_thread;
  uint32_t base;
};

constexpr const char* BaseName(const Threshold& row) { return kSymNames + row.base; }

enum class VariantStatus : uint8_t { kFound, kUnknownName, kVersionTooLow };

struct Variant {
  Sym sym;
  VariantStatus status;
};

// What cuGetProcAddress answers, for a driver in which exported(sym) is true.
template <typename Exported>
constexpr Variant FindVariant(const char* base, uint32_t cuda_version, bool per_thread, Exported exported);

// Implementation.

namespace lookup {

// Offset of each name in kSymNames, by Sym.
inline constexpr uint16_t kNameOffset[kSymCount] = {
    0, 16, 30, 43, 61, 74, 92, 105, 120, 133, 146, 161, 174, 190, 206, 222,
    238, 254, 267, 283, 296, 313, 327, 344,
};

inline constexpr size_t kLongestName = 17;
inline constexpr uint32_t kBucketMask = 7;
inline constexpr unsigned kSlotShift = 26;

inline constexpr uint8_t kDisplacement[8] = {
    0, 0, 2, 3, 0, 2, 1, 1,
};

inline constexpr uint16_t kSlot[64] = {
    65535, 65535, 65535, 65535, 65535, 14, 65535, 65535, 20, 65535, 65535, 65535, 65535, 16, 3, 0,
    65535, 65535, 9, 1, 65535, 65535, 65535, 15, 65535, 65535, 21, 65535, 65535, 19, 65535, 65535,
    65535, 65535, 2, 65535, 65535, 17, 65535, 65535, 65535, 8, 65535, 12, 13, 65535, 4, 22,
    65535, 65535, 5, 18, 6, 10, 65535, 65535, 65535, 23, 65535, 65535, 7, 11, 65535, 65535,
};

constexpr bool Equal(const char* one, const char* other) {
  while (*one != '\0' && *one == *other) {
    ++one;
    ++other;
  }
  return *one == *other;
}

constexpr int Compare(const char* one, const char* other) {
  while (*one != '\0' && *one == *other) {
    ++one;
    ++other;
  }
  return static_cast<unsigned char>(*one) - static_cast<unsigned char>(*other);
}

}  // namespace lookup

constexpr Sym FindSym(const char* name) {
  const bool ours = (name[0] == 'c' && name[1] == 'u') || (name[0] == 'n' && name[1] == 'v');
  if (!ours) return kNoSym;
  uint32_t hash = 0x811c9dc5u;  // FNV-1a
  for (size_t i = 0; name[i] != '\0'; ++i) {
    if (i == lookup::kLongestName) return kNoSym;
    hash = (hash ^ static_cast<unsigned char>(name[i])) * 0x01000193u;
  }
  const uint32_t factor = 2u * lookup::kDisplacement[hash & lookup::kBucketMask] + 1u;
  const uint16_t index = lookup::kSlot[(hash * factor) >> lookup::kSlotShift];
  if (index == kNoSym || !lookup::Equal(name, kSymNames + lookup::kNameOffset[index])) return kNoSym;
  return static_cast<Sym>(index);
}

// Sorted by base name, then plain before per-thread, then ascending version.
inline constexpr uint32_t kThresholdCount = 8;
inline constexpr Threshold kThresholds[kThresholdCount] = {
    {4000, kSym_cuGadgetCopy, false, 30},  // cuGadgetCopy
    {7000, kSym_cuGadgetCopy_ptds, true, 30},  // cuGadgetCopy
    {3020, kSym_cuGadgetFill, false, 61},  // cuGadgetFill
    {7000, kSym_cuGadgetFill_ptsz, true, 61},  // cuGadgetFill
    {2000, kSym_cuGadgetFree, false, 92},  // cuGadgetFree
    {2000, kSym_cuGadgetOpen, false, 161},  // cuGadgetOpen
    {12040, kSym_cuGadgetOpen_v2, false, 161},  // cuGadgetOpen
    {13020, kSym_cuGadgetOpen_v3, false, 161},  // cuGadgetOpen
};

template <typename Exported>
constexpr Variant FindVariant(const char* base, uint32_t cuda_version, bool per_thread, Exported exported) {
  uint32_t first = 0;
  for (uint32_t width = kThresholdCount; width > 0;) {
    const uint32_t half = width / 2;
    if (lookup::Compare(BaseName(kThresholds[first + half]), base) < 0) {
      first += half + 1;
      width -= half + 1;
    } else {
      width = half;
    }
  }
  // Per-thread rows come last and, where the driver has any, replace the plain ones altogether.
  Variant answer{kNoSym, VariantStatus::kUnknownName};
  bool in_per_thread_rows = false;
  for (uint32_t i = first; i < kThresholdCount && lookup::Equal(BaseName(kThresholds[i]), base); ++i) {
    const Threshold& row = kThresholds[i];
    if ((row.per_thread && !per_thread) || !exported(row.sym)) continue;
    if (row.per_thread && !in_per_thread_rows) {
      in_per_thread_rows = true;
      answer = {kNoSym, VariantStatus::kVersionTooLow};
    }
    if (row.cuda_version <= cuda_version) {
      answer = {row.sym, VariantStatus::kFound};
    } else if (answer.status == VariantStatus::kUnknownName) {
      answer.status = VariantStatus::kVersionTooLow;
    }
  }
  return answer;
}

}  // namespace gpufence
