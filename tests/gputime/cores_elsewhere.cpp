// Launches graphs into a stream of one GPU whose kernels run on another.
// link: cuda
//
//   cores_elsewhere captured MS KERNEL_MS  each waited for, for so long
//   cores_elsewhere body MS KERNEL_MS      the same, in the body of a conditional node
//   cores_elsewhere blocked                one, whose stream waits for a value written behind it
//
// Prints {"share": percent of the other GPU's time, until all was paid for} or {"done": 1}.
#include <time.h>

#include "support/time_program.h"

using namespace timing;

namespace {

constexpr unsigned kAssignDefault = 1;  // CU_GRAPH_COND_ASSIGN_DEFAULT

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

// Of no stream: the body of a condition that always holds is the other GPU's.
CUgraphExec Conditional(const Gpu& there, unsigned long long kernel_ns) {
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec executable = nullptr;
  CUgraphNodeParams condition = {};
  condition.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  condition.conditional.type = CU_GRAPH_COND_TYPE_IF;
  condition.conditional.size = 1;
  condition.conditional.ctx = there.context;
  MUST(cuGraphCreate(&graph, 0));
  MUST(cuGraphConditionalHandleCreate(&condition.conditional.handle, graph, there.context, 1,
                                      kAssignDefault));
  MUST(cuGraphAddNode(&node, graph, nullptr, 0, &condition));
  void* arguments[] = {&kernel_ns};
  CUgraphNodeParams kernel = {};
  kernel.type = CU_GRAPH_NODE_TYPE_KERNEL;
  kernel.kernel.func = there.spin;
  kernel.kernel.gridDimX = kWholeGpu;
  kernel.kernel.gridDimY = kernel.kernel.gridDimZ = 1;
  kernel.kernel.blockDimX = kernel.kernel.blockDimY = kernel.kernel.blockDimZ = 1;
  kernel.kernel.kernelParams = arguments;
  kernel.kernel.ctx = there.context;
  MUST(cuGraphAddNode(&node, condition.conditional.phGraph_out[0], nullptr, 0, &kernel));
  MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
  return executable;
}

int Blocked(const Gpu& here, const Gpu& there) {
  CUdeviceptr flag = 0;
  MUST(cuMemAllocManaged(&flag, 4, CU_MEM_ATTACH_GLOBAL));
  *reinterpret_cast<volatile cuuint32_t*>(flag) = 0;
  CUstream stream = NewStream();
  const CUgraphExec executable = Captured(here, there, stream, kMs);
  MUST(cuStreamWaitValue32(stream, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
  MUST(cuGraphLaunch(executable, stream));
  *reinterpret_cast<volatile cuuint32_t*>(flag) = 1;
  MUST(cuStreamSynchronize(stream));
  Facts().Say("done", 1);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const Gpu there(0, 1);
  const Gpu here(0, 0);
  if (argc == 2) return Blocked(here, there);
  if (argc != 4) return 2;
  const double run_ms = strtod(argv[2], nullptr);
  const double kernel_ms = strtod(argv[3], nullptr);
  const auto kernel_ns = static_cast<unsigned long long>(kernel_ms * kMs);
  CUstream stream = NewStream();
  const CUgraphExec executable = strcmp(argv[1], "body") == 0
                                     ? Conditional(there, kernel_ns)
                                     : Captured(here, there, stream, kernel_ns);
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
