// One tenant among others: keeps a stream busy with kernels and says how long they took.
// link: cuda
//
//   time_share KERNELS KERNEL_US [STREAM_OF_TINY]
//
// Says "ready" on stdout when it can begin and begins when a line arrives on stdin. Then prints
// its GPU's time from first to last kernel, and whether the last events were in order.
#include "time_program.h"

using namespace timing;

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const int kernels = atoi(argv[1]);
  const unsigned long long kernel_ns = strtoull(argv[2], nullptr, 10) * kUs;
  const Gpu gpu;
  CUstream stream = NewStream();
  MUST(gpu.Spin(stream, kUs));
  MUST(cuStreamSynchronize(stream));
  printf("ready\n");
  fflush(stdout);
  char line[16];
  if (fgets(line, sizeof(line), stdin) == nullptr) return 3;

  CUevent start = Mark(stream);
  for (int i = 0; i < kernels; ++i) MUST(gpu.Spin(stream, kernel_ns, 100'000));
  CUevent end = Mark(stream);
  printf("launched\n");
  fflush(stdout);
  const double us = ElapsedUs(start, end);
  Facts facts;
  facts.Say("us", us);
  return 0;
}
