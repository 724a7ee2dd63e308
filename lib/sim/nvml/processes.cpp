// Who is on a device, with how much memory: the process lists in their three forms, and accounting.
#include "driver_abi.h"
#include "machine/calls.h"
#include "machine/file.h"
#include "nvml/board.h"

namespace {

using sim::machine::kMaxSlots;
using sim::machine::LiveSlots;
using sim::machine::Slot;
using sim::machine::SlotAt;
using sim::machine::SlotDevice;
using sim::nvml::IndexOf;
using sim::nvml::kNoDevice;
using sim::nvml::kNotAvailable;
using sim::nvml::PutFor;

// Records of one process that a device keeps; the figure of real boards.
constexpr unsigned kAccountingBuffer = 4000;

constexpr unsigned long long kNoFigure = ~0ull;  // NVML_VALUE_NOT_AVAILABLE

// A process on a machine device.
struct Entry {
  int slot;
  int index;
};

// What a process holds of an instance nobody is told.
unsigned long long UsedBytes(const Entry& entry) {
  return sim::nvml::IsSplit() ? kNoFigure : sim::machine::ListedBytes(entry.index, entry.slot);
}

template <typename Info>
void FillBoth(const Entry& entry, Info* info) {
  info->pid = SlotAt(entry.slot).pid.load(std::memory_order_relaxed);
  info->usedGpuMemory = UsedBytes(entry);
}

void Fill(const Entry& entry, nvmlProcessInfo_v1_t* info) { FillBoth(entry, info); }

template <typename Info>
void FillInstances(const Entry& entry, Info* info) {
  FillBoth(entry, info);
  const int place = entry.index % sim::machine::DevicesPerBoard();
  info->gpuInstanceId = sim::nvml::IsSplit() ? static_cast<unsigned>(place) + 1 : kNotAvailable;
  info->computeInstanceId = sim::nvml::IsSplit() ? 0 : kNotAvailable;
}

void Fill(const Entry& entry, nvmlProcessInfo_v2_t* info) { FillInstances(entry, info); }

void Fill(const Entry& entry, nvmlProcessDetail_v1_t* info) {
  FillInstances(entry, info);
  info->usedGpuCcProtectedMemory = 0;
}

// Live processes with a context behind the handle, once for each instance: into `entries`; returns
// how many.
int ProcessesOn(nvmlDevice_t device, Entry (&entries)[kMaxSlots]) {
  int live[kMaxSlots];
  const int live_count = LiveSlots(live, kMaxSlots);
  const int first = IndexOf(device);
  int count = 0;
  for (int index = first; index < first + sim::nvml::CountOf(device); ++index) {
    for (int i = 0; i < live_count && count < kMaxSlots; ++i) {
      const SlotDevice& part = SlotAt(live[i]).devices[index];
      if (part.contexts.load(std::memory_order_acquire) > 0) entries[count++] = {live[i], index};
    }
  }
  return count;
}

// The manners that all lists share: *count comes in as the room and goes out as the need. Too
// little room is NVML_ERROR_INSUFFICIENT_SIZE with nothing else written, so a count of 0 asks for
// the need.
template <typename Info>
nvmlReturn_t PutProcesses(nvmlDevice_t device, unsigned* count, Info* infos) {
  if (IndexOf(device) == kNoDevice || count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (*count > 0 && infos == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  Entry entries[kMaxSlots];
  const unsigned found = static_cast<unsigned>(ProcessesOn(device, entries));
  const unsigned room = *count;
  *count = found;
  if (found > room) return NVML_ERROR_INSUFFICIENT_SIZE;
  const sim::machine::Gate one_moment;  // else bytes that change hands meanwhile count twice
  for (unsigned i = 0; i < found; ++i) Fill(entries[i], &infos[i]);
  return NVML_SUCCESS;
}

// Simulated processes neither draw nor use the multi-process server.
nvmlReturn_t PutNobody(nvmlDevice_t device, unsigned* count) { return PutFor(device, count, 0u); }

}  // namespace

extern "C" nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device,
                                                             unsigned int* infoCount,
                                                             nvmlProcessInfo_v1_t* infos) {
  SIM_CALL(nvmlDeviceGetComputeRunningProcesses, device, infoCount, infos);
  return PutProcesses(device, infoCount, infos);
}

extern "C" nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device,
                                                                unsigned int* infoCount,
                                                                nvmlProcessInfo_v2_t* infos) {
  SIM_CALL(nvmlDeviceGetComputeRunningProcesses_v2, device, infoCount, infos);
  return PutProcesses(device, infoCount, infos);
}

extern "C" nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device,
                                                                unsigned int* infoCount,
                                                                nvmlProcessInfo_t* infos) {
  SIM_CALL(nvmlDeviceGetComputeRunningProcesses_v3, device, infoCount, infos);
  return PutProcesses(device, infoCount, infos);
}

extern "C" nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device,
                                                              unsigned int* infoCount,
                                                              nvmlProcessInfo_v1_t* infos) {
  SIM_CALL(nvmlDeviceGetGraphicsRunningProcesses, device, infoCount, infos);
  return PutNobody(device, infoCount);
}

extern "C" nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device,
                                                                 unsigned int* infoCount,
                                                                 nvmlProcessInfo_v2_t* infos) {
  SIM_CALL(nvmlDeviceGetGraphicsRunningProcesses_v2, device, infoCount, infos);
  return PutNobody(device, infoCount);
}

extern "C" nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device,
                                                                 unsigned int* infoCount,
                                                                 nvmlProcessInfo_t* infos) {
  SIM_CALL(nvmlDeviceGetGraphicsRunningProcesses_v3, device, infoCount, infos);
  return PutNobody(device, infoCount);
}

extern "C" nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device,
                                                                unsigned int* infoCount,
                                                                nvmlProcessInfo_v1_t* infos) {
  SIM_CALL(nvmlDeviceGetMPSComputeRunningProcesses, device, infoCount, infos);
  return PutNobody(device, infoCount);
}

extern "C" nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device,
                                                                   unsigned int* infoCount,
                                                                   nvmlProcessInfo_v2_t* infos) {
  SIM_CALL(nvmlDeviceGetMPSComputeRunningProcesses_v2, device, infoCount, infos);
  return PutNobody(device, infoCount);
}

extern "C" nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device,
                                                                   unsigned int* infoCount,
                                                                   nvmlProcessInfo_t* infos) {
  SIM_CALL(nvmlDeviceGetMPSComputeRunningProcesses_v3, device, infoCount, infos);
  return PutNobody(device, infoCount);
}

extern "C" nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                              nvmlProcessDetailList_t* plist) {
  SIM_CALL(nvmlDeviceGetRunningProcessDetailList, device, plist);
  if (plist == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (plist->version != sim::nvml::VersionOf<nvmlProcessDetailList_v1_t>(1)) {
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  }
  constexpr unsigned kModeCompute = 0;
  if (plist->mode == kModeCompute) {
    return PutProcesses(device, &plist->numProcArrayEntries, plist->procArray);
  }
  return PutNobody(device, &plist->numProcArrayEntries);
}

extern "C" nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
  SIM_CALL(nvmlDeviceGetAccountingMode, device, mode);
  return PutFor(device, mode, NVML_FEATURE_DISABLED);
}

extern "C" nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t device,
                                                          unsigned int* bufferSize) {
  SIM_CALL(nvmlDeviceGetAccountingBufferSize, device, bufferSize);
  return PutFor(device, bufferSize, kAccountingBuffer);
}

extern "C" nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int* count,
                                                    unsigned int* pids) {
  SIM_CALL(nvmlDeviceGetAccountingPids, device, count, pids);
  return PutNobody(device, count);
}
