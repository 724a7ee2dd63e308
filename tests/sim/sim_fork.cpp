// link: cuda
// What a forked child gets.
//
//   sim_fork after    forks an initialised process: {codes of the child, bytes in use around it}
//   sim_fork before   forks first, then both use the device
//   sim_fork orphan   holds 64 MiB, forks a child that waits for a line; prints "held PID"
#include <sys/wait.h>
#include <unistd.h>

#include "support/sim_program.h"

namespace {

using namespace simtest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint64_t kBytes = 64 * kMiB;

// Runs `body` in a child and returns its exit status.
template <typename Body>
int InChild(Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

void After() {
  UseDevice(0);
  CUdeviceptr address = 0;
  MUST(cuMemAlloc_v2(&address, kBytes));
  const uint64_t before_bytes = UsedBytes();
  Facts facts;
  int count = 0;
  facts.Say("cuInit", static_cast<uint64_t>(InChild([] { return cuInit(0); })));
  facts.Say("cuMemAlloc",
            static_cast<uint64_t>(InChild([&] { return cuMemAlloc_v2(&address, 1024); })));
  facts.Say("cuDeviceGetCount",
            static_cast<uint64_t>(InChild([&] { return cuDeviceGetCount(&count); })));
  facts.Say("changed", UsedBytes() - before_bytes);
}

void Before() {
  const int child_code = InChild([] {
    UseDevice(0);
    CUdeviceptr address = 0;
    return static_cast<int>(cuMemAlloc_v2(&address, kBytes));
  });
  UseDevice(0);
  Facts facts;
  facts.Say("child", static_cast<uint64_t>(child_code));
  facts.Say("used", UsedBytes());
}

void Orphan() {
  UseDevice(0);
  CUdeviceptr address = 0;
  MUST(cuMemAlloc_v2(&address, kBytes));
  int born[2];
  if (pipe(born) != 0) exit(1);
  if (fork() == 0) {  // lets go of what it inherited before it gets here
    if (write(born[1], "x", 1) != 1) _exit(1);
    AwaitLine();
    _exit(0);
  }
  char mark = 0;
  if (read(born[0], &mark, 1) != 1) exit(1);
  printf("held %d\n", static_cast<int>(getpid()));
  fflush(stdout);
  pause();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  if (strcmp(argv[1], "after") == 0) After();
  if (strcmp(argv[1], "before") == 0) Before();
  if (strcmp(argv[1], "orphan") == 0) Orphan();
  return 0;
}
