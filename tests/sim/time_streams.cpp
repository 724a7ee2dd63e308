// What events report about kernels in one, two and default streams.
// link: cuda
#include "support/time_program.h"

using namespace timing;

namespace {

// Everything below is put behind a plug, so that no gap depends on how fast this program runs.
void Plug(const Gpu& gpu, CUstream stream) { MUST(gpu.Spin(stream, 20 * kMs)); }

void OneStream(const Gpu& gpu, Facts& facts) {
  CUstream stream = NewStream();
  Plug(gpu, stream);
  CUevent start = Mark(stream);
  for (int i = 0; i < 10; ++i) MUST(gpu.Spin(stream, 150 * kUs));
  CUevent spun = Mark(stream);
  MUST(cuLaunchKernel(gpu.Function("named_150us"), 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
  CUevent named = Mark(stream);
  MUST(cuLaunchKernel(gpu.Function("plain"), 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
  CUevent plain = Mark(stream);
  facts.Code("query while busy", cuStreamQuery(stream));
  facts.Code("event while busy", cuEventQuery(plain));
  facts.Say("ten of 150 us", ElapsedUs(start, spun));
  facts.Say("named 150 us", ElapsedUs(spun, named));
  facts.Say("undeclared", ElapsedUs(named, plain));
  facts.Code("query when done", cuStreamQuery(stream));
}

// Two kernels side by side if `blocks` of each fit, else one after the other.
double TwoStreams(const Gpu& gpu, unsigned blocks) {
  CUstream left = NewStream();
  CUstream right = NewStream();
  Plug(gpu, left);
  CUevent start = Mark(left);
  MUST(cuStreamWaitEvent(right, start, 0));
  MUST(gpu.Spin(left, kMs, blocks));
  MUST(gpu.Spin(right, kMs, blocks));
  CUevent joined = NewEvent();
  MUST(cuEventRecord(joined, right));
  MUST(cuStreamWaitEvent(left, joined, 0));
  return ElapsedUs(start, Mark(left));
}

// A legacy kernel between two in another stream; all three in a row, or the legacy one beside them.
double AroundLegacy(const Gpu& gpu, unsigned flags) {
  CUstream stream = NewStream(flags);
  Plug(gpu, stream);
  CUevent start = Mark(stream);
  MUST(gpu.Spin(stream, kMs));
  MUST(gpu.Spin(nullptr, 3 * kMs));
  MUST(gpu.Spin(stream, kMs));
  return ElapsedUs(start, Mark(stream));
}

void Priorities(const Gpu& gpu, Facts& facts) {
  CUstream low = nullptr;
  CUstream high = nullptr;
  CUstream clamped = nullptr;
  MUST(cuStreamCreateWithPriority(&low, CU_STREAM_NON_BLOCKING, 0));
  MUST(cuStreamCreateWithPriority(&high, CU_STREAM_NON_BLOCKING, -2));
  MUST(cuStreamCreateWithPriority(&clamped, CU_STREAM_NON_BLOCKING, -100));
  int priority = 0;
  MUST(cuStreamGetPriority(clamped, &priority));
  facts.Say("priority clamped", priority);
  Plug(gpu, nullptr);
  CUevent start = Mark(nullptr);
  MUST(cuStreamWaitEvent(low, start, 0));
  MUST(cuStreamWaitEvent(high, start, 0));
  MUST(gpu.Spin(low, kMs, 100'000));
  MUST(gpu.Spin(high, kMs, 100'000));
  facts.Say("high priority ends", ElapsedUs(start, Mark(high)));
  facts.Say("low priority ends", ElapsedUs(start, Mark(low)));
}

}  // namespace

int main() {
  const Gpu gpu;
  Facts facts;
  OneStream(gpu, facts);
  facts.Say("small kernels overlap", TwoStreams(gpu, 1));
  facts.Say("large kernels queue", TwoStreams(gpu, 100'000));
  facts.Say("blocking stream", AroundLegacy(gpu, 0));
  facts.Say("non-blocking stream", AroundLegacy(gpu, CU_STREAM_NON_BLOCKING));
  Priorities(gpu, facts);
  return 0;
}
