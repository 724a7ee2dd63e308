// What the memory limiter costs: nanoseconds per call, the driver's own function against ours, in
// one process and interleaved; with many live allocations and beside many attached processes.
//
//   memory_overhead calls ROUNDS LIVE SECONDS   as JSON; LIVE allocations of 512 bytes are held
//                                               first, or as many as SECONDS give time for
//   memory_overhead attach                      cuInit, "ready", and stay until stdin ends
//   memory_overhead init                        nanoseconds of cuInit
//   memory_overhead true ROUNDS LIBRARY         nanoseconds of /bin/true without and with LIBRARY
//
// "calls" runs with libgpufence.so preloaded and a limit set; memory.py compares and judges.

#include <dlfcn.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "driver_abi.h"
#include "measure.h"
#include "raw_symbol.h"

extern char** environ;

namespace bench {
namespace {

constexpr size_t kKib = size_t{1} << 10;
constexpr size_t kMib = size_t{1} << 20;

// One function in its two forms.
template <typename Function>
struct Pair {
  Function* form[2];  // the driver's, ours
  template <typename... Arguments>
  CUresult operator()(int which, Arguments... arguments) const {
    return form[which](arguments...);
  }
};

void* g_driver = nullptr;
const char* g_separator = "";  // before the next measurement's JSON

template <typename Function>
Pair<Function> Both(const char* name) {
  Pair<Function> pair{{reinterpret_cast<Function*>(RawSymbol("libcuda.so", name)),
                       reinterpret_cast<Function*>(dlsym(g_driver, name))}};
  if (pair.form[0] == nullptr || pair.form[1] == nullptr) {
    std::fprintf(stderr, "memory_overhead: the driver lacks %s\n", name);
    std::exit(3);
  }
  return pair;
}
#define BOTH(name) Both<decltype(name)>(#name)

void Must(CUresult code, const char* what) {
  if (code == CUDA_SUCCESS) return;
  std::fprintf(stderr, "memory_overhead: %s answers %d\n", what, static_cast<int>(code));
  std::exit(3);
}

// Times `call(which)` for both forms, turn about; `settle` runs untimed after each batch.
template <typename Call, typename Settle>
void Measure(const char* name, int rounds, int calls, Call call, Settle settle) {
  std::vector<double> times[2];
  std::vector<double> extra;
  for (int round = -1; round < rounds; ++round) {
    double ns[2] = {};
    for (int turn = 0; turn < 2; ++turn) {
      const int which = (turn + round + 2) % 2;
      const double start = NowNs();
      for (int i = 0; i < calls; ++i) call(which);
      ns[which] = (NowNs() - start) / calls;
      settle();
    }
    if (round < 0) continue;  // the first round fills caches
    for (int which = 0; which < 2; ++which) times[which].push_back(ns[which]);
    extra.push_back(ns[1] - ns[0]);
  }
  std::printf("%s\n  \"%s\": {\"direct_median_ns\": %.2f, \"ours_median_ns\": %.2f, ", g_separator,
              name, Median(times[0]), Median(times[1]));
  std::printf("\"extra_median_ns\": %.2f, \"extra_min_ns\": %.2f}", Median(extra),
              *std::min_element(times[1].begin(), times[1].end()) -
                  *std::min_element(times[0].begin(), times[0].end()));
  std::fflush(stdout);
  g_separator = ",";
}

void Open(CUstream* stream, CUfunction* empty) {
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  Must(BOTH(cuInit)(1, 0u), "cuInit");
  Must(BOTH(cuDevicePrimaryCtxRetain)(1, &context, 0), "cuDevicePrimaryCtxRetain");
  Must(BOTH(cuCtxSetCurrent)(1, context), "cuCtxSetCurrent");
  Must(BOTH(cuModuleLoadData)(1, &module, kEmptyKernel), "cuModuleLoadData");
  Must(BOTH(cuModuleGetFunction)(1, empty, module, "gpufence_empty"), "cuModuleGetFunction");
  Must(BOTH(cuStreamCreate)(1, stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

// Small allocations through our form; as many as `seconds` allow. They end with the process.
size_t HoldAlive(size_t count, double seconds) {
  const auto alloc = BOTH(cuMemAlloc_v2);
  const double until_ns = NowNs() + seconds * 1e9;
  CUdeviceptr address = 0;
  for (size_t held = 0; held < count; ++held) {
    if (held % 1024 == 0 && NowNs() > until_ns) return held;
    Must(alloc(1, &address, size_t{512}), "cuMemAlloc of 512 bytes");
  }
  return count;
}

void MeasureCalls(int rounds, CUstream stream, CUfunction empty) {
  const auto synchronize = BOTH(cuStreamSynchronize);
  const auto settle = [&] { synchronize(0, stream); };
  const auto nothing = [] {};
  const auto alloc = BOTH(cuMemAlloc_v2);
  const auto release = BOTH(cuMemFree_v2);
  CUdeviceptr memory = 0;
  for (const auto& [name, size, calls] :
       {std::tuple{"alloc+free 2 MiB", 2 * kMib, 50}, std::tuple{"alloc+free 1 KiB", kKib, 400}}) {
    Measure(
        name, rounds, calls,
        [&, size = size](int which) {
          alloc(which, &memory, size);
          release(which, memory);
        },
        nothing);
  }
  const auto alloc_managed = BOTH(cuMemAllocManaged);
  Measure(
      "managed pair 2 MiB", rounds, 50,
      [&](int which) {
        alloc_managed(which, &memory, 2 * kMib, CU_MEM_ATTACH_GLOBAL);
        release(which, memory);
      },
      nothing);
  const auto alloc_async = BOTH(cuMemAllocAsync);
  const auto free_async = BOTH(cuMemFreeAsync);
  Measure(
      "async pair 2 MiB", rounds, 400,
      [&](int which) {
        alloc_async(which, &memory, 2 * kMib, stream);
        free_async(which, memory, stream);
      },
      settle);
  const auto info = BOTH(cuMemGetInfo_v2);
  size_t free_bytes = 0, total_bytes = 0;
  Measure(
      "cuMemGetInfo", rounds, 200, [&](int which) { info(which, &free_bytes, &total_bytes); },
      nothing);
  const auto launch = BOTH(cuLaunchKernel);
  Measure(
      "cuLaunchKernel", rounds, 400,
      [&](int which) {
        launch(which, empty, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream, nullptr, nullptr);
      },
      settle);
}

int Calls(int rounds, size_t live, double seconds) {
  CUstream stream = nullptr;
  CUfunction empty = nullptr;
  Open(&stream, &empty);
  const size_t held = HoldAlive(live, seconds);
  size_t free_bytes = 0, total_bytes = 0;
  Must(BOTH(cuMemGetInfo_v2)(1, &free_bytes, &total_bytes), "cuMemGetInfo");
  std::printf("{\"live\": %zu, \"total\": %zu, \"calls\": {", held, total_bytes);
  MeasureCalls(rounds, stream, empty);
  std::printf("\n}}\n");
  std::fflush(stdout);
  // A million allocations are the driver's to take down: not what is measured.
  _exit(0);
}

int Attach() {
  Must(BOTH(cuInit)(1, 0u), "cuInit");
  std::puts("ready");
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}

int Init() {
  using Function = decltype(cuInit);
  auto* init = reinterpret_cast<Function*>(dlsym(g_driver, "cuInit"));
  const double start = NowNs();
  Must(init(0), "cuInit");
  std::printf("%.0f\n", NowNs() - start);
  return 0;
}

// /bin/true from start to end, in nanoseconds.
double TimeTrue(char** environment) {
  char path[] = "/bin/true";
  char* arguments[] = {path, nullptr};
  pid_t child = 0;
  int status = 0;
  const double start = NowNs();
  if (posix_spawn(&child, path, nullptr, nullptr, arguments, environment) != 0) std::exit(3);
  if (waitpid(child, &status, 0) != child || status != 0) std::exit(3);
  return NowNs() - start;
}

int True(int rounds, const char* library) {
  std::string preload = std::string("LD_PRELOAD=") + library;
  std::vector<char*> with;
  for (char** each = environ; *each != nullptr; ++each) with.push_back(*each);
  with.push_back(preload.data());
  with.push_back(nullptr);
  std::vector<double> times[2];
  std::vector<double> extra;
  for (int round = -3; round < rounds; ++round) {
    double ns[2] = {};
    for (int turn = 0; turn < 2; ++turn) {
      const int which = (turn + round + 4) % 2;
      ns[which] = TimeTrue(which != 0 ? with.data() : environ);
    }
    if (round < 0) continue;
    for (int which = 0; which < 2; ++which) times[which].push_back(ns[which]);
    extra.push_back(ns[1] - ns[0]);
  }
  std::printf("{\"bare_median_ns\": %.0f, \"preloaded_median_ns\": %.0f, ", Median(times[0]),
              Median(times[1]));
  std::printf("\"extra_median_ns\": %.0f}\n", Median(extra));
  return 0;
}

int Main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "true" && argc == 4) return True(std::atoi(argv[2]), argv[3]);
  g_driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (g_driver == nullptr) {
    std::fprintf(stderr, "memory_overhead: no libcuda.so.1 to measure\n");
    return 3;
  }
  if (mode == "attach") return Attach();
  if (mode == "init") return Init();
  if (mode != "calls" || argc != 5) return 2;
  return Calls(std::max(3, std::atoi(argv[2])), std::strtoull(argv[3], nullptr, 10),
               std::atof(argv[4]));
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::Main(argc, argv); }
