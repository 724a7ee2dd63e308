// Two threads that make the same first call, one of them in a constructor that the loader runs with
// its lock held: the other one comes first and then needs the loader.
// link: cuda nvml
// flags: -pthread
//
//   first_calls PLUGIN CALL      CALL is cuInit, cuMemAlloc (cuInit was called past every preload),
//                                nvmlInit, or forked: cuMemAlloc in a child
//
// Prints {"made": 2}; a program that hangs prints nothing.
#include "first_calls.h"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <thread>

#include "raw_symbol.h"

namespace {

using firstcalls::Make;
using firstcalls::Meeting;

int MeetIn(const char* plugin, const char* call) {
  static Meeting meeting;
  char address[32];
  meeting.call = call;
  snprintf(address, sizeof address, "%p", static_cast<void*>(&meeting));
  setenv(firstcalls::kVariable, address, 1);
  std::thread other([] {
    meeting.caller.store(static_cast<pid_t>(syscall(SYS_gettid)));
    while (!meeting.in_constructor.load()) std::this_thread::yield();
    Make(&meeting);
  });
  void* loaded = dlopen(plugin, RTLD_NOW);
  if (loaded == nullptr) fprintf(stderr, "%s\n", dlerror());
  other.join();
  printf("{\"made\": %d}\n", meeting.made.load());
  fflush(stdout);
  return loaded != nullptr ? 0 : 1;
}

// Past every preload, as a runtime that is linked with the driver does.
void InitPastPreloads() {
  auto* init = reinterpret_cast<CUresult (*)(unsigned)>(bench::RawSymbol("libcuda", "cuInit"));
  init(0);
}

int MeetInChild(const char* plugin) {
  cuInit(0);
  const pid_t child = fork();
  if (child == 0) _exit(MeetIn(plugin, "cuMemAlloc"));
  int status = 1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  if (strcmp(argv[2], "forked") == 0) return MeetInChild(argv[1]);
  if (strcmp(argv[2], "cuMemAlloc") == 0) InitPastPreloads();
  return MeetIn(argv[1], argv[2]);
}
