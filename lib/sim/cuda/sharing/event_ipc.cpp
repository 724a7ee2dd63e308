// Events between processes: one page shared through the file descriptor that the handle names.
//
// The page counts records and completed records; whoever waits for another process's event polls
// it. Must not know what leads up to events.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "cuda/graphs/capture.h"
#include "cuda/streams/event.h"
#include "cuda/streams/stream.h"
#include "machine/machine.h"

namespace sim {

namespace event {

struct SharedEvent {
  std::atomic<uint64_t> recorded;   // records so far, by anybody
  std::atomic<uint64_t> completed;  // the latest of them that is done
};

namespace {

// What a CUipcEventHandle holds.
struct Address {
  uint32_t magic;
  int32_t pid;
  int32_t fd;
  uint32_t flags;
  uint64_t inode;
  uint64_t machine;
};
constexpr uint32_t kMagic = 0x67666576;
static_assert(sizeof(Address) <= sizeof(CUipcEventHandle_v1));

struct RecordWork : Work {
  SharedEvent* shared;
  uint64_t number;
};

SharedEvent* Map(int fd) {
  void* page = mmap(nullptr, sizeof(SharedEvent), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return page == MAP_FAILED ? nullptr : static_cast<SharedEvent*>(page);
}

uint64_t InodeOf(int fd) {
  struct stat status;
  return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

// An anonymous file; it lives as long as a process has it open.
int CreateFile() {
  const int fd = static_cast<int>(syscall(SYS_memfd_create, "gpufence-sim-event", MFD_CLOEXEC));
  if (fd >= 0 && ftruncate(fd, sizeof(SharedEvent)) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

CUresult Share(Event& event) {
  if (event.shared != nullptr) return CUDA_SUCCESS;
  const int fd = CreateFile();
  if (fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  event.shared = Map(fd);
  if (event.shared == nullptr) {
    close(fd);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  event.shared_fd = fd;
  return CUDA_SUCCESS;
}

// Records may complete in another order than they were made; the page keeps the latest.
void Complete(Work& work) {
  const auto& record = static_cast<const RecordWork&>(work);
  uint64_t seen = record.shared->completed.load(std::memory_order_relaxed);
  while (seen < record.number && !record.shared->completed.compare_exchange_weak(
                                     seen, record.number, std::memory_order_release)) {
  }
}

bool IsDone(Work& work) {
  const auto& wait = static_cast<const RecordWork&>(work);
  return wait.shared->completed.load(std::memory_order_acquire) >= wait.number;
}

CUresult GetHandle(CUipcEventHandle* handle, CUevent event_handle) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TimelineLock lock;
  Event* event = Find(HandleValue(event_handle));
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if ((event->flags & CU_EVENT_INTERPROCESS) == 0 || event->imported) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  const bool fresh = event->shared == nullptr;
  const CUresult result = Share(*event);
  if (result != CUDA_SUCCESS) return result;
  if (fresh && event->record != nullptr) PublishRecord(lock, *event, event->record);
  const Address address = {kMagic,
                           getpid(),
                           event->shared_fd,
                           event->flags,
                           InodeOf(event->shared_fd),
                           machine::MachineId()};
  memset(handle, 0, sizeof(*handle));
  memcpy(handle, &address, sizeof(address));
  return CUDA_SUCCESS;
}

SharedEvent* OpenForeign(const Address& address) {
  if (address.magic != kMagic || address.machine != machine::MachineId()) return nullptr;
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/fd/%d", address.pid, address.fd);
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  SharedEvent* shared = InodeOf(fd) == address.inode ? Map(fd) : nullptr;
  close(fd);
  return shared;
}

CUresult OpenHandle(CUevent* out, const CUipcEventHandle& handle) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Address address;
  memcpy(&address, &handle, sizeof(address));
  if (address.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  TimelineLock lock;
  context::Context* context = nullptr;
  CUresult result = context::Current(&context);
  if (result != CUDA_SUCCESS) return result;
  SharedEvent* shared = OpenForeign(address);
  if (shared == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Event* event = nullptr;
  result = Create(address.flags, *context, &event);
  if (result != CUDA_SUCCESS) {
    munmap(shared, sizeof(SharedEvent));
    return result;
  }
  event->shared = shared;
  event->shared_fd = -1;
  event->imported = true;
  *out = AsHandle<CUevent>(event->handle);
  return CUDA_SUCCESS;
}

}  // namespace

void PublishRecord(TimelineLock& lock, Event& event, Work* work) {
  auto* record = NewWork<RecordWork>(Engine::kNone, 0, 0);
  if (record == nullptr) return;
  record->shared = event.shared;
  record->number = event.shared->recorded.fetch_add(1, std::memory_order_acq_rel) + 1;
  record->action = Complete;
  Scheduler::After(record, work);
  lock.Submit(record);
  ReleaseWork(record);
}

bool IsSharedDone(const Event& event) {
  const uint64_t recorded = event.shared->recorded.load(std::memory_order_acquire);
  return event.shared->completed.load(std::memory_order_acquire) >= recorded;
}

Work* NewSharedWait(const Event& event) {
  auto* wait = NewWork<RecordWork>(Engine::kPoll, 0, 0);
  if (wait == nullptr) return nullptr;
  wait->shared = event.shared;
  wait->number = event.shared->recorded.load(std::memory_order_acquire);
  wait->condition = IsDone;
  return wait;
}

// The mapping stays: work that is still to come may write to it. It is one page per event that was
// ever shared.
void CloseShared(Event& event) {
  if (event.shared != nullptr && event.shared_fd >= 0) close(event.shared_fd);
}

}  // namespace event

}  // namespace sim

// The exports are global, everything that they use is in sim.
using namespace sim;

extern "C" CUresult cuIpcGetEventHandle(CUipcEventHandle* pHandle, CUevent event) {
  SIM_CALL(cuIpcGetEventHandle, pHandle, event);
  return event::GetHandle(pHandle, event);
}

extern "C" CUresult cuIpcOpenEventHandle(CUevent* phEvent, CUipcEventHandle handle) {
  SIM_CALL(cuIpcOpenEventHandle, phEvent, handle);
  return event::OpenHandle(phEvent, handle);
}
