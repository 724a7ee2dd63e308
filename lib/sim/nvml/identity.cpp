// Who a device is: name, UUID, serial number, PCI address, architecture.

#include <stdio.h>
#include <string.h>

#include "driver_abi.h"
#include "machine/calls.h"
#include "nvml/board.h"

namespace sim::nvml {

void FormatSerial(const machine::DeviceRecord& record, char text[kSerialTextBytes]) {
  uint64_t number = 0;
  for (int i = 8; i < 16; ++i) number = number << 8 | record.uuid[i];
  snprintf(text, kSerialTextBytes, "%013llu",
           static_cast<unsigned long long>(number % 10'000'000'000'000u));
}

}  // namespace sim::nvml

namespace {

using sim::machine::Device;
using sim::machine::DeviceRecord;
using sim::nvml::IndexOf;
using sim::nvml::kNoDevice;
using sim::nvml::Put;
using sim::nvml::PutFor;
using sim::nvml::PutText;

constexpr char kName[] = "gpufence simulated GPU";

// NVIDIA's vendor number with a device number that no board has.
constexpr unsigned kPciDeviceId = 0xffff10de;
constexpr unsigned kPciClassDisplay = 0x03;
constexpr unsigned kPciSubclass3d = 0x02;

// The simulated devices are of the generation of an H200 (compute capability 9.0).
constexpr unsigned kArchitectureHopper = 9;
constexpr int kCapabilityMajor = 9;
constexpr int kCapabilityMinor = 0;
constexpr unsigned kCoresPerSm = 128;
constexpr unsigned kMemoryBusBits = 6144;
constexpr unsigned kBusTypePcie = 2;

const DeviceRecord* Find(nvmlDevice_t device) {
  const int index = IndexOf(device);
  return index == kNoDevice ? nullptr : &Device(index);
}

void FillPciInfo(const DeviceRecord& record, nvmlPciInfo_t* pci) {
  snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "%04X:%02X:%02X.0",
           record.pci_domain & 0xffff, record.pci_bus & 0xff, record.pci_device & 0xff);
  pci->domain = record.pci_domain;
  pci->bus = record.pci_bus;
  pci->device = record.pci_device;
  pci->pciDeviceId = kPciDeviceId;
  pci->pciSubSystemId = kPciDeviceId;
  snprintf(pci->busId, sizeof(pci->busId), "%08X:%02X:%02X.0", record.pci_domain,
           record.pci_bus & 0xff, record.pci_device & 0xff);
}

}  // namespace

extern "C" nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned int length) {
  SIM_CALL(nvmlDeviceGetName, device, name, length);
  return Find(device) == nullptr ? NVML_ERROR_INVALID_ARGUMENT : PutText(kName, name, length);
}

extern "C" nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned int length) {
  SIM_CALL(nvmlDeviceGetUUID, device, uuid, length);
  const DeviceRecord* record = Find(device);
  if (record == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  char text[sim::nvml::kUuidTextBytes];
  sim::nvml::FormatUuid(device, text);
  return PutText(text, uuid, length);
}

extern "C" nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char* serial,
                                            unsigned int length) {
  SIM_CALL(nvmlDeviceGetSerial, device, serial, length);
  const DeviceRecord* record = Find(device);
  if (record == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  char text[sim::nvml::kSerialTextBytes];
  sim::nvml::FormatSerial(*record, text);
  return PutText(text, serial, length);
}

extern "C" nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  SIM_CALL(nvmlDeviceGetPciInfo_v3, device, pci);
  const DeviceRecord* record = Find(device);
  if (record == nullptr || pci == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  FillPciInfo(*record, pci);
  return NVML_SUCCESS;
}

// The struct grew at its end, and callers of an older function bring an older, shorter one: the
// second had no long bus id, the first no subsystem either.
extern "C" nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  SIM_CALL(nvmlDeviceGetPciInfo_v2, device, pci);
  if (pci == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlPciInfo_t whole;
  const nvmlReturn_t result = nvmlDeviceGetPciInfo_v3(device, &whole);
  if (result == NVML_SUCCESS) memcpy(pci, &whole, offsetof(nvmlPciInfo_t, busId));
  return result;
}

extern "C" nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  SIM_CALL(nvmlDeviceGetPciInfo, device, pci);
  if (pci == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlPciInfo_t whole;
  const nvmlReturn_t result = nvmlDeviceGetPciInfo_v2(device, &whole);
  if (result == NVML_SUCCESS) memcpy(pci, &whole, offsetof(nvmlPciInfo_t, pciSubSystemId));
  return result;
}

extern "C" nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t* pci) {
  SIM_CALL(nvmlDeviceGetPciInfoExt, device, pci);
  const DeviceRecord* record = Find(device);
  if (record == nullptr || pci == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (pci->version != sim::nvml::VersionOf<nvmlPciInfoExt_v1_t>(1)) {
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  }
  nvmlPciInfo_t plain;
  FillPciInfo(*record, &plain);
  pci->domain = plain.domain;
  pci->bus = plain.bus;
  pci->device = plain.device;
  pci->pciDeviceId = plain.pciDeviceId;
  pci->pciSubSystemId = plain.pciSubSystemId;
  pci->baseClass = kPciClassDisplay;
  pci->subClass = kPciSubclass3d;
  memcpy(pci->busId, plain.busId, sizeof(pci->busId));
  return NVML_SUCCESS;
}

extern "C" nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int* minorNumber) {
  SIM_CALL(nvmlDeviceGetMinorNumber, device, minorNumber);
  return PutFor(device, minorNumber, static_cast<unsigned>(sim::machine::BoardOf(IndexOf(device))));
}

extern "C" nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t* type) {
  SIM_CALL(nvmlDeviceGetBrand, device, type);
  return PutFor(device, type, NVML_BRAND_NVIDIA);
}

extern "C" nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device,
                                                  nvmlDeviceArchitecture_t* arch) {
  SIM_CALL(nvmlDeviceGetArchitecture, device, arch);
  return PutFor(device, arch, kArchitectureHopper);
}

extern "C" nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int* major,
                                                           int* minor) {
  SIM_CALL(nvmlDeviceGetCudaComputeCapability, device, major, minor);
  if (Find(device) == nullptr || major == nullptr || minor == nullptr) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  *major = kCapabilityMajor;
  *minor = kCapabilityMinor;
  return NVML_SUCCESS;
}

extern "C" nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned int* numCores) {
  SIM_CALL(nvmlDeviceGetNumGpuCores, device, numCores);
  const DeviceRecord* record = Find(device);
  return record == nullptr ? NVML_ERROR_INVALID_ARGUMENT
                           : Put(numCores, record->sm_count * kCoresPerSm);
}

extern "C" nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned int* busWidth) {
  SIM_CALL(nvmlDeviceGetMemoryBusWidth, device, busWidth);
  return PutFor(device, busWidth, kMemoryBusBits);
}

extern "C" nvmlReturn_t nvmlDeviceGetBusType(nvmlDevice_t device, nvmlBusType_t* type) {
  SIM_CALL(nvmlDeviceGetBusType, device, type);
  return PutFor(device, type, kBusTypePcie);
}

extern "C" nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char* version,
                                                  unsigned int length) {
  SIM_CALL(nvmlDeviceGetVbiosVersion, device, version, length);
  return Find(device) == nullptr ? NVML_ERROR_INVALID_ARGUMENT
                                 : PutText("00.00.00.00.00", version, length);
}

// Boards with several GPUs share an id; the simulated ones have one each.
extern "C" nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned int* boardId) {
  SIM_CALL(nvmlDeviceGetBoardId, device, boardId);
  const DeviceRecord* record = Find(device);
  return record == nullptr ? NVML_ERROR_INVALID_ARGUMENT
                           : Put(boardId, record->pci_domain << 16 | record->pci_bus << 8);
}

extern "C" nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device,
                                                   unsigned int* multiGpuBool) {
  SIM_CALL(nvmlDeviceGetMultiGpuBoard, device, multiGpuBool);
  return PutFor(device, multiGpuBool, 0u);
}

extern "C" nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t device1, nvmlDevice_t device2,
                                              int* onSameBoard) {
  SIM_CALL(nvmlDeviceOnSameBoard, device1, device2, onSameBoard);
  if (Find(device2) == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return PutFor(device1, onSameBoard, device1 == device2 ? 1 : 0);
}
