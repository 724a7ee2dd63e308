// Who is on a device, inside a limit: the container's own processes and nobody else.
//
// A process is known by its number in our own pid namespace, or, where NVML counts in the host's,
// by the number that this process learned for itself (device/usage.h): there nobody else is listed
// rather than a neighbour. NVML fills a list of ours, whose strangers are left out; what remains is
// given to the caller by NVML's own manners: the number needed, and NVML_ERROR_INSUFFICIENT_SIZE if
// they do not fit.
#include <string.h>

#include "base/forked.h"
#include "hooks/fence.h"
#include "hooks/views/onlooker.h"
#include "real.h"

namespace gpufence {
namespace {

// Entries of one list, beyond which the answer is the driver's "too many" as it is.
constexpr unsigned kMostEntries = 65536;

// Some 535 drivers wrote entries of 32 bytes where headers have 24, so a list of ours has room to
// spare; where they do, entries are read wrong, for us as for every caller.
constexpr size_t kSpare = 2;

// A list of ours, mapped: the caller's stack may be small.
template <typename Entry>
class EntryList {
 public:
  explicit EntryList(unsigned room)
      : bytes_(size_t{room} * sizeof(Entry) * kSpare),
        entries_(static_cast<Entry*>(MapWipedOnFork(bytes_))) {}
  ~EntryList() {
    if (entries_ != nullptr) UnmapWipedOnFork(entries_, bytes_);
  }
  EntryList(const EntryList&) = delete;
  EntryList& operator=(const EntryList&) = delete;

  Entry* get() const { return entries_; }

 private:
  size_t bytes_;
  Entry* entries_;
};

template <typename Entry>
unsigned KeepOurs(Entry* entries, unsigned count) {
  unsigned kept = 0;
  for (unsigned i = 0; i < count; ++i) {
    if (IsOurs(entries[i].pid)) entries[kept++] = entries[i];
  }
  return kept;
}

// fill(entries, &count): NVML's call on a list of ours; count in: room, out: filled, or the need.
// Asks with room for more than there were, as long as more come meanwhile.
template <typename Entry, typename Fill>
nvmlReturn_t PutOurs(Fill fill, unsigned* count, Entry* entries) {
  const unsigned room = entries == nullptr ? 0 : *count;
  for (unsigned most = 64;; most *= 4) {
    const EntryList<Entry> list(most);
    if (list.get() == nullptr) return NVML_ERROR_MEMORY;
    unsigned filled = most;
    const nvmlReturn_t rc = fill(list.get(), &filled);
    if (rc == NVML_ERROR_INSUFFICIENT_SIZE && most < kMostEntries) continue;
    if (rc != NVML_SUCCESS) return rc;
    *count = KeepOurs(list.get(), filled < most ? filled : most);
    if (*count > room) return NVML_ERROR_INSUFFICIENT_SIZE;
    if (*count > 0) memcpy(entries, list.get(), *count * sizeof(Entry));
    return NVML_SUCCESS;
  }
}

bool IsFenced(nvmlDevice_t device) {
  Held seen;
  return LookAt(device, &seen);
}

template <typename Info>
using RunningCall = nvmlReturn_t (*)(nvmlDevice_t, unsigned int*, Info*);

// What NVML refuses whatever the list holds, it refuses in its own words. The caller's memory is
// looked at only inside a limit: without one the call is the driver's alone.
template <typename Info>
nvmlReturn_t Running(nvmlDevice_t device, unsigned int* count, Info* infos,
                     RunningCall<Info> call) {
  const InsideHook hook;
  const bool is_ours = count != nullptr && hook.is_outermost() && IsFenced(device);
  if (!is_ours || (*count > 0 && infos == nullptr)) return call(device, count, infos);
  return PutOurs([&](Info* ours, unsigned* filled) { return call(device, filled, ours); }, count,
                 infos);
}

}  // namespace
}  // namespace gpufence

using gpufence::InsideHook;

extern "C" {

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int* infoCount,
                                                  nvmlProcessInfo_v1_t* infos) {
  return gpufence::Running(device, infoCount, infos, real::nvmlDeviceGetComputeRunningProcesses);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int* infoCount,
                                                     nvmlProcessInfo_v2_t* infos) {
  return gpufence::Running(device, infoCount, infos, real::nvmlDeviceGetComputeRunningProcesses_v2);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int* infoCount,
                                                     nvmlProcessInfo_t* infos) {
  return gpufence::Running(device, infoCount, infos, real::nvmlDeviceGetComputeRunningProcesses_v3);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int* infoCount,
                                                   nvmlProcessInfo_v1_t* infos) {
  return gpufence::Running(device, infoCount, infos, real::nvmlDeviceGetGraphicsRunningProcesses);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int* infoCount,
                                                      nvmlProcessInfo_v2_t* infos) {
  return gpufence::Running(device, infoCount, infos,
                           real::nvmlDeviceGetGraphicsRunningProcesses_v2);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int* infoCount,
                                                      nvmlProcessInfo_t* infos) {
  return gpufence::Running(device, infoCount, infos,
                           real::nvmlDeviceGetGraphicsRunningProcesses_v3);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned int* infoCount,
                                                     nvmlProcessInfo_v1_t* infos) {
  return gpufence::Running(device, infoCount, infos, real::nvmlDeviceGetMPSComputeRunningProcesses);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device,
                                                        unsigned int* infoCount,
                                                        nvmlProcessInfo_v2_t* infos) {
  return gpufence::Running(device, infoCount, infos,
                           real::nvmlDeviceGetMPSComputeRunningProcesses_v2);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device,
                                                        unsigned int* infoCount,
                                                        nvmlProcessInfo_t* infos) {
  return gpufence::Running(device, infoCount, infos,
                           real::nvmlDeviceGetMPSComputeRunningProcesses_v3);
}

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                   nvmlProcessDetailList_t* plist) {
  const InsideHook hook;
  const bool is_ours = plist != nullptr && hook.is_outermost() && gpufence::IsFenced(device);
  if (!is_ours || (plist->numProcArrayEntries > 0 && plist->procArray == nullptr)) {
    return real::nvmlDeviceGetRunningProcessDetailList(device, plist);
  }
  const auto fill = [&](nvmlProcessDetail_v1_t* ours, unsigned* filled) {
    nvmlProcessDetailList_t asked = *plist;
    asked.numProcArrayEntries = *filled;
    asked.procArray = ours;
    const nvmlReturn_t rc = real::nvmlDeviceGetRunningProcessDetailList(device, &asked);
    *filled = asked.numProcArrayEntries;
    return rc;
  };
  return gpufence::PutOurs(fill, &plist->numProcArrayEntries, plist->procArray);
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                             nvmlProcessUtilizationSample_t* utilization,
                                             unsigned int* processSamplesCount,
                                             unsigned long long lastSeenTimeStamp) {
  const InsideHook hook;
  if (processSamplesCount == nullptr || !hook.is_outermost() || !gpufence::IsFenced(device)) {
    return real::nvmlDeviceGetProcessUtilization(device, utilization, processSamplesCount,
                                                 lastSeenTimeStamp);
  }
  const auto fill = [&](nvmlProcessUtilizationSample_t* ours, unsigned* filled) {
    return real::nvmlDeviceGetProcessUtilization(device, ours, filled, lastSeenTimeStamp);
  };
  const nvmlReturn_t rc = gpufence::PutOurs(fill, processSamplesCount, utilization);
  // As when nobody was busy.
  return rc == NVML_SUCCESS && *processSamplesCount == 0 ? NVML_ERROR_NOT_FOUND : rc;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(
    nvmlDevice_t device, nvmlProcessesUtilizationInfo_t* procesesUtilInfo) {
  const InsideHook hook;
  if (procesesUtilInfo == nullptr || !hook.is_outermost() || !gpufence::IsFenced(device)) {
    return real::nvmlDeviceGetProcessesUtilizationInfo(device, procesesUtilInfo);
  }
  const auto fill = [&](nvmlProcessUtilizationInfo_v1_t* ours, unsigned* filled) {
    nvmlProcessesUtilizationInfo_t asked = *procesesUtilInfo;
    asked.processSamplesCount = *filled;
    asked.procUtilArray = ours;
    const nvmlReturn_t rc = real::nvmlDeviceGetProcessesUtilizationInfo(device, &asked);
    *filled = asked.processSamplesCount;
    return rc;
  };
  const nvmlReturn_t rc = gpufence::PutOurs(fill, &procesesUtilInfo->processSamplesCount,
                                            procesesUtilInfo->procUtilArray);
  return rc == NVML_SUCCESS && procesesUtilInfo->processSamplesCount == 0 ? NVML_ERROR_NOT_FOUND
                                                                          : rc;
}

}  // extern "C"
