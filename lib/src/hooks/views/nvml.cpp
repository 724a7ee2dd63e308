// What NVML says about a device: inside a limit, a device of that size with the container's own
// processes and nobody else, by the name that the user wants it to have.
//
// NVML answers first, so its checks (the version in the caller's struct among them) and codes are
// the caller's. It answers some of these through others of its own exports: adjusted at the
// outermost only. Must not know how limits are found (onlooker.h).
#include <string.h>

#include "base/forked.h"
#include "hooks/fence.h"
#include "hooks/views/onlooker.h"
#include "policy/view.h"
#include "real.h"

namespace gpufence {
namespace {

// ---- memory ----

constexpr uint64_t kMiB = uint64_t{1} << 20;

// Exchanges total, free and used. The first form of the query has no word for what is reserved and
// counts it as used; inside a limit, used is the container's own in every form.
template <typename Memory>
bool ShowLimit(nvmlDevice_t device, Memory* memory, MemoryView* view) {
  LimitAndUse seen;
  if (!LookAt(device, &seen)) return false;
  *view = ViewMemory(seen, memory->total, memory->free);
  memory->total = view->total_bytes;
  memory->used = view->used_bytes;
  memory->free = view->free_bytes;
  return true;
}

using AttributesCall = nvmlReturn_t (*)(nvmlDevice_t, nvmlDeviceAttributes_t*);

nvmlReturn_t GetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t* attributes,
                           AttributesCall call) {
  const InsideHook hook;
  const nvmlReturn_t rc = call(device, attributes);
  LimitAndUse seen;
  if (rc != NVML_SUCCESS || !hook.is_outermost() || !LookAt(device, &seen)) return rc;
  const uint64_t total_bytes = attributes->memorySizeMB * kMiB;
  attributes->memorySizeMB = ViewMemory(seen, total_bytes, total_bytes).total_bytes / kMiB;
  return rc;
}

// ---- processes ----
//
// A process is known by its number in our own pid namespace, or, where NVML counts in the host's,
// by the number that this process learned for itself (device/usage.h): there nobody else is listed
// rather than a neighbour. NVML fills a list of ours, whose strangers are left out; what remains is
// given to the caller by NVML's own manners: the number needed, and NVML_ERROR_INSUFFICIENT_SIZE if
// they do not fit.

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
  LimitAndUse seen;
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

using namespace gpufence;

extern "C" {

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  const InsideHook hook;
  const nvmlReturn_t rc = real::nvmlDeviceGetMemoryInfo(device, memory);
  MemoryView view;
  if (rc == NVML_SUCCESS && hook.is_outermost()) ShowLimit(device, memory, &view);
  return rc;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  const InsideHook hook;
  const nvmlReturn_t rc = real::nvmlDeviceGetMemoryInfo_v2(device, memory);
  MemoryView view;
  if (rc == NVML_SUCCESS && hook.is_outermost() && ShowLimit(device, memory, &view)) {
    memory->reserved = view.reserved_bytes;
  }
  return rc;
}

nvmlReturn_t nvmlDeviceGetConfComputeProtectedMemoryUsage(nvmlDevice_t device,
                                                          nvmlMemory_t* memory) {
  const InsideHook hook;
  const nvmlReturn_t rc = real::nvmlDeviceGetConfComputeProtectedMemoryUsage(device, memory);
  MemoryView view;
  // A board without protected memory answers zeros, which stay zeros.
  if (rc == NVML_SUCCESS && hook.is_outermost()) ShowLimit(device, memory, &view);
  return rc;
}

nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t* attributes) {
  return GetAttributes(device, attributes, real::nvmlDeviceGetAttributes);
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t* attributes) {
  return GetAttributes(device, attributes, real::nvmlDeviceGetAttributes_v2);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned int length) {
  const InsideHook hook;
  const nvmlReturn_t rc = real::nvmlDeviceGetName(device, name, length);
  // The driver's name may not fit where ours does.
  if (rc != NVML_SUCCESS && rc != NVML_ERROR_INSUFFICIENT_SIZE) return rc;
  if (!hook.is_outermost() || name == nullptr) return rc;
  const char* given = GivenName();
  if (given == nullptr) return rc;
  const size_t bytes = strlen(given) + 1;
  if (bytes > length) return NVML_ERROR_INSUFFICIENT_SIZE;
  memcpy(name, given, bytes);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int* infoCount,
                                                  nvmlProcessInfo_v1_t* infos) {
  return Running(device, infoCount, infos, real::nvmlDeviceGetComputeRunningProcesses);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int* infoCount,
                                                     nvmlProcessInfo_v2_t* infos) {
  return Running(device, infoCount, infos, real::nvmlDeviceGetComputeRunningProcesses_v2);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int* infoCount,
                                                     nvmlProcessInfo_t* infos) {
  return Running(device, infoCount, infos, real::nvmlDeviceGetComputeRunningProcesses_v3);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int* infoCount,
                                                   nvmlProcessInfo_v1_t* infos) {
  return Running(device, infoCount, infos, real::nvmlDeviceGetGraphicsRunningProcesses);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int* infoCount,
                                                      nvmlProcessInfo_v2_t* infos) {
  return Running(device, infoCount, infos, real::nvmlDeviceGetGraphicsRunningProcesses_v2);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int* infoCount,
                                                      nvmlProcessInfo_t* infos) {
  return Running(device, infoCount, infos, real::nvmlDeviceGetGraphicsRunningProcesses_v3);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned int* infoCount,
                                                     nvmlProcessInfo_v1_t* infos) {
  return Running(device, infoCount, infos, real::nvmlDeviceGetMPSComputeRunningProcesses);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device,
                                                        unsigned int* infoCount,
                                                        nvmlProcessInfo_v2_t* infos) {
  return Running(device, infoCount, infos, real::nvmlDeviceGetMPSComputeRunningProcesses_v2);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device,
                                                        unsigned int* infoCount,
                                                        nvmlProcessInfo_t* infos) {
  return Running(device, infoCount, infos, real::nvmlDeviceGetMPSComputeRunningProcesses_v3);
}

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                   nvmlProcessDetailList_t* plist) {
  const InsideHook hook;
  const bool is_ours = plist != nullptr && hook.is_outermost() && IsFenced(device);
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
  return PutOurs(fill, &plist->numProcArrayEntries, plist->procArray);
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                             nvmlProcessUtilizationSample_t* utilization,
                                             unsigned int* processSamplesCount,
                                             unsigned long long lastSeenTimeStamp) {
  const InsideHook hook;
  if (processSamplesCount == nullptr || !hook.is_outermost() || !IsFenced(device)) {
    return real::nvmlDeviceGetProcessUtilization(device, utilization, processSamplesCount,
                                                 lastSeenTimeStamp);
  }
  const auto fill = [&](nvmlProcessUtilizationSample_t* ours, unsigned* filled) {
    return real::nvmlDeviceGetProcessUtilization(device, ours, filled, lastSeenTimeStamp);
  };
  const nvmlReturn_t rc = PutOurs(fill, processSamplesCount, utilization);
  // As when nobody was busy.
  return rc == NVML_SUCCESS && *processSamplesCount == 0 ? NVML_ERROR_NOT_FOUND : rc;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(
    nvmlDevice_t device, nvmlProcessesUtilizationInfo_t* procesesUtilInfo) {
  const InsideHook hook;
  if (procesesUtilInfo == nullptr || !hook.is_outermost() || !IsFenced(device)) {
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
  const nvmlReturn_t rc =
      PutOurs(fill, &procesesUtilInfo->processSamplesCount, procesesUtilInfo->procUtilArray);
  return rc == NVML_SUCCESS && procesesUtilInfo->processSamplesCount == 0 ? NVML_ERROR_NOT_FOUND
                                                                          : rc;
}

}  // extern "C"
