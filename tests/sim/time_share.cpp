// One tenant among others: keeps a stream busy with kernels and says how long they took.
// link: cuda
//
//   time_share KERNELS KERNEL_US [DELAY_US]
//
// Says "ready" on stdout when it can begin, begins when a line arrives on stdin and says
// "launched"; given DELAY_US it begins after that time and says neither. Then prints its GPU's time
// from first to last kernel.
#include <unistd.h>

#include "support/time_program.h"

using namespace timing;

namespace {

void Say(const char* word) {
  printf("%s\n", word);
  fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const int kernels = atoi(argv[1]);
  const unsigned long long kernel_ns = strtoull(argv[2], nullptr, 10) * kUs;
  const Gpu gpu;
  CUstream stream = NewStream();
  MUST(gpu.Spin(stream, kUs));
  MUST(cuStreamSynchronize(stream));
  const bool is_told = argc == 3;
  if (is_told) {
    Say("ready");
    char line[16];
    if (fgets(line, sizeof(line), stdin) == nullptr) return 3;
  } else {
    usleep(static_cast<useconds_t>(atoi(argv[3])));
  }

  CUevent start = Mark(stream);
  for (int i = 0; i < kernels; ++i) MUST(gpu.Spin(stream, kernel_ns, 100'000));
  CUevent end = Mark(stream);
  if (is_told) Say("launched");
  const double us = ElapsedUs(start, end);
  Facts facts;
  facts.Say("us", us);
  return 0;
}
