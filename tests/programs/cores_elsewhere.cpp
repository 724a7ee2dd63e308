// Launches graphs into a stream of one GPU whose kernels run on another, each waited for.
// link: cuda
//
//   cores_elsewhere MS KERNEL_MS
//
// Prints {"share": percent of the other GPU's time, until all was paid for}.
#include <time.h>

#include "time_program.h"

using namespace timing;

namespace {

constexpr unsigned kWholeGpu = 100'000;  // blocks: no two kernels can run side by side

double NowMs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

CUevent NewPlainEvent() { return NewEvent(CU_EVENT_DISABLE_TIMING); }

// Of a stream of the first GPU: a stream of the other one joins it, with the only kernel.
CUgraphExec Captured(const Gpu& here, const Gpu& there, CUstream stream,
                     unsigned long long kernel_ns) {
  MUST(cuCtxSetCurrent(there.context));
  CUstream side = NewStream();
  CUevent join = NewPlainEvent();
  MUST(cuCtxSetCurrent(here.context));
  CUevent fork = NewPlainEvent();
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  MUST(cuEventRecord(fork, stream));
  MUST(cuStreamWaitEvent(side, fork, 0));
  MUST(cuCtxSetCurrent(there.context));
  MUST(there.Spin(side, kernel_ns, kWholeGpu));
  MUST(cuEventRecord(join, side));
  MUST(cuCtxSetCurrent(here.context));
  MUST(cuStreamWaitEvent(stream, join, 0));
  MUST(cuStreamEndCapture(stream, &graph));
  MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
  return executable;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const Gpu there(0, 1);
  const Gpu here(0, 0);
  const double run_ms = strtod(argv[1], nullptr);
  const double kernel_ms = strtod(argv[2], nullptr);
  CUstream stream = NewStream();
  const CUgraphExec executable =
      Captured(here, there, stream, static_cast<unsigned long long>(kernel_ms * kMs));
  const double begin_ms = NowMs();
  double launches = 0;
  for (; NowMs() < begin_ms + run_ms; ++launches) {
    MUST(cuGraphLaunch(executable, stream));
    MUST(cuStreamSynchronize(stream));
  }
  // One launch more goes when all before it is paid for.
  MUST(cuGraphLaunch(executable, stream));
  Facts().Say("share", 100 * launches * kernel_ms / (NowMs() - begin_ms));
  MUST(cuStreamSynchronize(stream));
  return 0;
}
