#include "device/usage.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>

#include "device/ids.h"
#include "real.h"

namespace gpufence {
namespace {

// The inode of the machine's first pid namespace, a constant of Linux (PROC_PID_INIT_INO). In it
// getpid() is the number that every driver knows us by.
constexpr ino_t kInitialPidNamespace = 0xEFFFFFFC;

constexpr unsigned kOnStack = 64;
constexpr unsigned kMostProcesses = 1 << 16;
constexpr unsigned long long kNoFigure = ~0ull;  // NVML_VALUE_NOT_AVAILABLE

// By how much a new context's figure may differ from what the device lost: the figure leaves some
// MiB out that the driver takes beside it (5.6 MiB on an H200), and no context is as small as this.
constexpr uint64_t kLessonSlackBytes = uint64_t{32} << 20;

// Our pid when it was learned (high half) and the number in the list (low half): a forked child has
// another one to learn.
constinit std::atomic<uint64_t> learned_number{0};

void Learn(uint32_t number) {
  const uint64_t pid = static_cast<uint32_t>(getpid());
  learned_number.store(pid << 32 | number, std::memory_order_relaxed);
}

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

UsageSource FindOwn(const nvmlProcessInfo_t* infos, unsigned count, uint64_t* bytes) {
  const uint32_t own_number = OwnListedNumber();
  if (own_number == 0) return UsageSource::kNone;
  uint64_t sum_bytes = 0;  // with MIG, a process is listed once for each instance
  bool listed = false;
  for (unsigned i = 0; i < count; ++i) {
    if (infos[i].pid != own_number) continue;
    if (infos[i].usedGpuMemory == kNoFigure) return UsageSource::kNone;
    sum_bytes += infos[i].usedGpuMemory;
    listed = true;
  }
  if (!listed) return UsageSource::kNone;
  *bytes = sum_bytes;
  return UsageSource::kProcessList;
}

}  // namespace

UsageSource OwnUsage(const uint8_t uuid[16], bool on_device, uint64_t* bytes,
                     NumberLesson* lesson) {
  if (!on_device) {
    *bytes = 0;
    return UsageSource::kProcessList;
  }
  nvmlDevice_t device = nullptr;
  const bool teaches = lesson != nullptr && lesson->is_open();
  if ((OwnListedNumber() == 0 && !teaches) || !NvmlHandleOf(uuid, &device)) {
    return UsageSource::kNone;
  }
  nvmlProcessInfo_t few[kOnStack];
  unsigned count = kOnStack;
  nvmlReturn_t rc = ListProcesses(device, &count, few);
  if (rc == NVML_SUCCESS) {
    if (teaches) lesson->ConcludeFrom(uuid, few, count);
    return FindOwn(few, count, bytes);
  }
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

uint32_t OwnListedNumber() {
  const uint64_t pid = static_cast<uint32_t>(getpid());
  const uint64_t learned = learned_number.load(std::memory_order_relaxed);
  if (learned >> 32 == pid) return static_cast<uint32_t>(learned);
  const uint32_t number = InInitialPidNamespace() ? static_cast<uint32_t>(pid) : 0;
  Learn(number);
  return number;
}

void NumberLesson::Begin(const uint8_t uuid[16]) {
  nvmlDevice_t device = nullptr;
  nvmlProcessInfo_t listed[kMostListed];
  count_ = kMostListed;
  if (OwnListedNumber() != 0 || !NvmlHandleOf(uuid, &device) ||
      ListProcesses(device, &count_, listed) != NVML_SUCCESS) {
    return;
  }
  for (unsigned i = 0; i < count_; ++i) numbers_[i] = listed[i].pid;
  began_ = DeviceFreeBytes(uuid, &free_bytes_);
}

void NumberLesson::Conclude(const uint8_t uuid[16]) {
  nvmlDevice_t device = nullptr;
  nvmlProcessInfo_t listed[kMostListed];
  unsigned count = kMostListed;
  if (began_ && NvmlHandleOf(uuid, &device) &&
      ListProcesses(device, &count, listed) == NVML_SUCCESS) {
    ConcludeFrom(uuid, listed, count);
  }
}

void NumberLesson::ConcludeFrom(const uint8_t uuid[16], const nvmlProcessInfo_t* listed,
                                unsigned count) {
  if (!began_) return;
  began_ = false;
  const nvmlProcessInfo_t* found = nullptr;
  unsigned newcomers = 0;
  for (unsigned i = 0; i < count; ++i) {
    if (WasListed(listed[i].pid)) continue;
    if (listed[i].pid == static_cast<unsigned>(getpid())) return Learn(listed[i].pid);
    found = &listed[i];
    ++newcomers;
  }
  uint64_t free_bytes = 0;
  if (newcomers != 1 || !DeviceFreeBytes(uuid, &free_bytes) || free_bytes > free_bytes_) return;
  const uint64_t lost = free_bytes_ - free_bytes;
  const uint64_t held = found->usedGpuMemory;
  if (held != kNoFigure && held <= lost + kLessonSlackBytes && lost <= held + kLessonSlackBytes) {
    Learn(found->pid);
  }
}

bool NumberLesson::WasListed(uint32_t number) const {
  for (unsigned i = 0; i < count_; ++i) {
    if (numbers_[i] == number) return true;
  }
  return false;
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
