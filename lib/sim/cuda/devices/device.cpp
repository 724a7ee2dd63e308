// Device queries: count, name, identity, size, and cuDeviceGetAttribute with its table of answers:
// an H200's with driver 580, but 0 for what the simulator lacks.
//
// Must not know contexts: all of these work without one.
#include "cuda/devices/device.h"

#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "machine/calls.h"
#include "machine/config.h"
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

namespace {

// Answers by attribute number, from 1; kUnknown where the simulator has no constant answer.
constexpr int kUnknown = INT_MIN;
// clang-format off: one row per group, its first number at the end
constexpr int kAnswers[] = {
    kUnknown,  // 0 is no attribute
    1024, 1024, 1024, 64, INT_MAX, 65535, 65535, 49152,             // 1: block, grid, shared memory
    65536, 32, INT_MAX, 65536, 1980000, 512, 1, kUnknown,           // 9: warp, pitch, clock, SMs
    0, 0, 1, 0, 131072, 131072, 65536, 16384, 16384, 16384,         // 17: textures
    32768, 32768, 2048, 512, 1, 1, kUnknown, kUnknown, 0,           // 27: ECC, PCI bus and device
    3201000, 6016, 62914560, 2048, 3, 1, 32768, 2048, 1,            // 36: memory, L2, engines
    32768, 32768, 8192, 8192, 32768, kUnknown, 32, 32768, 32768,    // 45: PCI domain
    2046, 32768, 131072, 65536, 16384, 16384, 16384, 32768, 2048,   // 54: surfaces
    32768, 32768, 2048, 32768, 32768, 2046, 268435456, 131072,      // 63
    65000, 2097120, 32768, 32768, 9, 0, 32768, 1, 1, 1,             // 71: compute capability 9.0
    233472, 65536, 1, 0, kUnknown, 0, 2, 0, 1, 1, 1,                // 81: managed memory
    0, 0, 0, 1, 1, 232448, 0, 1, 0, 0,                              // 92: cooperative launches
    1, 1, 0, 0, 32, 1, 39321600, 134217728, 1, 1024,                // 102: virtual memory
    1, 1, 1, 1, 1, 1, 100, 1,                                       // 112: sparse arrays, pools
    1, 1, 1, 1, 0, 1, 4, 1, 0, 1,                                   // 120: clusters
    0, -1, 0, 0, 0, 0, 0, 0, 0,                                     // 130: NUMA, no multicast
    kUnknown, 0, 1, 1, 0, 1, 1, 0, 0,                               // 139: host pools
};
// clang-format on
constexpr int kAnswerCount = static_cast<int>(sizeof(kAnswers) / sizeof(kAnswers[0]));

static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] == kUnknown);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID] == kUnknown);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID] == kUnknown);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE] == 62914560);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING] == 1);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID] == kUnknown);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT] == 32);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] == 9);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY] == 1);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID] == kUnknown);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS] == 1);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN] == 232448);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED] == 1);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR] == 32);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED] == 1);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED] == 1);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH] == 1);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_NUMA_ID] == -1);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED] == 0);
static_assert(kAnswers[CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID] == kUnknown);

}  // namespace

extern "C" CUresult cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  SIM_CALL(cuDeviceGetAttribute, pi, attrib, dev);
  if (pi == nullptr || attrib < 1) return CUDA_ERROR_INVALID_VALUE;
  if (attrib >= kAnswerCount) return CUDA_ERROR_INVALID_VALUE;
  if (!sim::device::IsValid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  const sim::machine::DeviceRecord& record = sim::machine::Device(sim::device::Physical(dev));
  switch (attrib) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *pi = static_cast<int>(record.sm_count);
      break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      *pi = static_cast<int>(record.pci_bus);
      break;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
      *pi = static_cast<int>(record.pci_device);
      break;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
      *pi = static_cast<int>(record.pci_domain);
      break;
    case CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID:
      *pi = sim::device::Physical(dev);
      break;
    case CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID:
      *pi = 0;  // no vendor's device
      break;
    case CU_DEVICE_ATTRIBUTE_MPS_ENABLED:
      *pi = sim::GetConfig()->is_mps;
      break;
    default:
      *pi = kAnswers[attrib];
  }
  return CUDA_SUCCESS;
}
