// What must not hang, hold or break anything under a core limit, and what must be paid for all the
// same.
// link: cuda
// flags: -pthread
//
//   cores_edges CASE
//
// capture: a capture of many launches, as {"us", "nodes", "code"}
//
// waits: ten kernels of 1 ms, with waits of 100 ms for a value between them in their stream;
// {"us": from their end until the next launch may go, "code"}
//
// endless: launches of 20 ms behind a kernel of a minute, until that ends, as {"launches"}
//
// stream | context | reset: a kernel is outstanding when its stream, its context or its device's
// primary context ends, as {"us": until the next launch may go, "code"}
//
// twice: a thread begins to release the primary context; then that is launched into, and another
// thread tries to destroy it, which takes as long as the kernel; {"code": of that}
//
// callback: launches from a host function, as {"launch": code, "code": of the wait behind it}
//
// exit: ends while another thread is held; fork: so does a child of a process that is watched
//
// threads: the process's threads once all is quiet, as {"threads"}
#include <dirent.h>
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "support/time_program.h"

using namespace timing;

namespace {

constexpr unsigned long long kLongNs = 50 * kMs;

double NowUs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

// Into a stream that was never launched into, beside one that waits for the legacy stream.
void Capture(const Gpu& gpu, Facts& facts) {
  CUstream blocking = nullptr;
  MUST(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  MUST(gpu.Spin(blocking, kUs));
  MUST(cuStreamSynchronize(blocking));
  CUstream stream = NewStream();
  const double begin_us = NowUs();
  MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  for (int i = 0; i < 200; ++i) MUST(gpu.Spin(stream, kLongNs));
  CUgraph graph = nullptr;
  facts.Code("code", cuStreamEndCapture(stream, &graph));
  facts.Say("us", NowUs() - begin_us);
  size_t nodes = 0;
  MUST(cuGraphGetNodes(graph, nullptr, &nodes));
  facts.Say("nodes", static_cast<double>(nodes));
}

// A launch in a fresh context of whatever kind goes when what ended before it is paid for.
void TellWhenPaid(Facts& facts, double begin_us) {
  CUcontext context = nullptr;
  MUST(cuCtxCreate_v2(&context, 0, 0));
  CUmodule module = nullptr;
  CUfunction spin = nullptr;
  MUST(cuModuleLoadData(&module, kKernels));
  MUST(cuModuleGetFunction(&spin, module, "gpufence_spin_ns"));
  unsigned long long ns = kUs;
  void* params[] = {&ns};
  facts.Code("code", cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
  facts.Say("us", NowUs() - begin_us);
  MUST(cuCtxSynchronize());
}

void EndOf(const char* what, const Gpu& gpu, Facts& facts) {
  const double begin_us = NowUs();
  if (strcmp(what, "reset") == 0) {
    CUcontext primary = nullptr;
    CUmodule module = nullptr;
    CUfunction spin = nullptr;
    MUST(cuDevicePrimaryCtxRetain(&primary, gpu.device));
    MUST(cuCtxSetCurrent(primary));
    MUST(cuModuleLoadData(&module, kKernels));
    MUST(cuModuleGetFunction(&spin, module, "gpufence_spin_ns"));
    unsigned long long ns = kLongNs;
    void* params[] = {&ns};
    MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
    MUST(cuDevicePrimaryCtxReset_v2(gpu.device));
  } else {
    CUstream stream = NewStream();
    MUST(gpu.Spin(stream, kLongNs));
    if (strcmp(what, "stream") == 0) {
      MUST(cuStreamDestroy_v2(stream));
      MUST(cuCtxSynchronize());
    } else {
      MUST(cuCtxDestroy_v2(gpu.context));
    }
  }
  usleep(30'000);  // for a watcher that has to wait for a processor
  TellWhenPaid(facts, begin_us);
}

std::atomic<int> ends_under_way{0};

void* ReleasePrimary(void*) {
  MUST(cuDevicePrimaryCtxRelease_v2(0));
  ends_under_way.fetch_sub(1);
  return nullptr;
}

struct Destroyed {
  CUcontext context;
  CUresult rc;
};

void* Destroy(void* argument) {
  auto* destroyed = static_cast<Destroyed*>(argument);
  destroyed->rc = cuCtxDestroy_v2(destroyed->context);
  int version = 0;
  MUST(cuDriverGetVersion(&version));  // for who reads the calls
  ends_under_way.fetch_sub(1);
  return nullptr;
}

void BeginToEnd(void* (*end)(void*), void* argument) {
  pthread_t thread;
  ends_under_way.fetch_add(1);
  if (pthread_create(&thread, nullptr, end, argument) != 0) exit(1);
  pthread_detach(thread);
  usleep(5'000);
}

void EndTwice(const Gpu& gpu, Facts& facts) {
  Destroyed primary = {nullptr, CUDA_SUCCESS};
  CUmodule module = nullptr;
  CUfunction spin = nullptr;
  for (int i = 0; i < 2; ++i) MUST(cuDevicePrimaryCtxRetain(&primary.context, gpu.device));
  MUST(cuCtxSetCurrent(primary.context));
  MUST(cuModuleLoadData(&module, kKernels));
  MUST(cuModuleGetFunction(&spin, module, "gpufence_spin_ns"));
  BeginToEnd(ReleasePrimary, nullptr);
  unsigned long long ns = 2 * kLongNs;
  void* params[] = {&ns};
  MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NewStream(), params, nullptr));
  BeginToEnd(Destroy, &primary);
  while (ends_under_way.load() != 0) usleep(500);
  facts.Code("code", primary.rc);
  MUST(cuCtxSynchronize());
}

void Waits(const Gpu& gpu, Facts& facts) {
  CUstream stream = NewStream();
  CUdeviceptr flag = 0;
  MUST(cuMemAllocManaged(&flag, 4, CU_MEM_ATTACH_GLOBAL));
  auto* seen = reinterpret_cast<volatile cuuint32_t*>(flag);
  *seen = 0;
  for (cuuint32_t round = 1; round <= 5; ++round) {
    MUST(gpu.Spin(stream, kMs));
    MUST(cuStreamWaitValue32(stream, flag, round, CU_STREAM_WAIT_VALUE_GEQ));
    MUST(gpu.Spin(stream, kMs));
    usleep(100'000);
    *seen = round;
  }
  MUST(cuStreamSynchronize(stream));
  TellWhenPaid(facts, NowUs());
}

void BehindEndless(const Gpu& gpu, Facts& facts) {
  constexpr unsigned long long kEndlessNs = 60'000 * kMs;
  CUstream stream = NewStream();
  const double end_us = NowUs() + static_cast<double>(kEndlessNs) / 1e3;
  MUST(gpu.Spin(NewStream(), kEndlessNs, kWholeGpu));
  double launches = 0;
  for (; NowUs() < end_us; ++launches) MUST(gpu.Spin(stream, 20 * kMs, kWholeGpu));
  facts.Say("launches", launches);
}

struct Callback {
  const Gpu* gpu;
  CUstream stream;
  CUresult rc;
};

void LaunchInCallback(void* argument) {
  auto* callback = static_cast<Callback*>(argument);
  callback->rc = callback->gpu->Spin(callback->stream, kUs);
}

// Behind enough work for the container to owe when the function is called.
void FromHostFunction(const Gpu& gpu, Facts& facts) {
  CUstream stream = NewStream();
  Callback callback = {&gpu, NewStream(), CUDA_SUCCESS};
  MUST(gpu.Spin(stream, 20 * kMs));
  MUST(cuLaunchHostFunc(stream, LaunchInCallback, &callback));
  const CUresult rc = cuStreamSynchronize(stream);
  facts.Code("launch", callback.rc);
  facts.Code("code", rc);
}

void* LaunchForEver(void* gpu) {
  const Gpu& held = *static_cast<const Gpu*>(gpu);
  MUST(cuCtxSetCurrent(held.context));
  CUstream stream = NewStream();
  for (;;) {
    if (held.Spin(stream, kLongNs) != CUDA_SUCCESS) return nullptr;
  }
}

int ExitWhileHeld(Gpu* gpu) {
  pthread_t thread;
  if (pthread_create(&thread, nullptr, LaunchForEver, gpu) != 0) return 1;
  usleep(200'000);
  return 0;
}

int Fork(const Gpu& gpu) {
  MUST(gpu.Spin(NewStream(), kMs));
  const pid_t child = fork();
  if (child == 0) exit(cuCtxSynchronize() == CUDA_SUCCESS ? 9 : 7);
  int status = 0;
  waitpid(child, &status, 0);
  MUST(cuCtxSynchronize());
  return WIFEXITED(status) && WEXITSTATUS(status) == 7 ? 0 : 1;
}

unsigned Threads() {
  unsigned count = 0;
  DIR* folder = opendir("/proc/self/task");
  while (const dirent* entry = readdir(folder)) count += entry->d_name[0] != '.';
  closedir(folder);
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  Gpu gpu;
  const char* what = argv[1];
  if (strcmp(what, "exit") == 0) return ExitWhileHeld(&gpu);
  if (strcmp(what, "fork") == 0) return Fork(gpu);
  Facts facts;
  if (strcmp(what, "capture") == 0) {
    Capture(gpu, facts);
  } else if (strcmp(what, "threads") == 0) {
    MUST(gpu.Spin(nullptr, kUs));
    MUST(cuCtxSynchronize());
    facts.Say("threads", Threads());
  } else if (strcmp(what, "callback") == 0) {
    FromHostFunction(gpu, facts);
  } else if (strcmp(what, "twice") == 0) {
    EndTwice(gpu, facts);
  } else if (strcmp(what, "endless") == 0) {
    BehindEndless(gpu, facts);
  } else if (strcmp(what, "waits") == 0) {
    Waits(gpu, facts);
  } else {
    EndOf(what, gpu, facts);
  }
  return 0;
}
