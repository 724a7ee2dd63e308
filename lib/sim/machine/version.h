// Which driver this process simulates: its version, the CUDA version it brings, its name as text.
//
// Owns GPUFENCE_SIM_DRIVER. Must not know which symbols a driver exports (rendered, see hide.h).
// Versions are kept as numbers and spelled on demand: findsyms and others tell a driver's version by
// the one version-shaped string in the file, so there may be only one (kFileVersion).
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace sim {

struct Driver {
  uint16_t branch;       // 550
  uint16_t minor;        // 163
  uint16_t patch;        // 1; kNoPatch in the two-part numbers before 400
  int32_t cuda_version;  // 12040, as cuDriverGetVersion reports it
};

constexpr uint16_t kNoPatch = 0xffff;

// The branch of "latest": everything that the newest headers know. No driver carries this number.
constexpr uint16_t kLatestBranch = 999;

// Longest text that FormatDriver writes, with its NUL ("65535.65535.65535" and some air).
constexpr size_t kDriverTextBytes = 24;

// The driver that GPUFENCE_SIM_DRIVER names, or the one whose names the file on disk carries.
// Decided once, at load; safe from any thread and after fork.
const Driver& ConfiguredDriver();

// Reads "550", "550.163.01" or "latest". False when it is none of these, or of a branch whose names
// are not on record; `driver` is then untouched.
bool ParseDriver(const char* text, Driver* driver);

// Writes "550.163.01" and a NUL, at most `size` bytes. Returns the length without the NUL.
size_t FormatDriver(const Driver& driver, char* text, size_t size);

}  // namespace sim
