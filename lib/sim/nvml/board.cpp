// See board.h.
#include "nvml/board.h"

#include <string.h>

#include <initializer_list>

namespace sim::nvml {
namespace {

// Handles are addresses in here: opaque, the same all through the process, told apart by position.
constinit char g_handles[kMaxDevices] = {};

}  // namespace

nvmlDevice_t HandleOf(int index) { return reinterpret_cast<nvmlDevice_t>(&g_handles[index]); }

int IndexOf(nvmlDevice_t device) {
  const uintptr_t offset =
      reinterpret_cast<uintptr_t>(device) - reinterpret_cast<uintptr_t>(g_handles);
  return offset < static_cast<uintptr_t>(machine::DeviceCount()) ? static_cast<int>(offset)
                                                                 : kNoDevice;
}

nvmlReturn_t PutText(const char* text, char* buffer, unsigned length) {
  if (buffer == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const size_t bytes = strlen(text) + 1;
  if (bytes > length) return NVML_ERROR_INSUFFICIENT_SIZE;
  memcpy(buffer, text, bytes);
  return NVML_SUCCESS;
}

void FormatUuid(const machine::DeviceRecord& record, char text[kUuidTextBytes]) {
  constexpr char kDigits[] = "0123456789abcdef";
  char* at = text;
  for (const char c : {'G', 'P', 'U'}) *at++ = c;
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) *at++ = '-';
    *at++ = kDigits[record.uuid[i] >> 4];
    *at++ = kDigits[record.uuid[i] & 15];
  }
  *at = '\0';
}

}  // namespace sim::nvml
