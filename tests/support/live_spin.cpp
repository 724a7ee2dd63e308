// Keeps a GPU busy on command and says how busy: one command a line on stdin, one line as answer.
// link: cuda
// flags: -pthread
//
//   run KERNEL_US MS   launches for so long; percent of it that the kernels took
//   capture            begins a capture of three launches; code
//   end                ends it and launches the graph; code
//   quit
#include <time.h>

#include <string>

#include "time_program.h"

using namespace timing;

namespace {

double NowUs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

double Run(const Gpu& gpu, CUstream stream, double kernel_us, double ms) {
  const double begin_us = NowUs();
  double launches = 0;
  while (NowUs() < begin_us + ms * 1e3) {
    MUST(gpu.Spin(stream, static_cast<unsigned long long>(kernel_us) * kUs, kWholeGpu));
    ++launches;
  }
  MUST(cuStreamSynchronize(stream));
  return 100 * launches * kernel_us / (NowUs() - begin_us);
}

CUresult Capture(const Gpu& gpu, CUstream stream) {
  CUresult rc = cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  for (int i = 0; i < 3 && rc == CUDA_SUCCESS; ++i) rc = gpu.Spin(stream, kUs, kWholeGpu);
  return rc;
}

CUresult EndCapture(const Gpu& gpu, CUstream stream) {
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  CUresult rc = gpu.Spin(stream, kUs, kWholeGpu);
  if (rc == CUDA_SUCCESS) rc = cuStreamEndCapture(stream, &graph);
  if (rc == CUDA_SUCCESS) rc = cuGraphInstantiateWithFlags(&executable, graph, 0);
  if (rc == CUDA_SUCCESS) rc = cuGraphLaunch(executable, stream);
  return rc == CUDA_SUCCESS ? cuStreamSynchronize(stream) : rc;
}

}  // namespace

int main() {
  const Gpu gpu;
  CUstream stream = NewStream();
  CUstream captured = NewStream();
  printf("ready\n");
  fflush(stdout);
  char word[16];
  double kernel_us = 0;
  double ms = 0;
  while (scanf("%15s", word) == 1 && std::string(word) != "quit") {
    const std::string command = word;
    if (command == "run" && scanf("%lf %lf", &kernel_us, &ms) == 2) {
      printf("%.1f\n", Run(gpu, stream, kernel_us, ms));
    } else if (command == "capture") {
      printf("%d\n", static_cast<int>(Capture(gpu, captured)));
    } else {
      printf("%d\n", static_cast<int>(EndCapture(gpu, captured)));
    }
    fflush(stdout);
  }
  return 0;
}
