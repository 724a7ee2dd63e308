// Programs that launch slower than the GPU works, so that their launches wait on the GPU for
// budget, and what they may do while it stands there. Virtual time.
// link: cuda
// flags: -pthread
//
//   cores_holds works       launches for a second, and waits for all of it now and then
//   cores_holds leaves      ends without a wait
//   cores_holds destroys    ends its stream and its context
//   cores_holds handshake   a stream waits for a value that another one writes behind its launches
//   cores_holds threads     four threads launch into one stream and wait for it
//   cores_holds queues      launches as many as go without waiting
//
// Each first works until it is known that the GPU waits for it. They print {"ms": what the case
// took, "launches": that it made, "most_us": the longest of these calls}.
#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <atomic>

#include "support/time_program.h"

using namespace timing;

namespace {

constexpr unsigned long long kKernelNs = 5 * kUs;
constexpr double kApartUs = 20;

double NowUs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

void Rest(double us) {
  timespec time = {};
  time.tv_nsec = static_cast<long>(us * 1e3);
  nanosleep(&time, nullptr);
}

struct Program {
  const Gpu& gpu;
  CUstream stream;
  unsigned launches = 0;
  double most_us = 0;

  void Launch() {
    const double begin_us = NowUs();
    MUST(gpu.Spin(stream, kKernelNs, kWholeGpu));
    most_us = std::max(most_us, NowUs() - begin_us);
    ++launches;
    Rest(kApartUs);
  }

  void Wait() const { MUST(cuStreamSynchronize(stream)); }

  // More than may be used at once is owed, and probes have told of the pauses.
  void WorkFor(double ms) {
    for (const double until_us = NowUs() + ms * 1e3; NowUs() < until_us;) {
      for (int i = 0; i < 100; ++i) Launch();
      Wait();
    }
  }
};

void Works(Program* program) { program->WorkFor(1'000); }

void Leaves(Program* program) {
  for (int i = 0; i < 50; ++i) program->Launch();
}

void Destroys(Program* program) {
  for (int i = 0; i < 50; ++i) program->Launch();
  MUST(cuStreamDestroy_v2(program->stream));
  MUST(cuCtxDestroy_v2(program->gpu.context));
}

void Handshake(Program* program) {
  CUdeviceptr flag = 0;
  MUST(cuMemAllocManaged(&flag, 4, CU_MEM_ATTACH_GLOBAL));
  *reinterpret_cast<volatile cuuint32_t*>(flag) = 0;
  CUstream waiting = NewStream();
  for (cuuint32_t round = 1; round <= 20; ++round) {
    MUST(cuStreamWaitValue32(waiting, flag, round, CU_STREAM_WAIT_VALUE_GEQ));
    MUST(program->gpu.Spin(waiting, kKernelNs, kWholeGpu));
    for (int i = 0; i < 50; ++i) program->Launch();
    MUST(cuStreamWriteValue32(program->stream, flag, round, 0));
    MUST(cuStreamSynchronize(waiting));
  }
}

std::atomic<unsigned> threads_done{0};

void* LaunchAndWait(void* shared) {
  const auto* program = static_cast<Program*>(shared);
  MUST(cuCtxSetCurrent(program->gpu.context));
  Program own = {program->gpu, program->stream};
  own.WorkFor(100);
  threads_done.fetch_add(1);
  return nullptr;
}

void Threads(Program* program) {
  pthread_t threads[4];
  for (pthread_t& thread : threads) {
    if (pthread_create(&thread, nullptr, LaunchAndWait, program) != 0) exit(2);
  }
  while (threads_done < 4) Rest(kApartUs);  // a join is no wait in virtual time
  for (pthread_t thread : threads) pthread_join(thread, nullptr);
}

// Until one of the launches waits.
void Queues(Program* program) {
  constexpr double kWaitedUs = 500;
  while (program->most_us < kWaitedUs && program->launches < 2'000) program->Launch();
}

struct Way {
  const char* name;
  void (*run)(Program*);
};

constexpr Way kWays[] = {{"works", Works},         {"leaves", Leaves},   {"destroys", Destroys},
                         {"handshake", Handshake}, {"threads", Threads}, {"queues", Queues}};

}  // namespace

int main(int argc, char** argv) {
  for (const Way& way : kWays) {
    if (argc != 2 || strcmp(argv[1], way.name) != 0) continue;
    const Gpu gpu;
    Program program = {gpu, NewStream()};
    program.WorkFor(1'000);
    program.launches = 0;
    program.most_us = 0;
    const double begin_us = NowUs();
    way.run(&program);
    Facts facts;
    facts.Say("ms", (NowUs() - begin_us) / 1e3);
    facts.Say("launches", program.launches);
    facts.Say("most_us", program.most_us);
    return 0;
  }
  return 2;
}
