// How devices stand to each other and to processors.
//
// All devices sit on one NUMA node, each below a host bridge of its own, beside all processors.
#include <sched.h>

#include "driver_abi.h"
#include "machine/calls.h"
#include "nvml/board.h"

namespace {

using sim::machine::BoardCount;
using sim::nvml::BoardHandle;
using sim::nvml::IndexOf;
using sim::nvml::kNoDevice;
using sim::nvml::Put;
using sim::nvml::PutFor;

constexpr unsigned kLevelSameDevice = 0;
constexpr unsigned kLevelNode = 40;
constexpr unsigned kLevelSystem = 50;
constexpr unsigned kAffinityScopeCount = 2;
constexpr unsigned kNotVirtualized = 0;
constexpr unsigned kPeerOk = 0;

// Hands out devices into a caller's array with the manners of a counted list.
nvmlReturn_t PutDevices(unsigned* count, nvmlDevice_t* devices, int except) {
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const unsigned room = *count;
  unsigned found = 0;
  for (int board = 0; board < BoardCount(); ++board) {
    if (board == except) continue;
    if (devices != nullptr && found < room) devices[found] = BoardHandle(board);
    ++found;
  }
  *count = devices != nullptr && found > room ? room : found;
  return NVML_SUCCESS;
}

// The processors that this process may use, as a set of `words` words.
nvmlReturn_t PutProcessors(nvmlDevice_t device, unsigned words, unsigned long* set) {
  if (IndexOf(device) == kNoDevice || set == nullptr || words == 0) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  constexpr unsigned kBits = 8 * sizeof(unsigned long);
  cpu_set_t processors;
  if (sched_getaffinity(0, sizeof(processors), &processors) != 0) return NVML_ERROR_UNKNOWN;
  for (unsigned word = 0; word < words; ++word) set[word] = 0;
  for (unsigned cpu = 0; cpu < words * kBits && cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &processors)) set[cpu / kBits] |= 1ul << (cpu % kBits);
  }
  return NVML_SUCCESS;
}

}  // namespace

extern "C" nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device1,
                                                            nvmlDevice_t device2,
                                                            nvmlGpuTopologyLevel_t* pathInfo) {
  SIM_CALL(nvmlDeviceGetTopologyCommonAncestor, device1, device2, pathInfo);
  if (IndexOf(device2) == kNoDevice) return NVML_ERROR_INVALID_ARGUMENT;
  const unsigned level = device1 == device2 ? kLevelSameDevice : kLevelNode;
  return PutFor(device1, pathInfo, static_cast<nvmlGpuTopologyLevel_t>(level));
}

// The others, at the level on which they meet this one; nobody at any other level.
extern "C" nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device,
                                                         nvmlGpuTopologyLevel_t level,
                                                         unsigned int* count,
                                                         nvmlDevice_t* deviceArray) {
  SIM_CALL(nvmlDeviceGetTopologyNearestGpus, device, level, count, deviceArray);
  const int index = IndexOf(device);
  if (index == kNoDevice) return NVML_ERROR_INVALID_ARGUMENT;
  if (static_cast<unsigned>(level) > kLevelSystem) return NVML_ERROR_INVALID_ARGUMENT;
  if (static_cast<unsigned>(level) != kLevelNode) return Put(count, 0u);
  return PutDevices(count, deviceArray, index);
}

extern "C" nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned int cpuNumber, unsigned int* count,
                                                    nvmlDevice_t* deviceArray) {
  SIM_CALL(nvmlSystemGetTopologyGpuSet, cpuNumber, count, deviceArray);
  return PutDevices(count, deviceArray, kNoDevice);
}

extern "C" nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device1, nvmlDevice_t device2,
                                               nvmlGpuP2PCapsIndex_t p2pIndex,
                                               nvmlGpuP2PStatus_t* p2pStatus) {
  SIM_CALL(nvmlDeviceGetP2PStatus, device1, device2, p2pIndex, p2pStatus);
  if (IndexOf(device2) == kNoDevice || device1 == device2) return NVML_ERROR_INVALID_ARGUMENT;
  return PutFor(device1, p2pStatus, static_cast<nvmlGpuP2PStatus_t>(kPeerOk));
}

extern "C" nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device,
                                                            unsigned int cpuSetSize,
                                                            unsigned long* cpuSet,
                                                            nvmlAffinityScope_t scope) {
  SIM_CALL(nvmlDeviceGetCpuAffinityWithinScope, device, cpuSetSize, cpuSet, scope);
  if (scope >= kAffinityScopeCount) return NVML_ERROR_INVALID_ARGUMENT;
  return PutProcessors(device, cpuSetSize, cpuSet);
}

extern "C" nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int cpuSetSize,
                                                 unsigned long* cpuSet) {
  SIM_CALL(nvmlDeviceGetCpuAffinity, device, cpuSetSize, cpuSet);
  return PutProcessors(device, cpuSetSize, cpuSet);
}

extern "C" nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int nodeSetSize,
                                                    unsigned long* nodeSet,
                                                    nvmlAffinityScope_t scope) {
  SIM_CALL(nvmlDeviceGetMemoryAffinity, device, nodeSetSize, nodeSet, scope);
  if (IndexOf(device) == kNoDevice || nodeSet == nullptr || nodeSetSize == 0 ||
      scope >= kAffinityScopeCount) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  for (unsigned word = 0; word < nodeSetSize; ++word) nodeSet[word] = word == 0 ? 1 : 0;
  return NVML_SUCCESS;
}

extern "C" nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device,
                                                        nvmlGpuVirtualizationMode_t* pVirtualMode) {
  SIM_CALL(nvmlDeviceGetVirtualizationMode, device, pVirtualMode);
  return PutFor(device, pVirtualMode, static_cast<nvmlGpuVirtualizationMode_t>(kNotVirtualized));
}
