// Which driver this process simulates: its version, the CUDA version it brings, its name as text.
//
// Owns the reading of GPUFENCE_SIM_DRIVER.  Must not know which symbols a driver exports (hide.h).
// Versions are numbers here, spelled on demand: tools tell a driver's version by the version-shaped
// text in its file, so there must be no other (file_driver.cpp).
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

inline constexpr uint16_t kNoPatch = 0xffff;

// The branch of a driver that has everything the newest headers declare.  No real one is numbered
// so.
inline constexpr uint16_t kLatestBranch = 999;

// Longest text that FormatDriver writes, with its NUL.
inline constexpr size_t kDriverTextBytes = 24;

// The driver whose names the file on disk exports, and NVML's name for it: "580.159.04",
// "13.580.159.04".
extern const char kFileDriver[];
extern const char kFileNvml[];

// The driver that GPUFENCE_SIM_DRIVER names; the file's own when it names none, or none that
// ParseDriver knows (the configuration then refuses to work).  Thread-safe.
const Driver& ConfiguredDriver();

// Reads the environment; called once, at load, before anything else of the library.
void ConfigureDriver();

// Reads "550", "550.163.01" or "latest" (the file's driver).  False when it is none of these, of a
// branch that is not on record, or newer than the file; *driver is then untouched.
bool ParseDriver(const char* text, Driver* driver);

// Writes "550.163.01" and a NUL, at most `size` bytes.  Returns the length without the NUL.
size_t FormatDriver(const Driver& driver, char* text, size_t size);

}  // namespace sim
