// Launches collectives where the library follows no stream: what the stack held before a launch
// must not be taken for one. Prints how many were launched.
// link: cuda
#include "support/time_program.h"

using namespace timing;

namespace {

constexpr char kCollective[] = R"(
.version 7.0
.target sm_50
.address_size 64
.visible .entry ncclDevKernel_AllReduce_10us() { ret; }
)";
constexpr int kLaunches = 3;
constexpr size_t kSoiledBytes = 64 << 10;
constexpr unsigned char kDirt = 0xa5;  // eight of it are no address

[[gnu::noinline]] void Soil() {
  volatile unsigned char below[kSoiledBytes];
  for (volatile unsigned char& byte : below) byte = kDirt;
}

int Launch(CUfunction collective, CUstream stream) {
  for (int i = 0; i < kLaunches; ++i) {
    Soil();
    MUST(cuLaunchKernel(collective, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
  }
  return kLaunches;
}

}  // namespace

int main() {
  const Gpu gpu;
  CUmodule module = nullptr;
  CUfunction collective = nullptr;
  CUgraph graph = nullptr;
  MUST(cuModuleLoadData(&module, kCollective));
  MUST(cuModuleGetFunction(&collective, module, "ncclDevKernel_AllReduce_10us"));
  CUstream stream = NewStream();
  MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  int launched = Launch(collective, stream);
  MUST(cuStreamEndCapture(stream, &graph));
  launched += Launch(collective, stream);
  MUST(cuCtxSynchronize());
  Facts().Say("launched", launched);
  return 0;
}
