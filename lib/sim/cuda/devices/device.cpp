// Device queries: count, name, identity, size.
//
// Must not know contexts: all of these work without one.
#include "cuda/devices/device.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "machine/calls.h"
#include "machine/machine.h"

namespace {

constexpr char kName[] = "gpufence simulated GPU";

const sim::machine::DeviceRecord& RecordOf(CUdevice dev) {
  return sim::machine::Device(sim::device::Physical(dev));
}

CUresult WriteUuid(CUuuid* uuid, CUdevice dev,
                   const uint8_t (sim::machine::DeviceRecord::*of)[16]) {
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!sim::device::IsValid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  memcpy(uuid, RecordOf(dev).*of, sizeof(RecordOf(dev).*of));
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuDeviceGetCount(int* count) {
  SIM_CALL(cuDeviceGetCount, count);
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = sim::device::VisibleCount();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  SIM_CALL(cuDeviceGet, device, ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!sim::device::IsValid(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int len, CUdevice dev) {
  SIM_CALL(cuDeviceGetName, name, len, dev);
  if (name == nullptr || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (!sim::device::IsValid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  snprintf(name, static_cast<size_t>(len), "%s", kName);  // as much as fits
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice dev) {
  SIM_CALL(cuDeviceGetUuid, uuid, dev);
  return WriteUuid(uuid, dev, &sim::machine::DeviceRecord::board_uuid);
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  SIM_CALL(cuDeviceGetUuid_v2, uuid, dev);
  return WriteUuid(uuid, dev, &sim::machine::DeviceRecord::uuid);
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  SIM_CALL(cuDeviceTotalMem_v2, bytes, dev);
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!sim::device::IsValid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = RecordOf(dev).memory_bytes;
  return CUDA_SUCCESS;
}

// The 32-bit form cannot tell more than it can hold.
CUresult cuDeviceTotalMem(unsigned int* bytes, CUdevice dev) {
  SIM_CALL(cuDeviceTotalMem, bytes, dev);
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!sim::device::IsValid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = static_cast<unsigned>(std::min<uint64_t>(RecordOf(dev).memory_bytes, UINT_MAX));
  return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  SIM_CALL(cuDeviceComputeCapability, major, minor, dev);
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!sim::device::IsValid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  *major = 9;
  *minor = 0;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) {
  SIM_CALL(cuDeviceGetPCIBusId, pciBusId, len, dev);
  if (pciBusId == nullptr || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (!sim::device::IsValid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  char text[32];
  const sim::machine::DeviceRecord& record = RecordOf(dev);
  snprintf(text, sizeof(text), "%04X:%02X:%02X.0", record.pci_domain, record.pci_bus,
           record.pci_device);
  if (strlen(text) >= static_cast<size_t>(len)) return CUDA_ERROR_INVALID_VALUE;
  strcpy(pciBusId, text);
  return CUDA_SUCCESS;
}

// Accepts DOMAIN:BUS:DEVICE.FUNCTION and the forms without domain or without function.
CUresult cuDeviceGetByPCIBusId(CUdevice* dev, const char* pciBusId) {
  SIM_CALL(cuDeviceGetByPCIBusId, dev, pciBusId);
  if (dev == nullptr || pciBusId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned slot = 0;
  if (sscanf(pciBusId, "%x:%x:%x", &domain, &bus, &slot) != 3) {
    domain = 0;
    if (sscanf(pciBusId, "%x:%x", &bus, &slot) != 2) return CUDA_ERROR_INVALID_VALUE;
  }
  for (CUdevice index = 0; index < sim::device::VisibleCount(); ++index) {
    const sim::machine::DeviceRecord& record = RecordOf(index);
    if (record.pci_domain != domain || record.pci_bus != bus || record.pci_device != slot) continue;
    *dev = index;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetProperties(CUdevprop* prop, CUdevice dev) {
  SIM_CALL(cuDeviceGetProperties, prop, dev);
  if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!sim::device::IsValid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  *prop = {.maxThreadsPerBlock = 1024,
           .maxThreadsDim = {1024, 1024, 64},
           .maxGridSize = {INT_MAX, 65535, 65535},
           .sharedMemPerBlock = 49152,
           .totalConstantMemory = 65536,
           .SIMDWidth = 32,
           .memPitch = INT_MAX,
           .regsPerBlock = 65536,
           .clockRate = 1980000,
           .textureAlign = 512};
  return CUDA_SUCCESS;
}

// 2^27 elements of a linear texture, as DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH bounds it.
CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t* maxWidthInElements, CUarray_format format,
                                            unsigned numChannels, CUdevice dev) {
  SIM_CALL(cuDeviceGetTexture1DLinearMaxWidth, maxWidthInElements, format, numChannels, dev);
  if (maxWidthInElements == nullptr || numChannels == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!sim::device::IsValid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  *maxWidthInElements = size_t{1} << 28;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetExecAffinitySupport(int* pi, CUexecAffinityType type, CUdevice dev) {
  SIM_CALL(cuDeviceGetExecAffinitySupport, pi, type, dev);
  if (pi == nullptr || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT) return CUDA_ERROR_INVALID_VALUE;
  if (!sim::device::IsValid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  *pi = 0;  // only under MPS
  return CUDA_SUCCESS;
}

}  // extern "C"
