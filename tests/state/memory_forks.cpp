// link: cuda
// flags: -pthread
// A process that makes children while other threads of it allocate and free.
//
//   memory_forks WAY CHILDREN THREADS    WAY: fork, exec (after fork), spawn, vfork; says
//                                        {"failed": children that did not do as they should}, with
//                                        everything given back, and waits for a line
//   memory_forks child                   a process of its own: takes 4 MiB and gives them back
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "support/sim_program.h"

extern char** environ;

namespace {

using namespace simtest;  // NOLINT(google-build-using-namespace): a test program's own helpers

std::atomic<bool> stop{false};
const char* own_path = nullptr;

void Churn(CUcontext context, unsigned seed) {
  MUST(cuCtxSetCurrent(context));
  while (!stop.load()) {
    CUdeviceptr address = 0;
    const CUresult rc =
        cuMemAlloc_v2(&address, 1 + static_cast<size_t>(rand_r(&seed)) % (4 * kMiB));
    if (rc == CUDA_SUCCESS) MUST(cuMemFree_v2(address));
  }
}

int BeChild() {
  CUdeviceptr address = 0;
  UseDevice(0);
  MUST(cuMemAlloc_v2(&address, 4 * kMiB));
  MUST(cuMemFree_v2(address));
  return 0;
}

int ExecChild() {
  execl(own_path, own_path, "child", nullptr);
  return 99;
}

// The driver is of no use in a child, and says so; what the parent holds is none of its business.
pid_t ForkChild() {
  const pid_t child = fork();
  if (child != 0) return child;
  CUdeviceptr address = 0;
  const bool told = cuMemAlloc_v2(&address, kMiB) == CUDA_ERROR_NOT_INITIALIZED &&
                    cuMemFree_v2(1) == CUDA_ERROR_NOT_INITIALIZED;
  _exit(told ? 0 : 98);
}

pid_t ForkAndExec() {
  const pid_t child = fork();
  if (child == 0) _exit(ExecChild());
  return child;
}

pid_t Spawn() {
  const char* const arguments[] = {own_path, "child", nullptr};
  pid_t child = -1;
  posix_spawn(&child, own_path, nullptr, nullptr, const_cast<char**>(arguments), environ);
  return child;
}

// A child in its parent's memory, which therefore must not be taken for a new process.
pid_t CloneAndExec() {
  alignas(16) static char stack[64 * 1024];
  const auto body = [](void*) { return ExecChild(); };
  return clone(body, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, nullptr);
}

struct Way {
  const char* name;
  pid_t (*start)();
};
constexpr Way kWays[] = {
    {"fork", ForkChild}, {"exec", ForkAndExec}, {"spawn", Spawn}, {"vfork", CloneAndExec}};

void MakeChildren(const Way& way, int count, unsigned thread_count) {
  const CUcontext context = UseDevice(0);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < thread_count; ++i) threads.emplace_back(Churn, context, i + 1);
  uint64_t failed = 0;
  for (int i = 0; i < count; ++i) {
    const pid_t child = way.start();
    int status = 0;
    if (child <= 0 || waitpid(child, &status, 0) != child || status != 0) ++failed;
  }
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
  CUdeviceptr address = 0;
  if (cuMemAlloc_v2(&address, uint64_t{1} << 40) != CUDA_ERROR_OUT_OF_MEMORY) ++failed;
  Facts facts;
  facts.Say("failed", failed);
}

}  // namespace

int main(int argc, char** argv) {
  own_path = argv[0];
  if (argc == 2 && strcmp(argv[1], "child") == 0) return BeChild();
  if (argc != 4) return 2;
  for (const Way& way : kWays) {
    if (strcmp(way.name, argv[1]) == 0) {
      MakeChildren(way, atoi(argv[2]), static_cast<unsigned>(atoi(argv[3])));
    }
  }
  AwaitLine();
  return 0;
}
