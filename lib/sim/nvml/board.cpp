// See board.h.
#include "nvml/board.h"

#include <string.h>

namespace sim::nvml {
namespace {

// Handles are addresses in here: opaque, the same all through the process, told apart by position:
// GPUs first, then instances by machine index.
constinit char g_handles[2 * kMaxDevices] = {};

uintptr_t PlaceOf(nvmlDevice_t device) {
  return reinterpret_cast<uintptr_t>(device) - reinterpret_cast<uintptr_t>(g_handles);
}

nvmlDevice_t HandleAt(int place) { return reinterpret_cast<nvmlDevice_t>(&g_handles[place]); }

}  // namespace

nvmlDevice_t BoardHandle(int board) { return HandleAt(board); }

nvmlDevice_t InstanceHandle(int index) { return HandleAt(kMaxDevices + index); }

bool IsSplit() { return machine::InstancesPerBoard() > 0; }

bool IsInstance(nvmlDevice_t device) {
  const uintptr_t first = kMaxDevices;
  return IsSplit() && PlaceOf(device) >= first &&
         PlaceOf(device) < first + static_cast<uintptr_t>(machine::DeviceCount());
}

int IndexOf(nvmlDevice_t device) {
  const uintptr_t place = PlaceOf(device);
  if (IsInstance(device)) return static_cast<int>(place) - kMaxDevices;
  if (place >= static_cast<uintptr_t>(machine::BoardCount())) return kNoDevice;
  return static_cast<int>(place) * machine::DevicesPerBoard();
}

int CountOf(nvmlDevice_t device) { return IsInstance(device) ? 1 : machine::DevicesPerBoard(); }

nvmlReturn_t PutText(const char* text, char* buffer, unsigned length) {
  if (buffer == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const size_t bytes = strlen(text) + 1;
  if (bytes > length) return NVML_ERROR_INSUFFICIENT_SIZE;
  memcpy(buffer, text, bytes);
  return NVML_SUCCESS;
}

void FormatUuid(nvmlDevice_t device, char text[kUuidTextBytes]) {
  constexpr char kDigits[] = "0123456789abcdef";
  const machine::DeviceRecord& record = machine::Device(IndexOf(device));
  const uint8_t* uuid = IsInstance(device) ? record.uuid : record.board_uuid;
  char* at = text;
  for (const char* kind = IsInstance(device) ? "MIG" : "GPU"; *kind != '\0'; ++kind) *at++ = *kind;
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) *at++ = '-';
    *at++ = kDigits[uuid[i] >> 4];
    *at++ = kDigits[uuid[i] & 15];
  }
  *at = '\0';
}

}  // namespace sim::nvml
