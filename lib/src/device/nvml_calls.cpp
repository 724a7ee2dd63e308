#include "device/nvml_calls.h"

#include <string.h>
#include <unistd.h>

#include <atomic>

#include "real.h"

namespace gpufence {
namespace {

// The process that asked, so that a forked child asks for itself.
constinit std::atomic<int> ready_pid{0};
constinit std::atomic<int> failed_pid{0};

constexpr char kDigits[] = "0123456789abcdef";
// A dash stands before the bytes 4, 6, 8 and 10.
constexpr bool DashBefore(int byte) { return byte == 4 || byte == 6 || byte == 8 || byte == 10; }

int DigitValue(char digit) {
  const char lower = digit >= 'A' && digit <= 'F' ? static_cast<char>(digit - 'A' + 'a') : digit;
  const char* found = lower != '\0' ? strchr(kDigits, lower) : nullptr;
  return found != nullptr ? static_cast<int>(found - kDigits) : -1;
}

}  // namespace

bool NvmlReady() {
  const int pid = getpid();
  if (ready_pid.load(std::memory_order_acquire) == pid) return true;
  if (failed_pid.load(std::memory_order_relaxed) == pid) return false;
  const bool ready = real::nvmlInit_v2() == NVML_SUCCESS;
  (ready ? ready_pid : failed_pid).store(pid, std::memory_order_release);
  return ready;
}

void FormatUuid(const char* prefix, const uint8_t uuid[16], char text[kUuidText]) {
  char* at = text;
  while (*prefix != '\0') *at++ = *prefix++;
  *at++ = '-';
  for (int byte = 0; byte < 16; ++byte) {
    if (DashBefore(byte)) *at++ = '-';
    *at++ = kDigits[uuid[byte] >> 4];
    *at++ = kDigits[uuid[byte] & 15];
  }
  *at = '\0';
}

bool ParseUuid(const char* text, uint8_t uuid[16]) {
  if (strncmp(text, "GPU-", 4) != 0 && strncmp(text, "MIG-", 4) != 0) return false;
  text += 4;
  for (int byte = 0; byte < 16; ++byte) {
    if (DashBefore(byte) && *text++ != '-') return false;
    const int high = DigitValue(text[0]);
    const int low = high < 0 ? -1 : DigitValue(text[1]);
    if (low < 0) return false;
    uuid[byte] = static_cast<uint8_t>(high << 4 | low);
    text += 2;
  }
  return *text == '\0';
}

}  // namespace gpufence
