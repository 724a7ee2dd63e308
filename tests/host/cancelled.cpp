// link: cuda nvml
// flags: -pthread
// Threads that somebody cancels before they call the driver. No call of the simulated one is a
// cancellation point, nor may ours be: each returns, and its thread ends behind it.
//
//   cancelled        {NAME: 1 when the call returned, ...} of calls that take our slow paths, and
//                    "free": MiB below the limit once all threads are gone
#include <pthread.h>
#include <unistd.h>

#include "support/fence_program.h"

namespace {

using namespace fencetest;  // NOLINT(google-build-using-namespace): a test program's own helpers
using simtest::Facts;

CUcontext context;

struct Task {
  CUresult (*call)();
  CUresult expected;
  bool returned;
};

void* Main(void* argument) {
  auto* task = static_cast<Task*>(argument);
  if (context != nullptr) MUST(cuCtxSetCurrent(context));
  pthread_cancel(pthread_self());
  task->returned = task->call() == task->expected;
  pthread_testcancel();
  _exit(3);  // nobody cancelled it
}

void Say(Facts* facts, const char* name, CUresult (*call)(), CUresult expected = CUDA_SUCCESS) {
  Task task = {call, expected, false};
  pthread_t thread = 0;
  if (pthread_create(&thread, nullptr, Main, &task) != 0) _exit(3);
  pthread_join(thread, nullptr);
  facts->Say(name, task.returned);
}

CUresult Create() { return cuCtxCreate_v2(&context, 0, 0); }

CUresult TakeTooMuch() {
  CUdeviceptr address = 0;
  return cuMemAlloc_v2(&address, 4096 * kMiB);
}

CUresult TakeAndFree() {
  CUdeviceptr address = 0;
  MUST(cuMemAlloc_v2(&address, kMiB));
  return cuMemFree_v2(address);
}

CUresult Export() {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle = 0;
  int fd = -1;
  MUST(cuMemCreate(&handle, 64 * kMiB, &prop, 0));
  MUST(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  return cuMemRelease(handle);  // the descriptor keeps it
}

}  // namespace

int main() {
  Facts facts;
  Say(&facts, "cuInit", [] { return cuInit(0); });
  Say(&facts, "context", Create);
  MUST(cuCtxSetCurrent(context));
  Say(&facts, "within the limit", TakeAndFree);
  Say(&facts, "beyond the limit", TakeTooMuch, CUDA_ERROR_OUT_OF_MEMORY);
  Say(&facts, "export", Export);
  Say(&facts, "view", [] {
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    return cuMemGetInfo_v2(&free_bytes, &total_bytes);
  });
  facts.Say("free", FreeMiB());
  return 0;
}
