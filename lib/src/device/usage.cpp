#include "device/usage.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/ids.h"
#include "real.h"

namespace gpufence {
namespace {

// The inode of the machine's first pid namespace, a constant of Linux (PROC_PID_INIT_INO). Only in
// it does getpid() say the number that the driver knows us by.
constexpr ino_t kInitialPidNamespace = 0xEFFFFFFC;

constexpr unsigned kOnStack = 64;
constexpr unsigned kMostProcesses = 1 << 16;
constexpr unsigned long long kNoFigure = ~0ull;  // NVML_VALUE_NOT_AVAILABLE

bool InInitialPidNamespace() {
  struct stat found = {};
  return stat("/proc/self/ns/pid", &found) == 0 && found.st_ino == kInitialPidNamespace;
}

// Both versions fill records of the same layout; the newer is missing before driver 510.
static_assert(sizeof(nvmlProcessInfo_t) == sizeof(nvmlProcessInfo_v2_t));
nvmlReturn_t ListProcesses(nvmlDevice_t device, unsigned* count, nvmlProcessInfo_t* infos) {
  const nvmlReturn_t rc = real::nvmlDeviceGetComputeRunningProcesses_v3(device, count, infos);
  if (rc != NVML_ERROR_FUNCTION_NOT_FOUND) return rc;
  return real::nvmlDeviceGetComputeRunningProcesses_v2(
      device, count, reinterpret_cast<nvmlProcessInfo_v2_t*>(infos));
}

// This process has a context, so it is in the list.
UsageSource FindOwn(const nvmlProcessInfo_t* infos, unsigned count, uint64_t* bytes) {
  const bool pids_are_ours = InInitialPidNamespace();
  const auto own_pid = static_cast<unsigned>(getpid());
  uint64_t sum_bytes = 0;  // with MIG, a process is listed once for each instance
  bool listed = false;
  for (unsigned i = 0; i < count; ++i) {
    const bool is_own = pids_are_ours ? infos[i].pid == own_pid : count == 1;
    if (!is_own) continue;
    if (infos[i].usedGpuMemory == kNoFigure) return UsageSource::kNone;
    sum_bytes += infos[i].usedGpuMemory;
    listed = true;
  }
  if (!listed) return UsageSource::kNone;
  *bytes = sum_bytes;
  return UsageSource::kProcessList;
}

}  // namespace

UsageSource OwnUsage(const uint8_t uuid[16], bool on_device, uint64_t* bytes) {
  if (!on_device) {
    *bytes = 0;
    return UsageSource::kProcessList;
  }
  nvmlDevice_t device = nullptr;
  if (!NvmlHandleOf(uuid, &device)) return UsageSource::kNone;
  nvmlProcessInfo_t few[kOnStack];
  unsigned count = kOnStack;
  nvmlReturn_t rc = ListProcesses(device, &count, few);
  if (rc == NVML_SUCCESS) return FindOwn(few, count, bytes);
  // Processes may start while we ask: room for more than there were.
  for (unsigned room = count * 2; rc == NVML_ERROR_INSUFFICIENT_SIZE && room <= kMostProcesses;
       room *= 2) {
    const size_t room_bytes = room * sizeof(nvmlProcessInfo_t);
    void* memory =
        mmap(nullptr, room_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return UsageSource::kNone;
    auto* many = static_cast<nvmlProcessInfo_t*>(memory);
    count = room;
    rc = ListProcesses(device, &count, many);
    UsageSource source = UsageSource::kNone;
    if (rc == NVML_SUCCESS) source = FindOwn(many, count, bytes);
    munmap(memory, room_bytes);
    if (rc == NVML_SUCCESS) return source;
  }
  return UsageSource::kNone;
}

bool DeviceFreeBytes(const uint8_t uuid[16], uint64_t* bytes) {
  nvmlDevice_t device = nullptr;
  nvmlMemory_t memory = {};
  if (!NvmlHandleOf(uuid, &device) ||
      real::nvmlDeviceGetMemoryInfo(device, &memory) != NVML_SUCCESS) {
    return false;
  }
  *bytes = memory.free;
  return true;
}

uint64_t DriverFreeBytes() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  return real::cuMemGetInfo_v2(&free_bytes, &total_bytes) == CUDA_SUCCESS ? free_bytes : 0;
}

}  // namespace gpufence
