// Keeps a GPU as busy as it may and says how busy that was: the time that its kernels take on the
// simulated GPU over the time until all of it was paid for.
// link: cuda
// flags: -pthread
//
//   cores_run WAY KERNEL_US MS
//
// Ways: plain, ex, cooperative, graph, two (streams), legacy, thread (its default stream), sync
// (after every kernel), pauses (twice a kernel's length behind each), fills (as long as the
// kernels, between them; keep them short, since the simulator really fills). Prints {"share":
// percent, "launches": n, "us": elapsed}.
#include <time.h>
#include <unistd.h>

#include "time_program.h"

using namespace timing;

namespace {

constexpr unsigned kWholeGpu = 100'000;  // blocks: kernels of two streams cannot run side by side

double NowUs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

struct Work {
  const Gpu& gpu;
  const char* way;
  unsigned long long ns;
  CUstream streams[2];
  CUgraphExec graph;
  CUdeviceptr memory;
  size_t fill_bytes;
  unsigned launches;

  bool Is(const char* name) const { return strcmp(way, name) == 0; }

  CUresult Launch(CUstream stream) {
    void* params[] = {&ns};
    if (Is("ex")) {
      CUlaunchConfig config = {};
      config.gridDimX = kWholeGpu;
      config.gridDimY = config.gridDimZ = 1;
      config.blockDimX = config.blockDimY = config.blockDimZ = 1;
      config.hStream = stream;
      return cuLaunchKernelEx(&config, gpu.spin, params, nullptr);
    }
    if (Is("cooperative")) {
      return cuLaunchCooperativeKernel(gpu.spin, 132, 1, 1, 1024, 1, 1, 0, stream, params);
    }
    if (Is("graph")) return cuGraphLaunch(graph, stream);
    if (Is("thread")) {
      return cuLaunchKernel_ptsz(gpu.spin, kWholeGpu, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr);
    }
    return gpu.Spin(stream, ns, kWholeGpu);
  }

  void Once() {
    CUstream stream = Is("legacy") ? nullptr : streams[Is("two") ? launches % 2 : 0];
    MUST(Launch(stream));
    ++launches;
    if (Is("sync") || Is("pauses")) MUST(cuStreamSynchronize(stream));
    if (Is("pauses")) usleep(static_cast<useconds_t>(ns / 500));
    if (Is("fills")) MUST(cuMemsetD8Async(memory, 0, fill_bytes, stream));
  }
};

CUgraphExec GraphOf(const Gpu& gpu, CUstream stream, unsigned long long ns) {
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  MUST(gpu.Spin(stream, ns, kWholeGpu));
  MUST(cuStreamEndCapture(stream, &graph));
  MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
  return executable;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const Gpu gpu;
  Work work = {
      gpu, argv[1], strtoull(argv[2], nullptr, 10) * kUs, {NewStream(), NewStream()}, nullptr, 0,
      0,   0};
  if (work.Is("graph")) work.graph = GraphOf(gpu, work.streams[0], work.ns);
  if (work.Is("fills")) {
    work.fill_bytes = static_cast<size_t>(work.ns) * 2000;  // at 2 TB/s
    MUST(cuMemAlloc_v2(&work.memory, work.fill_bytes));
  }

  const double begin_us = NowUs();
  const double until_us = begin_us + strtod(argv[3], nullptr) * 1e3;
  while (NowUs() < until_us) work.Once();
  MUST(cuCtxSynchronize());
  const double launches = work.launches;
  MUST(work.Launch(work.streams[0]));  // goes when everything before it is paid for
  const double us = NowUs() - begin_us;
  MUST(cuCtxSynchronize());

  Facts facts;
  facts.Say("share", 100 * launches * static_cast<double>(work.ns) / 1e3 / us);
  facts.Say("launches", launches);
  facts.Say("us", us);
  return 0;
}
