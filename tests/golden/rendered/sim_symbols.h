// sim_symbols.h: hookgen 1, templates/sim_symbols.h.j2, model 0d5d24616bf57027
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

// What cuDriverGetVersion answers in each branch, ascending. Branches that no list is of are derived
// from headers: they export what the newest list has and what their release's headers declare.
struct Branch {
  uint16_t number;
  int32_t cuda_version;
};

inline constexpr uint32_t kBranchCount = 14;
inline constexpr Branch kBranches[kBranchCount] = {
    {340, 6050},
    {390, 9010},
    {418, 10010},
    {450, 11000},
    {460, 11020},
    {470, 11040},
    {525, 12000},
    {535, 12020},
    {550, 12040},
    {580, 13000},
    {590, 13010},
    {595, 13020},
    {610, 13030},
    {615, 13040},
};

// What the newest headers are of.
inline constexpr int32_t kHeadersCudaVersion = 13050;

enum Architecture : uint8_t { kX86_64 = 1, kAarch64 = 2 };

// First and last listed driver that exports a symbol, as positions in kListedDrivers; both are
// kNeverListed for a forecast of the headers, which `cuda_version` tells the oldest of: 0, none.
// `architectures` are those where a list has it.
struct Presence {
  uint8_t first;
  uint8_t last;
  uint8_t architectures;
  int32_t cuda_version;
};

// Indexed by Sym.
inline constexpr Presence kPresence[gpufence::kSymCount] = {
    {0, 2, 2, 11080},  // cuGadgetArmOnly
    {0, 2, 3, 11080},  // cuGadgetBlend
    {0, 2, 3, 11080},  // cuGadgetCopy
    {0, 2, 3, 11080},  // cuGadgetCopy_ptds
    {0, 2, 3, 11080},  // cuGadgetFill
    {0, 2, 3, 11080},  // cuGadgetFill_ptsz
    {0, 2, 3, 11080},  // cuGadgetFree
    {0, 2, 3, 11080},  // cuGadgetImport
    {0, 2, 3, 11080},  // cuGadgetMany
    {0, 2, 3, 11080},  // cuGadgetName
    {0, 2, 3, 11080},  // cuGadgetOnDone
    {0, 2, 3, 11080},  // cuGadgetOpen
    {1, 2, 3, 11080},  // cuGadgetOpen_v2
    {255, 255, 0, 13020},  // cuGadgetOpen_v3
    {0, 2, 3, 0},  // cuGadgetPrivate
    {0, 1, 3, 11080},  // cuGadgetRelease
    {0, 2, 3, 11080},  // cuGadgetVersion
    {0, 2, 3, 11080},  // cuGadgetWalk
    {0, 2, 3, 11080},  // nvmlErrorString
    {0, 2, 3, 11080},  // nvmlGaugeGet
    {0, 2, 3, 11080},  // nvmlGaugeInit_v2
    {0, 2, 3, 11080},  // nvmlGaugeRead
    {1, 2, 3, 11080},  // nvmlGaugeRead_v2
    {0, 0, 1, 0},  // nvmlGaugeSecret
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
