// Threads that keep ending what they launch into, under load: nothing may hang, and every kernel
// that was launched is paid for.
// link: cuda
// flags: -pthread
//
//   cores_ends WHAT THREADS KERNEL_US MS
//
// streams: each thread makes a stream, launches into it and destroys it without a wait. spaced: the
// same, and then nothing for as long as two kernels take. contexts: the same as streams with a
// context, its module and two streams. primary: each retains the primary context, launches and
// releases it. reset: the same, and one of them resets it while kernels of all are under way and
// nobody makes a call. races: they do make calls; then they find it gone and begin anew. mixed:
// threads that end streams, contexts and the primary context, side by side. lingers: launches once
// and then does nothing.
//
// Prints {"share": percent of the time until all was paid for, "launches", "ended", "gone": calls
// that failed since somebody else reset the device, "us"}.
#include <limits.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "support/time_program.h"

using namespace timing;

namespace {

constexpr unsigned kMostThreads = 6;
constexpr unsigned kBatch = 5;  // kernels, at most, before what they run in ends

double NowUs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

std::atomic<unsigned> launches{0};
std::atomic<unsigned> ended{0};
std::atomic<unsigned> gone{0};
std::atomic<unsigned> running{0};  // threads
unsigned long long kernel_ns = 0;
double until_us = 0;

// Threads between calls that they make in the primary context; the sign bit keeps them out.
std::atomic<int> inside{0};
constexpr int kShut = INT_MIN;

// No lock: where time is virtual, nobody may block unseen.
class Inside {
 public:
  Inside() {
    for (;;) {
      int seen = inside.load();
      if (seen >= 0 && inside.compare_exchange_strong(seen, seen + 1)) return;
      usleep(20);
    }
  }
  ~Inside() { inside.fetch_sub(1); }
};

void ResetAlone(CUdevice device) {
  inside.fetch_or(kShut);
  while (inside.load() != kShut) usleep(20);
  MUST(cuDevicePrimaryCtxReset_v2(device));
  inside.store(0);
}

// False when the context has gone meanwhile.
bool Spin(CUfunction spin, CUstream stream) {
  void* params[] = {&kernel_ns};
  const CUresult rc = cuLaunchKernel(spin, kWholeGpu, 1, 1, 1, 1, 1, 0, stream, params, nullptr);
  (rc == CUDA_SUCCESS ? launches : gone).fetch_add(1);
  return rc == CUDA_SUCCESS;
}

bool LoadSpin(CUfunction* spin) {
  CUmodule module = nullptr;
  const bool loaded = cuModuleLoadData(&module, kKernels) == CUDA_SUCCESS &&
                      cuModuleGetFunction(spin, module, "gpufence_spin_ns") == CUDA_SUCCESS;
  if (!loaded) gone.fetch_add(1);
  return loaded;
}

void InStreams(const Gpu& gpu, unsigned round) {
  MUST(cuCtxSetCurrent(gpu.context));
  CUstream stream = NewStream();
  for (unsigned i = 0; i <= round % kBatch; ++i) Spin(gpu.spin, stream);
  MUST(cuStreamDestroy_v2(stream));
}

void InContexts(const Gpu& gpu, unsigned round) {
  CUcontext context = nullptr;
  CUfunction spin = nullptr;
  MUST(cuCtxCreate_v2(&context, 0, gpu.device));
  if (!LoadSpin(&spin)) exit(1);
  CUstream streams[] = {NewStream(), NewStream(), nullptr};
  for (unsigned i = 0; i <= round % kBatch; ++i) Spin(spin, streams[(round + i) % 3]);
  MUST(cuCtxDestroy_v2(context));
}

void InPrimary(const Gpu& gpu, unsigned round) {
  CUcontext primary = nullptr;
  CUfunction spin = nullptr;
  CUstream stream = nullptr;
  MUST(cuDevicePrimaryCtxRetain(&primary, gpu.device));
  MUST(cuCtxSetCurrent(primary));
  const bool is_there =
      LoadSpin(&spin) && cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
  for (unsigned i = 0; is_there && i <= round % kBatch; ++i) {
    if (!Spin(spin, i % 2 == 0 ? stream : nullptr)) break;
  }
  cuDevicePrimaryCtxRelease_v2(gpu.device);  // where another reset it, there is nothing to give
}

struct Worker {
  const Gpu* gpu;
  const char* what;
  unsigned number;
};

void InPrimaryWithResets(const Worker& worker, const char* what, unsigned round) {
  const bool resets = worker.number == 0 && round % 2 == 0;
  if (strcmp(what, "races") == 0) {
    InPrimary(*worker.gpu, round);
    if (resets) MUST(cuDevicePrimaryCtxReset_v2(worker.gpu->device));
  } else {
    {
      const Inside inside_calls;
      InPrimary(*worker.gpu, round);
    }
    if (resets && strcmp(what, "reset") == 0) ResetAlone(worker.gpu->device);
  }
}

void* Work(void* argument) {
  const Worker& worker = *static_cast<const Worker*>(argument);
  constexpr const char* kKinds[] = {"streams", "contexts", "primary"};
  const bool mixed = strcmp(worker.what, "mixed") == 0;
  const char* what = mixed ? kKinds[worker.number % 3] : worker.what;
  for (unsigned round = worker.number; NowUs() < until_us; ++round, ended.fetch_add(1)) {
    if (strcmp(what, "streams") == 0 || strcmp(what, "spaced") == 0) {
      InStreams(*worker.gpu, round);
      if (strcmp(what, "spaced") == 0) usleep(static_cast<useconds_t>(2 * kernel_ns / kUs));
    } else if (strcmp(what, "contexts") == 0) {
      InContexts(*worker.gpu, round);
    } else if (strcmp(what, "lingers") == 0) {
      MUST(cuCtxSetCurrent(worker.gpu->context));
      Spin(worker.gpu->spin, NewStream());
      while (NowUs() < until_us) usleep(1000);
    } else {
      InPrimaryWithResets(worker, what, round);
    }
  }
  running.fetch_sub(1);
  return nullptr;
}

// Not joined: where time is virtual, nobody may block unseen.
void RunWorkers(const Gpu& gpu, const char* what, unsigned threads) {
  static Worker workers[kMostThreads];
  running.store(threads);
  for (unsigned i = 0; i < threads; ++i) {
    pthread_t thread;
    workers[i] = {&gpu, what, i};
    if (pthread_create(&thread, nullptr, Work, &workers[i]) != 0) exit(1);
    pthread_detach(thread);
  }
  while (running.load() != 0) usleep(500);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const unsigned threads = static_cast<unsigned>(atoi(argv[2]));
  if (threads == 0 || threads > kMostThreads) return 2;
  Gpu gpu;
  kernel_ns = strtoull(argv[3], nullptr, 10) * kUs;
  const double begin_us = NowUs();
  until_us = begin_us + strtod(argv[4], nullptr) * 1e3;
  RunWorkers(gpu, argv[1], threads);
  MUST(cuCtxSetCurrent(gpu.context));
  MUST(cuCtxSynchronize());
  const double busy_us = launches * static_cast<double>(kernel_ns) / 1e3;
  Spin(gpu.spin, nullptr);  // goes when everything before it is paid for
  const double us = NowUs() - begin_us;
  MUST(cuCtxSynchronize());

  Facts facts;
  facts.Say("share", 100 * busy_us / us);
  facts.Say("launches", launches);
  facts.Say("ended", ended);
  facts.Say("gone", gone);
  facts.Say("us", us);
  return 0;
}
