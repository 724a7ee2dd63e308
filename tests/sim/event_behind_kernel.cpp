// An event behind a kernel is reached when that ends, whenever the program calls the driver next.
// Virtual time: what the host takes is slept.
// link: cuda
//
//   event_behind_kernel KERNEL_NS PAUSE_NS
//
// Records an event into an idle stream, launches a kernel, records another event, works on for
// PAUSE_NS without a call, and launches one more. Prints {"us": between the two events}.
#include <sys/prctl.h>
#include <time.h>

#include "gputime/cores_ways.h"

using namespace timing;

namespace {

void Sleep(unsigned long long ns) {
  const timespec time = {0, static_cast<long>(ns)};
  nanosleep(&time, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  prctl(PR_SET_TIMERSLACK, 1);
  Gpu gpu;
  const CUstream stream = NewStream();
  Work work = {gpu, strtoull(argv[1], nullptr, 10), nullptr};
  const CUevent before = NewEvent(0);
  const CUevent behind = NewEvent(0);
  Sleep(1'000'000);
  MUST(cuEventRecord(before, stream));
  MUST(Kernel(work, stream));
  MUST(cuEventRecord(behind, stream));
  Sleep(strtoull(argv[2], nullptr, 10));
  MUST(Kernel(work, stream));
  MUST(cuStreamSynchronize(stream));
  float ms = 0;
  MUST(cuEventElapsedTime(&ms, before, behind));
  printf("{\"us\": %.2f}\n", ms * 1e3);
  return 0;
}
