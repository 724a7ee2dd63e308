// First code under a core limit, as programs load it, and what the library finds out then.
// link: cuda
// flags: -pthread
//
//   cores_paces launch          kernels, each waited for
//   cores_paces late            ... three seconds later
//   cores_paces captures        ... while another thread captures, and once more when it has ended
//   cores_paces threads         ... by four threads at once
//   cores_paces cancelled       ... by a thread that is asked to end before, and by another one
//   cores_paces full            ... with nearly all of the memory limit taken
//
// Prints {"code": 0} and how many kernels ran.
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "support/time_program.h"

using namespace timing;

namespace {

constexpr unsigned kLaunches = 20;
constexpr unsigned kLateUs = 3'000'000;

std::atomic<unsigned> ran{0};

// As timing::Gpu, of a context that is there.
struct Code {
  CUmodule module;
  CUfunction spin;

  CUresult Spin(CUstream stream, unsigned long long ns) const {
    void* params[] = {&ns};
    return cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr);
  }
};

void Launch(const Code& gpu, CUstream stream) {
  for (unsigned i = 0; i < kLaunches; ++i) {
    MUST(gpu.Spin(stream, 10 * kUs));
    MUST(cuStreamSynchronize(stream));
    ++ran;
  }
}

CUcontext NewContext() {
  CUcontext context = nullptr;
  MUST(cuInit(0));
  MUST(cuCtxCreate_v2(&context, 0, 0));
  return context;
}

// The thread's context has the kernel from now on.
void LoadAndLaunch(Code* gpu) {
  MUST(cuModuleLoadData(&gpu->module, kKernels));
  MUST(cuModuleGetFunction(&gpu->spin, gpu->module, "gpufence_spin_ns"));
  Launch(*gpu, NewStream());
}

void LaunchWhileCaptured(CUcontext context, Code* gpu) {
  CUstream captured = NewStream();
  CUgraph graph = nullptr;
  std::atomic<int> step{0};
  const auto await = [&](int until) {
    while (step != until) usleep(100);
  };
  std::thread capturing([&] {
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    step = 1;
    await(2);
    MUST(cuStreamEndCapture(captured, &graph));
    step = 3;
  });
  await(1);
  LoadAndLaunch(gpu);
  step = 2;
  await(3);
  MUST(cuCtxSynchronize());
  usleep(50'000);  // the library looks now and then
  LoadAndLaunch(gpu);
  capturing.join();
}

void LaunchByThreads(CUcontext context) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      Code gpu{};
      MUST(cuCtxSetCurrent(context));
      LoadAndLaunch(&gpu);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void* LaunchForEver(void* context) {
  MUST(cuCtxSetCurrent(static_cast<CUcontext>(context)));
  pthread_cancel(pthread_self());
  for (;;) {
    Code gpu{};
    LoadAndLaunch(&gpu);
    pthread_testcancel();
  }
}

void LaunchCancelled(CUcontext context, Code* gpu) {
  pthread_t thread = {};
  if (pthread_create(&thread, nullptr, LaunchForEver, context) != 0) exit(2);
  pthread_join(thread, nullptr);
  LoadAndLaunch(gpu);
}

// But what the program's own code takes.
void TakeAll() {
  CUdeviceptr piece = 0;
  CUdeviceptr last = 0;
  for (unsigned long long bytes = 64u << 20; bytes >= (2u << 20); bytes /= 2) {
    while (cuMemAlloc_v2(&piece, bytes) == CUDA_SUCCESS) last = piece;
  }
  MUST(cuMemFree_v2(last));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string way = argc == 2 ? argv[1] : "";
  CUcontext context = NewContext();
  Code gpu{};
  if (way == "captures") {
    LaunchWhileCaptured(context, &gpu);
  } else if (way == "threads") {
    LaunchByThreads(context);
  } else if (way == "cancelled") {
    LaunchCancelled(context, &gpu);
  } else if (way == "launch" || way == "late" || way == "full") {
    if (way == "late") usleep(kLateUs);
    if (way == "full") TakeAll();
    LoadAndLaunch(&gpu);
  } else {
    return 2;
  }
  Facts facts;
  facts.Say("code", 0);
  facts.Say("ran", ran.load());
  return 0;
}
