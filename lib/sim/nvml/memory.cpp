// Memory as NVML counts it, and its error counters.
//
// GPUFENCE_SIM_MEMORY is what CUDA calls the total. NVML shows the whole board: that and a part
// that the driver keeps to itself, which the second form of the query tells apart and the first
// counts as used. An H200 keeps 616 of 143771 MiB.
#include <initializer_list>

#include "driver_abi.h"
#include "machine/calls.h"
#include "nvml/board.h"

namespace {

using sim::machine::Device;
using sim::machine::UsedBytes;
using sim::nvml::IndexOf;
using sim::nvml::kNoDevice;
using sim::nvml::PutFor;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kNoLimit = UINT64_MAX;  // NVML's word for it

// 0.43 % of what programs can have, in whole MiB.
constexpr uint64_t ReservedBytes(uint64_t memory_bytes) {
  return (memory_bytes / kMiB * 43 + 9999) / 10000 * kMiB;
}
static_assert(ReservedBytes(143155 * kMiB) == 616 * kMiB);

constexpr uint64_t NextPowerOfTwo(uint64_t least) {
  uint64_t power = 1;
  while (power < least) power *= 2;
  return power;
}

struct Memory {
  uint64_t total;
  uint64_t reserved;
  uint64_t free;
  uint64_t used;
};

// A split GPU has what its instances have.
Memory Read(nvmlDevice_t device) {
  uint64_t usable = 0;
  uint64_t reserved = 0;
  uint64_t used = 0;
  const int first = IndexOf(device);
  for (int index = first; index < first + sim::nvml::CountOf(device); ++index) {
    usable += Device(index).memory_bytes;
    reserved += ReservedBytes(Device(index).memory_bytes);
    used += UsedBytes(index);
  }
  return {usable + reserved, reserved, used < usable ? usable - used : 0, used};
}

nvmlReturn_t PutZeroCounter(nvmlDevice_t device, unsigned long long* count) {
  return PutFor(device, count, 0ull);
}

}  // namespace

extern "C" nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  SIM_CALL(nvmlDeviceGetMemoryInfo_v2, device, memory);
  const int index = IndexOf(device);
  if (index == kNoDevice || memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (memory->version != sim::nvml::VersionOf<nvmlMemory_v2_t>(2)) {
    return NVML_ERROR_FUNCTION_NOT_FOUND;  // as if each version were a function
  }
  const Memory now = Read(device);
  memory->total = now.total;
  memory->reserved = now.reserved;
  memory->free = now.free;
  memory->used = now.used;
  return NVML_SUCCESS;
}

// Through the export, as in the real library: whoever interposes both is asked twice.
extern "C" nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  SIM_CALL(nvmlDeviceGetMemoryInfo, device, memory);
  if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlMemory_v2_t whole = {};
  whole.version = sim::nvml::VersionOf<nvmlMemory_v2_t>(2);
  const nvmlReturn_t result = nvmlDeviceGetMemoryInfo_v2(device, &whole);
  if (result != NVML_SUCCESS) return result;
  memory->total = whole.total;
  memory->free = whole.free;
  memory->used = whole.total - whole.free;
  return NVML_SUCCESS;
}

// Of one cgroup for all: whoever sets limits and whoever asks for them mean the same one.
extern "C" nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device,
                                                     nvmlSetMemoryLimits_v1_t* limits) {
  SIM_CALL(nvmlDeviceSetMemoryLimits_v1, device, limits);
  const int index = IndexOf(device);
  if (index == kNoDevice || limits == nullptr || limits->nameSpace == nullptr) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  if (limits->softLimit > limits->hardLimit) return NVML_ERROR_INVALID_ARGUMENT;
  Device(index).native_soft_bytes.store(limits->softLimit);
  Device(index).native_hard_bytes.store(limits->hardLimit == kNoLimit ? 0 : limits->hardLimit);
  return NVML_SUCCESS;
}

extern "C" nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device,
                                                     nvmlGetMemoryLimits_v1_t* limits) {
  SIM_CALL(nvmlDeviceGetMemoryLimits_v1, device, limits);
  const int index = IndexOf(device);
  if (index == kNoDevice || limits == nullptr || limits->nameSpace == nullptr) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  const uint64_t hard_bytes = Device(index).native_hard_bytes.load();
  limits->softLimit = Device(index).native_soft_bytes.load();
  limits->hardLimit = hard_bytes != 0 ? hard_bytes : kNoLimit;
  limits->currentUsed = UsedBytes(index);
  return NVML_SUCCESS;
}

extern "C" nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device,
                                                    nvmlBAR1Memory_t* bar1Memory) {
  SIM_CALL(nvmlDeviceGetBAR1MemoryInfo, device, bar1Memory);
  const int index = IndexOf(device);
  if (index == kNoDevice || bar1Memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  bar1Memory->bar1Total = NextPowerOfTwo(Read(device).total);
  bar1Memory->bar1Used = kMiB;
  bar1Memory->bar1Free = bar1Memory->bar1Total - bar1Memory->bar1Used;
  return NVML_SUCCESS;
}

extern "C" nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t* current,
                                             nvmlEnableState_t* pending) {
  SIM_CALL(nvmlDeviceGetEccMode, device, current, pending);
  if (pending == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const nvmlReturn_t result = PutFor(device, current, NVML_FEATURE_ENABLED);
  if (result == NVML_SUCCESS) *pending = NVML_FEATURE_ENABLED;
  return result;
}

extern "C" nvmlReturn_t nvmlDeviceGetDefaultEccMode(nvmlDevice_t device,
                                                    nvmlEnableState_t* defaultMode) {
  SIM_CALL(nvmlDeviceGetDefaultEccMode, device, defaultMode);
  return PutFor(device, defaultMode, NVML_FEATURE_ENABLED);
}

extern "C" nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device,
                                                    nvmlMemoryErrorType_t errorType,
                                                    nvmlEccCounterType_t counterType,
                                                    unsigned long long* eccCounts) {
  SIM_CALL(nvmlDeviceGetTotalEccErrors, device, errorType, counterType, eccCounts);
  return PutZeroCounter(device, eccCounts);
}

extern "C" nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device,
                                                        nvmlMemoryErrorType_t errorType,
                                                        nvmlEccCounterType_t counterType,
                                                        nvmlMemoryLocation_t locationType,
                                                        unsigned long long* count) {
  SIM_CALL(nvmlDeviceGetMemoryErrorCounter, device, errorType, counterType, locationType, count);
  return PutZeroCounter(device, count);
}

extern "C" nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int* corrRows,
                                                  unsigned int* uncRows, unsigned int* isPending,
                                                  unsigned int* failureOccurred) {
  SIM_CALL(nvmlDeviceGetRemappedRows, device, corrRows, uncRows, isPending, failureOccurred);
  if (IndexOf(device) == kNoDevice) return NVML_ERROR_INVALID_ARGUMENT;
  for (unsigned* out : {corrRows, uncRows, isPending, failureOccurred}) {
    if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  }
  for (unsigned* out : {corrRows, uncRows, isPending, failureOccurred}) *out = 0;
  return NVML_SUCCESS;
}
