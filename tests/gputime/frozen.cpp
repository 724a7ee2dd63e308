// Launches on command, one command a line on stdin, one number as answer: what a frozen container
// may do and what it may not. A worker thread for each device launches; the main thread does all
// else.
// link: cuda
// flags: -pthread
//
//   frozen DEVICES
//
//   start WAY    each worker launches once: kernel, graph or many (one launch on several devices)
//   flood        each worker launches kernels until `stop`
//   stop         does not wait for it
//   settled      waits until each worker sleeps and launches no more: how many launches returned
//   ended        how many kernels have ended
//   more N       waits until more than N have
//   join         waits until each worker is done and all kernels have ended: how many
//   wrong        of them, ended in another order than they were launched
//   idle         waits for what was launched; code
//   memory       takes, fills, copies, asks for and frees memory; code, or -1 for other bytes
//   capture      captures a graph of launches; code
//   signal       has each held worker run a signal handler: how often it ran
//   fork         a child that ends by exit(7): its status
//   exit         exit(5)
//   handler      exit(6), and an exit handler launches that was there before the first launch
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <vector>

#include "support/time_program.h"

using namespace timing;

namespace {

constexpr int kQuietLooks = 20;
constexpr unsigned kFillBytes = 4096;

void Nap() {
  const timespec ms = {0, 1'000'000};
  nanosleep(&ms, nullptr);
}

struct Worker {
  explicit Worker(int ordinal) : gpu(0, ordinal), stream(NewStream()) {
    CUstream captured = NewStream();
    CUgraph made = nullptr;
    MUST(cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    MUST(gpu.Spin(captured, kUs));
    MUST(cuStreamEndCapture(captured, &made));
    MUST(cuGraphInstantiateWithFlags(&graph, made, 0));
  }

  Gpu gpu;
  CUstream stream;
  CUgraphExec graph = nullptr;
  pthread_t thread = {};
  bool begun = false;
  std::string way;
  std::atomic<int> tid{0};
  std::atomic<unsigned> launched{0};
  std::atomic<unsigned> ended{0};
  std::atomic<unsigned> wrong{0};
};

// Told by a host function behind each kernel, in the order of the stream.
struct Step {
  Worker* worker;
  unsigned number;
};

std::vector<Worker*> workers;
std::atomic<bool> stops{false};
bool exit_handler_launches = false;
std::atomic<unsigned> handled{0};

void Ended(void* argument) {
  const Step* step = static_cast<Step*>(argument);
  if (step->worker->ended.fetch_add(1) != step->number) step->worker->wrong.fetch_add(1);
  delete step;
}

CUresult LaunchOnMany(Worker* worker) {
  unsigned long long ns = kUs;
  void* params[] = {&ns};
  CUDA_LAUNCH_PARAMS launch = {};
  launch.function = worker->gpu.spin;
  launch.gridDimX = launch.gridDimY = launch.gridDimZ = 1;
  launch.blockDimX = launch.blockDimY = launch.blockDimZ = 1;
  launch.hStream = worker->stream;
  launch.kernelParams = params;
  return cuLaunchCooperativeKernelMultiDevice(&launch, 1, 0);
}

void LaunchOne(Worker* worker, const std::string& way) {
  if (way == "graph") {
    MUST(cuGraphLaunch(worker->graph, worker->stream));
  } else if (way == "many") {
    MUST(LaunchOnMany(worker));
  } else {
    MUST(worker->gpu.Spin(worker->stream, 50 * kUs, kWholeGpu));
  }
  const unsigned number = worker->launched.fetch_add(1);
  MUST(cuLaunchHostFunc(worker->stream, Ended, new Step{worker, number}));
}

void* Work(void* argument) {
  auto* worker = static_cast<Worker*>(argument);
  MUST(cuCtxSetCurrent(worker->gpu.context));
  worker->tid.store(static_cast<int>(syscall(SYS_gettid)));
  do {
    LaunchOne(worker, worker->way);
  } while (worker->way == "flood" && !stops.load());
  worker->tid.store(0);
  return nullptr;
}

double Start(const std::string& way) {
  stops.store(false);
  for (Worker* worker : workers) {
    worker->way = way;
    worker->tid.store(-1);
    worker->begun = pthread_create(&worker->thread, nullptr, Work, worker) == 0;
  }
  return 0;
}

// The state of a thread: 'S' sleeps.
char StateOf(int tid) {
  char line[256] = "";
  FILE* file = fopen(("/proc/self/task/" + std::to_string(tid) + "/stat").c_str(), "r");
  if (file == nullptr) return '?';
  const char* read = fgets(line, sizeof line, file);
  fclose(file);
  const char* name = read != nullptr ? strrchr(line, ')') : nullptr;
  return name != nullptr ? name[2] : '?';
}

unsigned Sum(std::atomic<unsigned> Worker::* count) {
  unsigned sum = 0;
  for (Worker* worker : workers) sum += (worker->*count).load();
  return sum;
}

bool AllSleep() {
  for (Worker* worker : workers) {
    const int tid = worker->tid.load();
    if (tid < 0 || (tid > 0 && StateOf(tid) != 'S')) return false;
  }
  return true;
}

double Settled() {
  unsigned before = Sum(&Worker::launched);
  for (int quiet = 0; quiet < kQuietLooks; Nap()) {
    const unsigned launched = Sum(&Worker::launched);
    quiet = launched == before && AllSleep() ? quiet + 1 : 0;
    before = launched;
  }
  return before;
}

double Idle() {
  CUresult rc = CUDA_SUCCESS;
  for (Worker* worker : workers) {
    MUST(cuCtxSetCurrent(worker->gpu.context));
    const CUresult one = cuCtxSynchronize();
    if (one != CUDA_SUCCESS) rc = one;
  }
  return rc;
}

double More(unsigned than) {
  while (Sum(&Worker::ended) <= than) Nap();
  return Sum(&Worker::ended);
}

double Join() {
  for (Worker* worker : workers) {
    if (worker->begun) pthread_join(worker->thread, nullptr);
    worker->begun = false;
  }
  Idle();
  return Sum(&Worker::ended);
}

double Memory() {
  CUstream stream = NewStream();
  CUdeviceptr bytes = 0;
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  std::vector<unsigned char> back(kFillBytes, 0);
  MUST(cuMemAlloc_v2(&bytes, kFillBytes));
  MUST(cuMemGetInfo_v2(&free_bytes, &total_bytes));
  MUST(cuMemsetD8Async(bytes, 0x5a, kFillBytes, stream));
  MUST(cuMemcpyDtoHAsync_v2(back.data(), bytes, kFillBytes, stream));
  MUST(cuStreamSynchronize(stream));
  MUST(cuStreamDestroy_v2(stream));
  MUST(cuMemFree_v2(bytes));
  for (const unsigned char byte : back) {
    if (byte != 0x5a) return -1;
  }
  return 0;
}

double Capture() {
  CUstream stream = NewStream();
  CUgraph graph = nullptr;
  CUresult rc = cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  for (int i = 0; i < 3 && rc == CUDA_SUCCESS; ++i) rc = workers.back()->gpu.Spin(stream, kUs);
  return rc == CUDA_SUCCESS ? cuStreamEndCapture(stream, &graph) : rc;
}

double Signal() {
  struct sigaction action = {};
  action.sa_handler = [](int) { handled.fetch_add(1); };
  sigaction(SIGUSR1, &action, nullptr);
  handled.store(0);
  for (Worker* worker : workers) {
    const unsigned before = handled.load();
    pthread_kill(worker->thread, SIGUSR1);
    while (handled.load() == before) Nap();
  }
  return handled.load();
}

double Fork() {
  const pid_t child = fork();
  if (child == 0) exit(7);
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

double Exit(bool launches) {
  exit_handler_launches = launches;
  exit(launches ? 6 : 5);
}

double Answer(const std::string& command) {
  char way[16] = "";
  unsigned than = 0;
  if (command == "start" && scanf("%15s", way) == 1) return Start(way);
  if (command == "more" && scanf("%u", &than) == 1) return More(than);
  if (command == "flood") return Start("flood");
  if (command == "settled") return Settled();
  if (command == "ended") return Sum(&Worker::ended);
  if (command == "join") return Join();
  if (command == "wrong") return Sum(&Worker::wrong);
  if (command == "idle") return Idle();
  if (command == "memory") return Memory();
  if (command == "capture") return Capture();
  if (command == "signal") return Signal();
  if (command == "fork") return Fork();
  if (command == "exit" || command == "handler") return Exit(command == "handler");
  stops.store(true);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  atexit([] {
    if (exit_handler_launches) LaunchOne(workers.front(), "kernel");
  });
  const int devices = count > 1 ? atoi(arguments[1]) : 1;
  for (int ordinal = 0; ordinal < devices; ++ordinal) workers.push_back(new Worker(ordinal));
  printf("ready\n");
  fflush(stdout);
  char command[16];
  while (scanf("%15s", command) == 1) {
    printf("%.0f\n", Answer(command));
    fflush(stdout);
  }
  return 0;
}
