// A process that makes children while kernels of it are under way and other threads of it are held.
// link: cuda
// flags: -pthread
//
//   cores_forks WAY CHILDREN KERNEL_US MS    WAY: fork, exec (after fork), spawn, vfork. Each child
//                                            launches for MS, all at the same time; after fork
//                                            alone the driver is of no use in it, and says so
//   cores_forks child FD KERNEL_US MS        a process of its own: writes what it did to FD
//
// Prints {"share": of all together, "launches", "of_children", "watchers": threads of the children
// that watch the GPU, "own_watchers", "failed": children that did not do as they should}.
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <vector>

#include "support/time_program.h"

extern char** environ;

using namespace timing;

namespace {

struct Done {
  unsigned launches;
  unsigned watchers;
};

const char* own_path = nullptr;
unsigned long long kernel_ns = 0;
double run_ms = 0;
std::atomic<bool> stop{false};
std::atomic<unsigned> launches{0};

double NowUs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

// Threads of the process that the library made.
unsigned Watchers() {
  unsigned count = 0;
  DIR* folder = opendir("/proc/self/task");
  while (const dirent* entry = readdir(folder)) {
    char name[32] = "";
    FILE* file = fopen((std::string("/proc/self/task/") + entry->d_name + "/comm").c_str(), "r");
    if (file == nullptr) continue;
    if (fgets(name, sizeof name, file) != nullptr) count += strcmp(name, "gpufence\n") == 0;
    fclose(file);
  }
  closedir(folder);
  return count;
}

void* LaunchUntilStopped(void* argument) {
  const Gpu& gpu = *static_cast<const Gpu*>(argument);
  MUST(cuCtxSetCurrent(gpu.context));
  CUstream stream = NewStream();
  while (!stop.load()) {
    MUST(gpu.Spin(stream, kernel_ns, kWholeGpu));
    launches.fetch_add(1);
  }
  return nullptr;
}

int BeChild(int fd) {
  const Gpu gpu;
  const double until_us = NowUs() + run_ms * 1e3;
  Done done = {};
  for (CUstream stream = NewStream(); NowUs() < until_us; ++done.launches) {
    MUST(gpu.Spin(stream, kernel_ns, kWholeGpu));
  }
  MUST(cuCtxSynchronize());
  done.watchers = Watchers();
  return write(fd, &done, sizeof done) == sizeof done ? 0 : 1;
}

struct Child {
  std::string fd, kernel_us, ms;
  const char* arguments[6];

  explicit Child(int to, char** words) : fd(std::to_string(to)), kernel_us(words[3]), ms(words[4]) {
    const char* all[] = {own_path, "child", fd.c_str(), kernel_us.c_str(), ms.c_str(), nullptr};
    memcpy(arguments, all, sizeof all);
  }
  char* const* argv() const { return const_cast<char* const*>(arguments); }
};

pid_t Fork(const Child&, const Gpu& gpu, int fd) {
  const pid_t child = fork();
  if (child != 0) return child;
  const Done done = {0, Watchers()};
  const bool told = gpu.Spin(nullptr, kernel_ns) == CUDA_ERROR_NOT_INITIALIZED;
  _exit(told && write(fd, &done, sizeof done) == sizeof done ? 0 : 98);
}

pid_t ForkAndExec(const Child& how, const Gpu&, int) {
  const pid_t child = fork();
  if (child == 0) _exit(execv(own_path, how.argv()));
  return child;
}

pid_t Spawn(const Child& how, const Gpu&, int) {
  pid_t child = -1;
  posix_spawn(&child, own_path, nullptr, nullptr, how.argv(), environ);
  return child;
}

// In its parent's memory until it has another program.
pid_t CloneAndExec(const Child& how, const Gpu&, int) {
  alignas(16) static char stack[64 * 1024];
  const auto body = [](void* argument) {
    return execv(own_path, static_cast<const Child*>(argument)->argv());
  };
  return clone(body, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD,
               const_cast<Child*>(&how));
}

using Start = pid_t (*)(const Child&, const Gpu&, int);

Start WayOf(const char* name) {
  if (strcmp(name, "fork") == 0) return Fork;
  if (strcmp(name, "exec") == 0) return ForkAndExec;
  if (strcmp(name, "spawn") == 0) return Spawn;
  return strcmp(name, "vfork") == 0 ? CloneAndExec : nullptr;
}

int BeParent(char** words) {
  const Start start = WayOf(words[1]);
  int ends[2];
  if (start == nullptr || pipe(ends) != 0) return 2;
  const Gpu gpu;
  const double begin_us = NowUs();
  pthread_t threads[2];
  for (pthread_t& thread : threads) {
    if (pthread_create(&thread, nullptr, LaunchUntilStopped, const_cast<Gpu*>(&gpu)) != 0) return 1;
  }
  usleep(50'000);  // until both are held
  const Child how(ends[1], words);
  std::vector<pid_t> children(static_cast<size_t>(atoi(words[2])));
  for (pid_t& child : children) child = start(how, gpu, ends[1]);
  usleep(static_cast<useconds_t>(run_ms * 1e3));
  unsigned failed = 0;
  Done sum = {};
  for (const pid_t child : children) {
    int status = 0;
    Done done = {};
    if (child <= 0 || waitpid(child, &status, 0) != child || status != 0 ||
        read(ends[0], &done, sizeof done) != sizeof done) {
      ++failed;
      break;
    }
    sum.launches += done.launches;
    sum.watchers += done.watchers;
  }
  stop.store(true);
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  MUST(cuCtxSynchronize());
  const double all = launches.load() + sum.launches;
  MUST(gpu.Spin(nullptr, kUs));  // goes when everything before it is paid for
  const double us = NowUs() - begin_us;
  MUST(cuCtxSynchronize());

  Facts facts;
  facts.Say("share", 100 * all * static_cast<double>(kernel_ns) / 1e3 / us);
  facts.Say("launches", launches);
  facts.Say("of_children", sum.launches);
  facts.Say("watchers", sum.watchers);
  facts.Say("own_watchers", Watchers());
  facts.Say("failed", failed);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  own_path = argv[0];
  kernel_ns = strtoull(argv[3], nullptr, 10) * kUs;
  run_ms = strtod(argv[4], nullptr);
  return strcmp(argv[1], "child") == 0 ? BeChild(atoi(argv[2])) : BeParent(argv);
}
