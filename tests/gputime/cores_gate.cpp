// A stream that waits for a value has as much behind that as its queue takes, and the thread that
// puts more there waits in the driver. Another one, which writes the value, has to get there.
// link: cuda
// flags: -pthread
//
//   cores_gate FILL WAY   FILL: launch, copy or set, until the thread waits
//                         WAY: what the other thread does before it writes the value: none, event
//                         (waits for an earlier one), sync (waits for its stream), copy, destroy
//                         (ends a stream), release (of a context)
//
// Prints {"put": operations behind the gate until the thread waited, "done": 1 when all ended}.
#include <pthread.h>
#include <unistd.h>

#include <atomic>

#include "support/time_program.h"

using namespace timing;

namespace {

constexpr int kOperations = 3'000;

struct Filling {
  const Gpu* gpu;
  const char* what;
  CUstream stream;
  CUdeviceptr memory;
  void* host;
  std::atomic<int> put{0};
  std::atomic<bool> is_over{false};
};

void PutOne(Filling* filling) {
  switch (filling->what[0]) {
    case 'l':
      MUST(filling->gpu->Spin(filling->stream, kUs));
      break;
    case 'c':
      MUST(cuMemcpyHtoDAsync_v2(filling->memory, filling->host, 64, filling->stream));
      break;
    default:
      MUST(cuMemsetD8Async(filling->memory, 1, 64, filling->stream));
  }
}

void* Fill(void* argument) {
  auto* filling = static_cast<Filling*>(argument);
  MUST(cuCtxSetCurrent(filling->gpu->context));
  MUST(filling->gpu->Spin(filling->stream, kUs));
  for (int i = 0; i < kOperations; ++i) {
    PutOne(filling);
    ++filling->put;
  }
  filling->is_over.store(true);
  return nullptr;
}

bool Is(const char* word, const char* name) { return strcmp(word, name) == 0; }

void DoBefore(const char* way, const Gpu& gpu, Filling* filling, CUstream own, CUevent earlier) {
  if (Is(way, "event")) MUST(cuEventSynchronize(earlier));
  if (Is(way, "sync")) MUST(cuStreamSynchronize(own));
  if (Is(way, "copy")) MUST(cuMemsetD8Async(filling->memory, 1, 64, own));
  if (Is(way, "destroy")) MUST(cuStreamDestroy_v2(NewStream()));
  if (Is(way, "release")) {
    CUcontext primary = nullptr;
    MUST(cuDevicePrimaryCtxRetain(&primary, gpu.device));
    MUST(cuDevicePrimaryCtxRetain(&primary, gpu.device));
    MUST(cuDevicePrimaryCtxRelease_v2(gpu.device));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const Gpu gpu;
  CUdeviceptr gate = 0;
  MUST(cuMemAlloc_v2(&gate, 4096));
  MUST(cuMemsetD8_v2(gate, 0, 4096));
  CUstream own = NewStream();
  Filling filling = {&gpu, argv[1], NewStream(), 0, nullptr, {}, {}};
  MUST(cuMemAlloc_v2(&filling.memory, 4096));
  MUST(cuMemAllocHost_v2(&filling.host, 4096));
  // What short kernels take is known, and nothing was long ago: so many are let through at once.
  for (int i = 0; i < 200; ++i) MUST(gpu.Spin(filling.stream, kUs));
  MUST(gpu.Spin(own, kUs));
  CUevent earlier = Mark(own);
  MUST(cuCtxSynchronize());

  MUST(cuStreamWaitValue32_v2(filling.stream, gate, 1, CU_STREAM_WAIT_VALUE_EQ));
  pthread_t thread;
  if (pthread_create(&thread, nullptr, Fill, &filling) != 0) return 1;
  for (int seen = -1; seen != filling.put.load();) {
    seen = filling.put.load();
    usleep(200'000);
  }
  const int put = filling.put.load();
  DoBefore(argv[2], gpu, &filling, own, earlier);
  MUST(cuStreamWriteValue32_v2(own, gate, 1, 0));
  while (!filling.is_over.load()) usleep(1'000);
  MUST(cuCtxSynchronize());

  Facts facts;
  facts.Say("put", put);
  facts.Say("done", 1);
  return 0;
}
