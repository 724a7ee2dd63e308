// Work that waits for the program: host functions, callbacks, values in memory, a full queue.
// link: cuda
// flags: -pthread
#include <pthread.h>
#include <unistd.h>

#include <atomic>

#include "support/time_program.h"

using namespace timing;

namespace {

std::atomic<int> step{0};
std::atomic<int> host_saw{-1};
std::atomic<int> callback_saw{-1};

void WriteSeven(void* argument) {
  host_saw = step.load();
  *static_cast<int*>(argument) = 7;
}

void Callback(CUstream, CUresult status, void*) { callback_saw = static_cast<int>(status); }

// A copy behind a host function must see what the function wrote, although copies are prepared when
// they are queued.
void HostFunctions(const Gpu& gpu, Facts& facts) {
  CUstream stream = NewStream();
  int* source = nullptr;
  int result = 0;
  CUdeviceptr middle = 0;
  MUST(cuMemHostAlloc(reinterpret_cast<void**>(&source), sizeof(int), 0));
  MUST(cuMemAlloc_v2(&middle, sizeof(int)));
  *source = 1;
  MUST(gpu.Spin(stream, 2 * kMs));
  MUST(cuLaunchHostFunc(stream, WriteSeven, source));
  MUST(cuMemcpyHtoDAsync_v2(middle, source, sizeof(int), stream));
  MUST(cuMemcpyDtoHAsync_v2(&result, middle, sizeof(int), stream));
  MUST(cuStreamAddCallback(stream, Callback, nullptr, 0));
  MUST(cuStreamSynchronize(stream));
  facts.Say("copied behind the function", result);
  facts.Say("function ran", host_saw.load());
  facts.Say("callback status", callback_saw.load());
}

void Values(const Gpu& gpu, Facts& facts) {
  CUstream stream = NewStream();
  CUdeviceptr flag = 0;
  MUST(cuMemAlloc_v2(&flag, 8));
  MUST(cuMemsetD32_v2(flag, 0, 2));
  MUST(cuStreamWaitValue32_v2(stream, flag, 5, CU_STREAM_WAIT_VALUE_GEQ));
  MUST(gpu.Spin(stream, kMs));
  CUevent end = Mark(stream);
  usleep(20'000);
  facts.Code("held by the value", cuEventQuery(end));
  CUstream other = NewStream();
  MUST(cuStreamWriteValue32_v2(other, flag, 4, 0));
  MUST(cuStreamSynchronize(other));
  usleep(5'000);
  facts.Code("held by too small a value", cuEventQuery(end));
  MUST(cuStreamWriteValue32_v2(other, flag, 6, 0));
  MUST(cuEventSynchronize(end));
  facts.Code("released", cuEventQuery(end));
  facts.Code("odd address", cuStreamWaitValue32_v2(stream, flag + 1, 1, 0));
}

std::atomic<int> launched{0};

void* LaunchMany(void* argument) {
  const Gpu& gpu = *static_cast<const Gpu*>(argument);
  MUST(cuCtxSetCurrent(gpu.context));
  CUstream stream = NewStream();
  for (int i = 0; i < 1'500; ++i) {
    MUST(gpu.Spin(stream, kUs));
    ++launched;
  }
  MUST(cuStreamSynchronize(stream));
  return nullptr;
}

// Behind a long kernel that fills the device the queue fills up and the launch blocks.
void Queue(const Gpu& gpu, Facts& facts) {
  CUstream stream = NewStream();
  MUST(gpu.Spin(stream, 300 * kMs, 100'000));
  pthread_t thread;
  pthread_create(&thread, nullptr, LaunchMany, const_cast<Gpu*>(&gpu));
  usleep(100'000);
  facts.Code("device still full", cuStreamQuery(stream));
  facts.Say("launched before blocking", launched.load());
  pthread_join(thread, nullptr);
  facts.Say("launched in the end", launched.load());
}

}  // namespace

int main() {
  const Gpu gpu;
  Facts facts;
  HostFunctions(gpu, facts);
  Values(gpu, facts);
  Queue(gpu, facts);
  return 0;
}
