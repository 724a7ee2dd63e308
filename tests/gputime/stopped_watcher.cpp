// A program of which one thread alone is stopped, the one that watches the GPU, as by a debugger.
// link: cuda
// flags: -pthread
//
//   stopped_watcher KERNEL_US MS   launches for so long while it is stopped
//
// Prints {"share": percent, "longest_ms": of a launch}; ends with 77 where nothing may be stopped.
#include <dirent.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "support/time_program.h"

using namespace timing;

namespace {

double NowMs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

// 0: there is none.
pid_t WatcherOf(pid_t process) {
  const std::string tasks = "/proc/" + std::to_string(process) + "/task/";
  pid_t watcher = 0;
  DIR* folder = opendir(tasks.c_str());
  while (const dirent* entry = readdir(folder)) {
    char name[32] = "";
    FILE* file = fopen((tasks + entry->d_name + "/comm").c_str(), "r");
    if (file == nullptr) continue;
    if (fgets(name, sizeof name, file) != nullptr && strcmp(name, "gpufence\n") == 0) {
      watcher = atoi(entry->d_name);
    }
    fclose(file);
  }
  closedir(folder);
  return watcher;
}

// A child that stops it, outside of the driver's locks and ours: in its sleep.
pid_t StopWatcher() {
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  usleep(50'000);
  int done[2];
  if (pipe(done) != 0) exit(1);
  const pid_t watched = getpid();
  const pid_t child = fork();
  if (child == 0) {
    const pid_t watcher = WatcherOf(watched);
    char stopped = 0;
    if (watcher != 0 && ptrace(PTRACE_SEIZE, watcher, 0, 0) == 0 &&
        ptrace(PTRACE_INTERRUPT, watcher, 0, 0) == 0) {
      stopped = waitpid(watcher, nullptr, __WALL) == watcher ? 1 : 0;
    }
    if (write(done[1], &stopped, 1) == 1) pause();
    _exit(0);
  }
  char stopped = 0;
  if (read(done[0], &stopped, 1) != 1 || stopped == 0) {
    kill(child, SIGKILL);
    exit(77);
  }
  return child;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const double kernel_us = strtod(argv[1], nullptr);
  const double ms = strtod(argv[2], nullptr);
  const Gpu gpu;
  CUstream stream = NewStream();
  const auto launch = [&] {
    MUST(gpu.Spin(stream, static_cast<unsigned long long>(kernel_us) * kUs, kWholeGpu));
  };
  launch();
  MUST(cuStreamSynchronize(stream));
  const pid_t child = StopWatcher();

  double launches = 0;
  double longest_ms = 0;
  const double begin_ms = NowMs();
  for (double now_ms = begin_ms; now_ms < begin_ms + ms; ++launches) {
    launch();
    longest_ms = std::max(longest_ms, NowMs() - now_ms);
    now_ms = NowMs();
  }
  MUST(cuStreamSynchronize(stream));
  const double share = launches * kernel_us / 10 / (NowMs() - begin_ms);
  kill(child, SIGKILL);

  Facts facts;
  facts.Say("share", share);
  facts.Say("longest_ms", longest_ms);
  return 0;
}
