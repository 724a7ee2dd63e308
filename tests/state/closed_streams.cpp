// link: cuda
// flags: -Wl,-z,lazy
// A program without standard streams, as daemons are: what the library opens must not get their
// numbers, since prints still go there. The driver has opened its files before, past the library,
// or they would take these numbers. Prints which of 0 to 2 lead to a region.
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "raw_symbol.h"
#include "support/sim_program.h"

int main() {
  void* init = bench::RawSymbol("libcuda.so", "cuInit");
  if (init == nullptr || reinterpret_cast<decltype(&cuInit)>(init)(0) != CUDA_SUCCESS) return 1;
  constexpr int kElsewhere = 40;
  if (dup2(STDOUT_FILENO, kElsewhere) < 0) return 1;
  for (int stream = 0; stream <= STDERR_FILENO; ++stream) close(stream);
  const CUresult rc = cuInit(0);
  bool leads_to_region[STDERR_FILENO + 1] = {};
  for (int stream = 0; stream <= STDERR_FILENO; ++stream) {
    char link[32];
    char target[PATH_MAX] = {};
    snprintf(link, sizeof link, "/proc/self/fd/%d", stream);
    leads_to_region[stream] =
        readlink(link, target, sizeof target - 1) > 0 && strstr(target, "/gpufence-") != nullptr;
  }
  dup2(kElsewhere, STDOUT_FILENO);
  simtest::Facts facts;
  facts.Code("init", rc);
  for (int stream = 0; stream <= STDERR_FILENO; ++stream) {
    char name[8];
    snprintf(name, sizeof name, "%d", stream);
    facts.Say(name, leads_to_region[stream] ? 1 : 0);
  }
  return 0;
}
