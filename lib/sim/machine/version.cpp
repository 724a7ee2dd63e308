// See version.h.
#include "machine/version.h"

#include <stdlib.h>
#include <string.h>

#include "sim_symbols.h"

namespace sim {
namespace {

constinit Driver g_configured = {};

// One number of a version: decimal digits.  Returns what follows it, nullptr when there is none.
const char* ReadNumber(const char* text, uint16_t* value) {
  uint32_t sum = 0;
  const char* at = text;
  for (; *at >= '0' && *at <= '9'; ++at) {
    sum = sum * 10 + static_cast<uint32_t>(*at - '0');
    if (sum >= kNoPatch) return nullptr;
  }
  if (at == text) return nullptr;
  *value = static_cast<uint16_t>(sum);
  return at;
}

// ".163.01" or ".108"; nothing may follow.
bool ReadRelease(const char* text, Driver* driver) {
  if (*text != '.') return false;
  const char* rest = ReadNumber(text + 1, &driver->minor);
  driver->patch = kNoPatch;
  if (rest != nullptr && *rest == '.') rest = ReadNumber(rest + 1, &driver->patch);
  return rest != nullptr && *rest == '\0';
}

// A bare branch means its newest release on record.
void UseNewestRelease(Driver* driver) {
  for (const ListedDriver& listed : kListedDrivers) {
    if (listed.branch != driver->branch) continue;
    driver->minor = listed.minor;
    driver->patch = listed.patch;
  }
}

// The file's own branch: simulating a newer driver would need names that the file lacks.
uint16_t FileBranch() {
  uint16_t branch = 0;
  ReadNumber(kFileDriver, &branch);
  return branch;
}

size_t AppendNumber(char* text, size_t at, size_t size, uint16_t value, int least_digits) {
  char digits[8];
  int count = 0;
  for (; value != 0 || count < least_digits; value = static_cast<uint16_t>(value / 10)) {
    digits[count++] = static_cast<char>('0' + value % 10);
  }
  while (count > 0 && at + 1 < size) text[at++] = digits[--count];
  return at;
}

size_t AppendDot(char* text, size_t at, size_t size) {
  if (at + 1 < size) text[at++] = '.';
  return at;
}

}  // namespace

const Driver& ConfiguredDriver() { return g_configured; }

void ConfigureDriver() {
  const char* asked = getenv("GPUFENCE_SIM_DRIVER");
  if (asked != nullptr && ParseDriver(asked, &g_configured)) return;
  ParseDriver(kFileDriver, &g_configured);
}

bool ParseDriver(const char* text, Driver* driver) {
  if (strcmp(text, "latest") == 0) text = kFileDriver;
  Driver read = {};
  const char* rest = ReadNumber(text, &read.branch);
  if (rest == nullptr || read.branch > FileBranch()) return false;
  if (read.branch == kLatestBranch) read.cuda_version = kHeadersCudaVersion;
  for (const Branch& branch : kBranches) {
    if (branch.number == read.branch) read.cuda_version = branch.cuda_version;
  }
  if (read.cuda_version == 0) return false;
  if (*rest == '\0') {
    UseNewestRelease(&read);
  } else if (!ReadRelease(rest, &read)) {
    return false;
  }
  *driver = read;
  return true;
}

size_t FormatDriver(const Driver& driver, char* text, size_t size) {
  if (size == 0) return 0;
  size_t at = AppendNumber(text, 0, size, driver.branch, 1);
  at = AppendDot(text, at, size);
  at = AppendNumber(text, at, size, driver.minor, 1);
  if (driver.patch != kNoPatch) {
    at = AppendDot(text, at, size);
    at = AppendNumber(text, at, size, driver.patch, 2);
  }
  text[at] = '\0';
  return at;
}

}  // namespace sim
