// sim_symbols.h: hookgen 1, templates/sim_symbols.h.j2, model ff827cce331cbe8d
// Generated: change the model or the template, never this file.
// clang-format off
#pragma once

#include <stdint.h>

#include "lookup.h"

namespace sim {

// The drivers whose export lists are on record, ascending. no_patch marks two-part versions.
struct ListedDriver {
  uint16_t branch;
  uint16_t minor;
  uint16_t patch;
};

inline constexpr uint16_t kListedNoPatch = 0xffff;
inline constexpr uint8_t kNeverListed = 0xff;
inline constexpr uint32_t kListedDriverCount = 3;

inline constexpr ListedDriver kListedDrivers[kListedDriverCount] = {
    {470, 256, 2},  // 470.256.02
    {550, 163, 1},  // 550.163.01
    {580, 159, 4},  // 580.159.04
};

enum Architecture : uint8_t { kX86_64 = 1, kAarch64 = 2 };

// First and last listed driver that exports a symbol, as positions in kListedDrivers; both are
// kNeverListed for a forecast of the headers. `architectures` are those where a list has it.
struct Presence {
  uint8_t first;
  uint8_t last;
  uint8_t architectures;
};

// Indexed by Sym.
inline constexpr Presence kPresence[gpufence::kSymCount] = {
    {0, 2, 2},  // cuGadgetArmOnly
    {0, 2, 3},  // cuGadgetBlend
    {0, 2, 3},  // cuGadgetCopy
    {0, 2, 3},  // cuGadgetCopy_ptds
    {0, 2, 3},  // cuGadgetFill
    {0, 2, 3},  // cuGadgetFill_ptsz
    {0, 2, 3},  // cuGadgetFree
    {0, 2, 3},  // cuGadgetImport
    {0, 2, 3},  // cuGadgetMany
    {0, 2, 3},  // cuGadgetName
    {0, 2, 3},  // cuGadgetOnDone
    {0, 2, 3},  // cuGadgetOpen
    {1, 2, 3},  // cuGadgetOpen_v2
    {255, 255, 0},  // cuGadgetOpen_v3
    {0, 2, 3},  // cuGadgetPrivate
    {0, 1, 3},  // cuGadgetRelease
    {0, 2, 3},  // cuGadgetVersion
    {0, 2, 3},  // cuGadgetWalk
    {0, 2, 3},  // nvmlErrorString
    {0, 2, 3},  // nvmlGaugeGet
    {0, 2, 3},  // nvmlGaugeInit_v2
    {0, 2, 3},  // nvmlGaugeRead
    {1, 2, 3},  // nvmlGaugeRead_v2
    {0, 0, 1},  // nvmlGaugeSecret
};

// The debugger's exports, which have no Sym.
struct ExtraExport {
  const char* name;
  uint8_t first;
  uint8_t last;
};

inline constexpr uint32_t kExtraExportCount = 4;
inline constexpr ExtraExport kExtraExports[kExtraExportCount] = {
    {"cudbgGetAPI", 0, 2},
    {"cudbgInjectionPath", 0, 2},
    {"cudbgIpcFlag", 0, 2},
    {"cudbgSessionId", 2, 2},
};

}  // namespace sim
