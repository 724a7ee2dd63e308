// See hide.h.
#include "machine/hide.h"

#include <stdlib.h>
#include <string.h>

#include "machine/config.h"
#include "machine/own_elf.h"
#include "machine/version.h"
#include "sim_symbols.h"

namespace sim {
namespace {

constinit void* g_addresses[gpufence::kSymCount] = {};

// Patch releases of a branch export the same names, so branches are all that counts.
bool IsInRange(uint8_t first, uint8_t last, uint16_t branch) {
  if (branch < kListedDrivers[first].branch) return false;
  const bool is_still_there = last + 1u == kListedDriverCount;
  return is_still_there || branch <= kListedDrivers[last].branch;
}

// A name of the headers that no listed driver has: in the branches of its release and later ones.
bool IsForecast(const Presence& presence, uint16_t branch) {
  return branch > kListedDrivers[kListedDriverCount - 1].branch &&
         presence.cuda_version <= ConfiguredDriver().cuda_version;
}

bool IsInDriver(const Presence& presence, uint16_t branch) {
  if (presence.first == kNeverListed) return IsForecast(presence, branch);
  if (!IsInRange(presence.first, presence.last, branch)) return false;
#if defined(__x86_64__)
  // Where both architectures are on record, aarch64 exports what x86-64 does and some more.
  if (branch != kLatestBranch && (presence.architectures & kX86_64) == 0) return false;
#endif
  return true;
}

bool IsInDriver(const char* debugger_export, uint16_t branch) {
  for (uint32_t i = 0; i < kExtraExportCount; ++i) {
    const ExtraExport& extra = kExtraExports[i];
    if (strcmp(extra.name, debugger_export) == 0) return IsInRange(extra.first, extra.last, branch);
  }
  return true;  // none of a driver's names: what a sanitizer or profiler adds to the file
}

bool IsWanted(const char* name, uint16_t branch) {
  const gpufence::Sym sym = gpufence::FindSym(name);
  return sym == gpufence::kNoSym ? IsInDriver(name, branch) : IsInDriver(kPresence[sym], branch);
}

// Calls visit(entry, name) for each symbol that the file defines.
template <typename Visit>
void ForEachExport(const OwnSymbols& own, Visit visit) {
  for (size_t i = 1; i < own.count; ++i) {
    ElfW(Sym) & entry = own.table[i];
    if (entry.st_shndx != SHN_UNDEF) visit(entry, own.strings + entry.st_name);
  }
}

// Makes the entries of unwanted names look like undefined references.
void Hide(const OwnSymbols& own, uint16_t branch) {
  const WritableSymbols writable(own);
  if (!writable.ok()) {
    const char* asked = getenv("GPUFENCE_SIM_DRIVER");
    Complain("GPUFENCE_SIM_DRIVER", asked != nullptr ? asked : kFileDriver,
             "this system forbids what hiding newer names takes, so they stay visible");
    return;
  }
  ForEachExport(own, [branch](ElfW(Sym) & entry, const char* name) {
    if (IsWanted(name, branch)) return;
    entry.st_shndx = SHN_UNDEF;
    entry.st_value = 0;
    entry.st_size = 0;
  });
}

void FitNamesToDriver() {
  const OwnSymbols own = FindOwnSymbols();
  const uint16_t branch = ConfiguredDriver().branch;
  bool has_unwanted = false;
  ForEachExport(own, [&](const ElfW(Sym) & entry, const char* name) {
    const gpufence::Sym sym = gpufence::FindSym(name);
    if (!IsWanted(name, branch)) {
      has_unwanted = true;
    } else if (sym != gpufence::kNoSym) {
      g_addresses[sym] = reinterpret_cast<void*>(own.bias + entry.st_value);
    }
  });
  if (has_unwanted) Hide(own, branch);
}

// The one constructor: names must be gone before anybody can look them up.
[[gnu::constructor]] void AtLoad() {
  ConfigureDriver();
  FitNamesToDriver();
}

}  // namespace

void* ExportAddress(uint16_t sym) { return g_addresses[sym]; }

}  // namespace sim
