// See version.h.
#include "machine/version.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <array>

namespace sim {
namespace {

// The branches whose exported names are on record (lib/api/symbols), each with its newest release
// there. Patch releases of one branch export the same names.
constexpr std::array<Driver, 10> kBranches{{{340, 108, kNoPatch, 6050},
                                            {390, 157, kNoPatch, 9010},
                                            {418, 226, 0, 10010},
                                            {450, 248, 2, 11000},
                                            {460, 106, 0, 11020},
                                            {470, 256, 2, 11040},
                                            {525, 147, 5, 12000},
                                            {535, 274, 2, 12020},
                                            {550, 163, 1, 12040},
                                            {580, 159, 4, 13000}}};

constexpr Driver kLatest{kLatestBranch, 13, 5, 13050};

#ifdef GPUFENCE_SIM_LATEST
constexpr Driver kFileDriver = kLatest;
#else
constexpr Driver kFileDriver = kBranches.back();
#endif

constinit Driver configured = kFileDriver;

// One number of a version: 1 to 5 digits. Returns what follows it, null when there is none.
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

size_t AppendNumber(char* text, size_t at, size_t size, uint16_t value, int least_digits) {
  char digits[8];
  int count = 0;
  for (; value != 0 || count < least_digits; value = static_cast<uint16_t>(value / 10)) {
    digits[count++] = static_cast<char>('0' + value % 10);
  }
  while (count > 0 && at + 1 < size) text[at++] = digits[--count];
  return at;
}

void Complain(const char* text) {
  constexpr char kWhat[] = "gpufence-sim: GPUFENCE_SIM_DRIVER='";
  constexpr char kWhy[] =
      "' refused: no such driver's names are on record. Use 340, 390, 418, 450, 460, 470, 525, 535, "
      "550, 580, a full version of one of these, or latest; going on as the newest.\n";
  char line[sizeof(kWhat) + sizeof(kWhy) + 64];
  const size_t shown = strnlen(text, 64);
  char* at = static_cast<char*>(mempcpy(line, kWhat, sizeof(kWhat) - 1));
  at = static_cast<char*>(mempcpy(at, text, shown));
  at = static_cast<char*>(mempcpy(at, kWhy, sizeof(kWhy) - 1));
  if (write(STDERR_FILENO, line, static_cast<size_t>(at - line)) < 0) return;  // nobody listens
}

}  // namespace

bool ParseDriver(const char* text, Driver* driver) {
  if (strcmp(text, "latest") == 0) {
    *driver = kLatest;
    return true;
  }
  Driver read{};
  const char* rest = ReadNumber(text, &read.branch);
  if (rest == nullptr) return false;
  for (const Driver& known : kBranches) {
    if (known.branch != read.branch) continue;
    read = known;
    if (*rest == '\0') break;
    read.patch = kNoPatch;
    if (*rest != '.' || (rest = ReadNumber(rest + 1, &read.minor)) == nullptr) return false;
    if (*rest == '.' && (rest = ReadNumber(rest + 1, &read.patch)) == nullptr) return false;
    if (*rest != '\0') return false;
    break;
  }
  if (read.cuda_version == 0) return false;
  *driver = read;
  return true;
}

size_t FormatDriver(const Driver& driver, char* text, size_t size) {
  if (size == 0) return 0;
  size_t at = AppendNumber(text, 0, size, driver.branch, 1);
  if (at + 1 < size) text[at++] = '.';
  at = AppendNumber(text, at, size, driver.minor, 1);
  if (driver.patch != kNoPatch) {
    if (at + 1 < size) text[at++] = '.';
    at = AppendNumber(text, at, size, driver.patch, 2);
  }
  text[at] = '\0';
  return at;
}

const Driver& ConfiguredDriver() { return configured; }

}  // namespace sim
