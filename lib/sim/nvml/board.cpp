// The machine's devices as NVML hands them out: from an index, a UUID, a PCI address or a serial
// number to a device, and back.
#include "nvml/board.h"

#include <stdio.h>
#include <string.h>

#include "driver_abi.h"
#include "machine/calls.h"

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

namespace {

using sim::machine::BoardCount;
using sim::machine::Device;
using sim::machine::DevicesPerBoard;
using sim::nvml::BoardHandle;
using sim::nvml::IndexOf;
using sim::nvml::kNoDevice;
using sim::nvml::Put;

// Hands out the first GPU for which matches(index) holds, of its first machine index.
template <typename Matches>
nvmlReturn_t PutFirst(nvmlDevice_t* device, Matches matches) {
  for (int board = 0; board < BoardCount(); ++board) {
    if (matches(board * DevicesPerBoard())) return Put(device, BoardHandle(board));
  }
  return NVML_ERROR_NOT_FOUND;
}

// "domain:bus:device.function" in hexadecimal, of any width; the domain may be missing.
bool ParsePciBusId(const char* text, unsigned* domain, unsigned* bus, unsigned* device) {
  unsigned function = 0;
  char rest = '\0';
  if (sscanf(text, "%x:%x:%x.%x%c", domain, bus, device, &function, &rest) == 4) {
    return function == 0;
  }
  *domain = 0;
  return sscanf(text, "%x:%x.%x%c", bus, device, &function, &rest) == 3 && function == 0;
}

}  // namespace

extern "C" nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int* deviceCount) {
  SIM_CALL(nvmlDeviceGetCount_v2, deviceCount);
  return Put(deviceCount, static_cast<unsigned>(BoardCount()));
}

extern "C" nvmlReturn_t nvmlDeviceGetCount(unsigned int* deviceCount) {
  SIM_CALL(nvmlDeviceGetCount, deviceCount);
  return nvmlDeviceGetCount_v2(deviceCount);
}

extern "C" nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* device) {
  SIM_CALL(nvmlDeviceGetHandleByIndex_v2, index, device);
  if (index >= static_cast<unsigned>(BoardCount())) return NVML_ERROR_INVALID_ARGUMENT;
  return Put(device, BoardHandle(static_cast<int>(index)));
}

extern "C" nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t* device) {
  SIM_CALL(nvmlDeviceGetHandleByIndex, index, device);
  return nvmlDeviceGetHandleByIndex_v2(index, device);
}

extern "C" nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  SIM_CALL(nvmlDeviceGetHandleByUUID, uuid, device);
  if (uuid == nullptr || device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const auto is_of = [uuid](nvmlDevice_t handle) {
    char own[sim::nvml::kUuidTextBytes];
    sim::nvml::FormatUuid(handle, own);
    return strcmp(own, uuid) == 0;
  };
  for (int index = 0; sim::nvml::IsSplit() && index < sim::machine::DeviceCount(); ++index) {
    const nvmlDevice_t instance = sim::nvml::InstanceHandle(index);
    if (is_of(instance)) return Put(device, instance);
  }
  return PutFirst(device,
                  [is_of](int index) { return is_of(BoardHandle(sim::machine::BoardOf(index))); });
}

extern "C" nvmlReturn_t nvmlDeviceGetHandleBySerial(const char* serial, nvmlDevice_t* device) {
  SIM_CALL(nvmlDeviceGetHandleBySerial, serial, device);
  if (serial == nullptr || device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return PutFirst(device, [serial](int index) {
    char own[sim::nvml::kSerialTextBytes];
    sim::nvml::FormatSerial(Device(index), own);
    return strcmp(own, serial) == 0;
  });
}

extern "C" nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* pciBusId,
                                                         nvmlDevice_t* device) {
  SIM_CALL(nvmlDeviceGetHandleByPciBusId_v2, pciBusId, device);
  if (pciBusId == nullptr || device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned slot = 0;
  if (!ParsePciBusId(pciBusId, &domain, &bus, &slot)) return NVML_ERROR_INVALID_ARGUMENT;
  return PutFirst(device, [domain, bus, slot](int index) {
    const sim::machine::DeviceRecord& record = Device(index);
    return record.pci_domain == domain && record.pci_bus == bus && record.pci_device == slot;
  });
}

extern "C" nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char* pciBusId, nvmlDevice_t* device) {
  SIM_CALL(nvmlDeviceGetHandleByPciBusId, pciBusId, device);
  return nvmlDeviceGetHandleByPciBusId_v2(pciBusId, device);
}

extern "C" nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int* index) {
  SIM_CALL(nvmlDeviceGetIndex, device, index);
  const int own = IndexOf(device);
  if (own == kNoDevice) return NVML_ERROR_INVALID_ARGUMENT;
  if (sim::nvml::IsInstance(device)) return NVML_ERROR_NOT_SUPPORTED;
  return Put(index, static_cast<unsigned>(sim::machine::BoardOf(own)));
}
