// symbols.h: hookgen 1, templates/symbols.h.j2, model 0d5d24616bf57027
// Generated: change the model or the template, never this file.
// clang-format off
#pragma once

#include <stdint.h>

namespace gpufence {

// CUDA first, then NVML; by name inside each. Exports without a prototype are among them.
enum Sym : uint16_t {
  kSym_cuGadgetArmOnly = 0,
  kSym_cuGadgetBlend = 1,
  kSym_cuGadgetCopy = 2,
  kSym_cuGadgetCopy_ptds = 3,
  kSym_cuGadgetFill = 4,
  kSym_cuGadgetFill_ptsz = 5,
  kSym_cuGadgetFree = 6,
  kSym_cuGadgetImport = 7,
  kSym_cuGadgetMany = 8,
  kSym_cuGadgetName = 9,
  kSym_cuGadgetOnDone = 10,
  kSym_cuGadgetOpen = 11,
  kSym_cuGadgetOpen_v2 = 12,
  kSym_cuGadgetOpen_v3 = 13,
  kSym_cuGadgetPrivate = 14,
  kSym_cuGadgetRelease = 15,
  kSym_cuGadgetVersion = 16,
  kSym_cuGadgetWalk = 17,
  kSym_nvmlErrorString = 18,
  kSym_nvmlGaugeGet = 19,
  kSym_nvmlGaugeInit_v2 = 20,
  kSym_nvmlGaugeRead = 21,
  kSym_nvmlGaugeRead_v2 = 22,
  kSym_nvmlGaugeSecret = 23,
  kNoSym = 0xffff,
};

inline constexpr uint32_t kCudaFirst = 0;
inline constexpr uint32_t kCudaEnd = 18;
inline constexpr uint32_t kNvmlFirst = 18;
inline constexpr uint32_t kNvmlEnd = 24;
inline constexpr uint32_t kSymCount = 24;

// The status values that forwarding itself needs.
inline constexpr int kCudaSuccess = 0;
inline constexpr int kCudaInvalidValue = 1;
inline constexpr int kCudaNotFound = 500;
inline constexpr int kNvmlSuccess = 0;
inline constexpr int kNvmlInvalidValue = 2;
inline constexpr int kNvmlNotFound = 13;

enum Library : uint8_t { kLibraryCuda, kLibraryNvml };

// What a function does to the ledger or the account. All but copy, stream and plain are enforced.
enum Kind : uint8_t {
  kKindAlloc,
  kKindFree,
  kKindLaunch,
  kKindCopy,
  kKindQuery,
  kKindContext,
  kKindLookup,
  kKindStream,
  kKindPlain,
};

constexpr bool IsEnforced(Kind kind) {
  return kind != kKindCopy && kind != kKindStream && kind != kKindPlain;
}

struct SymInfo {
  const char* name;
  Library library;
  Kind kind;
};

// All names, each closed by a zero byte; the tables point into it.
inline constexpr char kSymNames[] =
    "cuGadgetArmOnly\0"
    "cuGadgetBlend\0"
    "cuGadgetCopy\0"
    "cuGadgetCopy_ptds\0"
    "cuGadgetFill\0"
    "cuGadgetFill_ptsz\0"
    "cuGadgetFree\0"
    "cuGadgetImport\0"
    "cuGadgetMany\0"
    "cuGadgetName\0"
    "cuGadgetOnDone\0"
    "cuGadgetOpen\0"
    "cuGadgetOpen_v2\0"
    "cuGadgetOpen_v3\0"
    "cuGadgetPrivate\0"
    "cuGadgetRelease\0"
    "cuGadgetVersion\0"
    "cuGadgetWalk\0"
    "nvmlErrorString\0"
    "nvmlGaugeGet\0"
    "nvmlGaugeInit_v2\0"
    "nvmlGaugeRead\0"
    "nvmlGaugeRead_v2\0"
    "nvmlGaugeSecret\0"
    ;

// Indexed by Sym.
inline constexpr SymInfo kSymInfo[kSymCount] = {
    {kSymNames + 0, kLibraryCuda, kKindPlain},  // cuGadgetArmOnly
    {kSymNames + 16, kLibraryCuda, kKindPlain},  // cuGadgetBlend
    {kSymNames + 30, kLibraryCuda, kKindCopy},  // cuGadgetCopy
    {kSymNames + 43, kLibraryCuda, kKindCopy},  // cuGadgetCopy_ptds
    {kSymNames + 61, kLibraryCuda, kKindCopy},  // cuGadgetFill
    {kSymNames + 74, kLibraryCuda, kKindCopy},  // cuGadgetFill_ptsz
    {kSymNames + 92, kLibraryCuda, kKindFree},  // cuGadgetFree
    {kSymNames + 105, kLibraryCuda, kKindPlain},  // cuGadgetImport
    {kSymNames + 120, kLibraryCuda, kKindLaunch},  // cuGadgetMany
    {kSymNames + 133, kLibraryCuda, kKindQuery},  // cuGadgetName
    {kSymNames + 146, kLibraryCuda, kKindStream},  // cuGadgetOnDone
    {kSymNames + 161, kLibraryCuda, kKindAlloc},  // cuGadgetOpen
    {kSymNames + 174, kLibraryCuda, kKindAlloc},  // cuGadgetOpen_v2
    {kSymNames + 190, kLibraryCuda, kKindAlloc},  // cuGadgetOpen_v3
    {kSymNames + 206, kLibraryCuda, kKindPlain},  // cuGadgetPrivate
    {kSymNames + 222, kLibraryCuda, kKindFree},  // cuGadgetRelease
    {kSymNames + 238, kLibraryCuda, kKindPlain},  // cuGadgetVersion
    {kSymNames + 254, kLibraryCuda, kKindPlain},  // cuGadgetWalk
    {kSymNames + 267, kLibraryNvml, kKindPlain},  // nvmlErrorString
    {kSymNames + 283, kLibraryNvml, kKindQuery},  // nvmlGaugeGet
    {kSymNames + 296, kLibraryNvml, kKindPlain},  // nvmlGaugeInit_v2
    {kSymNames + 313, kLibraryNvml, kKindQuery},  // nvmlGaugeRead
    {kSymNames + 327, kLibraryNvml, kKindQuery},  // nvmlGaugeRead_v2
    {kSymNames + 344, kLibraryNvml, kKindPlain},  // nvmlGaugeSecret
};

}  // namespace gpufence
