// link: cuda
// Fights for memory that only one process can have: sim_duel BYTES ROUNDS FILE, after a line of
// stdin.
//
// The winner of a round locks FILE while it holds the bytes; finding it locked means that two hold
// what only one can.  {"won": rounds won, "doubled": rounds in which another held them too}
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "support/sim_program.h"

int main(int argc, char** argv) {
  using namespace simtest;  // NOLINT(google-build-using-namespace): a test program's own helpers
  if (argc != 4) return 2;
  const uint64_t bytes = strtoull(argv[1], nullptr, 10);
  const uint64_t rounds = strtoull(argv[2], nullptr, 10);
  const int fd = open(argv[3], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  UseDevice(0);
  printf("ready\n");
  fflush(stdout);
  AwaitLine();
  uint64_t won = 0;
  uint64_t doubled = 0;
  for (uint64_t round = 0; round < rounds; ++round) {
    CUdeviceptr address = 0;
    if (cuMemAlloc_v2(&address, bytes) != CUDA_SUCCESS) continue;
    ++won;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
      flock(fd, LOCK_UN);
    } else {
      ++doubled;
    }
    MUST(cuMemFree_v2(address));
  }
  Facts facts;
  facts.Say("won", won);
  facts.Say("doubled", doubled);
  return 0;
}
