// What the memory limiter costs: nanoseconds per call, the driver's own function against ours, in
// one process and interleaved; with many live allocations, beside many attached processes, and from
// several threads. Of each call also the part that our own code takes, without what the driver is
// slower or faster by for reasons of its own.
//
//   memory_overhead calls SECONDS LIVE FILL [cold]
//                                             as JSON; LIVE allocations of 512 bytes are held
//                                             first, or as many as FILL seconds give time for;
//                                             cold: caches are emptied around each driver call
//   memory_overhead threads SECONDS COUNT     as JSON; pairs by COUNT threads at once
//   memory_overhead attach                    cuInit, "ready", and stay until stdin ends
//   memory_overhead init                      nanoseconds of cuInit
//   memory_overhead true ROUNDS LIBRARY       nanoseconds of /bin/true without and with LIBRARY
//
// SECONDS bounds every single measurement. "calls" and "threads" run with libgpufence.so preloaded
// and a limit set; memory.py compares and judges.

#include <dlfcn.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "driver_abi.h"
#include "driver_time.h"
#include "interleaved.h"
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
  auto operator()(int which, Arguments... arguments) const {
    return form[which](arguments...);
  }
};

void* g_driver = nullptr;
void* g_nvml = nullptr;

template <gpufence::Sym kSym, typename Function>
Pair<Function> Both(const char* name) {
  const bool is_nvml = std::strncmp(name, "nvml", 4) == 0;
  const char* library = is_nvml ? "libnvidia-ml.so" : "libcuda.so";
  auto* real = reinterpret_cast<Function*>(RawSymbol(library, name));
  auto* ours = reinterpret_cast<Function*>(dlsym(is_nvml ? g_nvml : g_driver, name));
  if (real == nullptr || ours == nullptr) {
    std::fprintf(stderr, "memory_overhead: the driver lacks %s\n", name);
    std::exit(3);
  }
  if (!Wrapped<kSym, Function>::Wrap(real)) {
    std::fprintf(stderr, "memory_overhead: libgpufence.so is not there, or has no symbol table\n");
    std::exit(3);
  }
  return {{&Wrapped<kSym, Function>::Call, ours}};
}
#define BOTH(name) Both<gpufence::kSym_##name, decltype(name)>(#name)

void Must(CUresult code, const char* what) {
  if (code == CUDA_SUCCESS) return;
  std::fprintf(stderr, "memory_overhead: %s answers %d\n", what, static_cast<int>(code));
  std::exit(3);
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

const auto kNothing = [] {};

void MeasureLinear(Effort effort) {
  const auto alloc = BOTH(cuMemAlloc_v2);
  const auto release = BOTH(cuMemFree_v2);
  CUdeviceptr memory = 0;
  const auto pair = [&](size_t bytes) {
    return [&, bytes](int which) {
      alloc(which, &memory, bytes);
      release(which, memory);
    };
  };
  Measure("alloc+free 1 KiB", effort, 50, pair(kKib), kNothing);
  Measure("alloc+free 2 MiB", effort, 20, pair(2 * kMib), kNothing);
  const auto alloc_managed = BOTH(cuMemAllocManaged);
  Measure(
      "managed pair 2 MiB", effort, 20,
      [&](int which) {
        alloc_managed(which, &memory, 2 * kMib, CU_MEM_ATTACH_GLOBAL);
        release(which, memory);
      },
      kNothing);
}

// What has handles: arrays below and above a chunk, physical memory.
void MeasureHandles(Effort effort) {
  const auto create = BOTH(cuArrayCreate_v2);
  const auto destroy = BOTH(cuArrayDestroy);
  for (const auto& [name, side] :
       {std::pair{"array pair 64 KiB", 128u}, std::pair{"array pair 4 MiB", 1024u}}) {
    const CUDA_ARRAY_DESCRIPTOR shape = {
        .Width = side, .Height = side, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUarray array = nullptr;
    Measure(
        name, effort, 20,
        [&](int which) {
          create(which, &array, &shape);
          destroy(which, array);
        },
        kNothing);
  }
  const auto reserve = BOTH(cuMemCreate);
  const auto release = BOTH(cuMemRelease);
  CUmemAllocationProp where = {};
  where.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  where.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle handle = 0;
  Measure(
      "cuMemCreate pair 2 MiB", effort, 20,
      [&](int which) {
        reserve(which, &handle, 2 * kMib, &where, 0ull);
        release(which, handle);
      },
      kNothing);
}

void MeasureStreamOrdered(Effort effort, CUstream stream) {
  const auto synchronize = BOTH(cuStreamSynchronize);
  const auto settle = [&] { synchronize(0, stream); };
  const auto alloc = BOTH(cuMemAllocAsync);
  const auto alloc_from = BOTH(cuMemAllocFromPoolAsync);
  const auto release = BOTH(cuMemFreeAsync);
  CUdeviceptr memory = 0;
  Measure(
      "async pair 2 MiB", effort, 100,
      [&](int which) {
        alloc(which, &memory, 2 * kMib, stream);
        release(which, memory, stream);
      },
      settle);
  CUmemPoolProps shape = {};
  shape.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  shape.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemoryPool pool = nullptr;
  Must(BOTH(cuMemPoolCreate)(1, &pool, &shape), "cuMemPoolCreate");
  Measure(
      "own pool pair 2 MiB", effort, 100,
      [&](int which) {
        alloc_from(which, &memory, 2 * kMib, pool, stream);
        release(which, memory, stream);
      },
      settle);
}

void MeasureQueries(Effort effort) {
  const auto info = BOTH(cuMemGetInfo_v2);
  size_t free_bytes = 0, total_bytes = 0;
  Measure(
      "cuMemGetInfo", effort, 20, [&](int which) { info(which, &free_bytes, &total_bytes); },
      kNothing);
  g_nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (g_nvml == nullptr || BOTH(nvmlInit_v2)(1) != NVML_SUCCESS) return;
  nvmlDevice_t device = nullptr;
  nvmlMemory_t memory = {};
  BOTH(nvmlDeviceGetHandleByIndex_v2)(1, 0u, &device);
  const auto nvml_info = BOTH(nvmlDeviceGetMemoryInfo);
  Measure(
      "nvmlDeviceGetMemoryInfo", effort, 20, [&](int which) { nvml_info(which, device, &memory); },
      kNothing);
}

void MeasureLaunches(Effort effort, CUstream stream, CUfunction empty) {
  const auto synchronize = BOTH(cuStreamSynchronize);
  const auto launch = BOTH(cuLaunchKernel);
  Measure(
      "cuLaunchKernel", effort, 100,
      [&](int which) {
        launch(which, empty, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream, nullptr, nullptr);
      },
      [&] { synchronize(0, stream); });
}

int Calls(Effort effort, size_t live, double fill_seconds, bool cold) {
  CUstream stream = nullptr;
  CUfunction empty = nullptr;
  Open(&stream, &empty);
  const size_t held = HoldAlive(live, fill_seconds);
  size_t free_bytes = 0, total_bytes = 0;
  Must(BOTH(cuMemGetInfo_v2)(1, &free_bytes, &total_bytes), "cuMemGetInfo");
  std::printf("{\"live\": %zu, \"total\": %zu, \"calls\": {", held, total_bytes);
  if (cold) beside_driver = EvictCaches;
  MeasureLinear(effort);
  MeasureHandles(effort);
  MeasureStreamOrdered(effort, stream);
  MeasureQueries(effort);
  MeasureLaunches(effort, stream, empty);
  std::printf("\n}}\n");
  std::fflush(stdout);
  // A million allocations are the driver's to take down: not what is measured.
  _exit(0);
}

int Threads(Effort effort, int threads) {
  CUstream stream = nullptr;
  CUfunction empty = nullptr;
  Open(&stream, &empty);
  CUcontext context = nullptr;
  BOTH(cuCtxGetCurrent)(0, &context);
  std::vector<CUstream> streams(static_cast<size_t>(threads));
  for (CUstream& each : streams) {
    Must(BOTH(cuStreamCreate)(1, &each, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  }
  const auto set_current = BOTH(cuCtxSetCurrent);
  const auto begin = [&](int) { set_current(0, context); };
  size_t free_bytes = 0, total_bytes = 0;
  Must(BOTH(cuMemGetInfo_v2)(1, &free_bytes, &total_bytes), "cuMemGetInfo");
  std::printf("{\"threads\": %d, \"total\": %zu, \"calls\": {", threads, total_bytes);
  HoldAlive(1, 1);  // a chunk stays open: a piece of 1 KiB is not one of 2 MiB each time
  const auto alloc = BOTH(cuMemAlloc_v2);
  const auto release = BOTH(cuMemFree_v2);
  const auto pair = [&](size_t bytes) {
    return [&, bytes](int which, int) {
      CUdeviceptr memory = 0;
      alloc(which, &memory, bytes);
      release(which, memory);
    };
  };
  MeasureThreads("alloc+free 1 KiB", effort, 50, threads, begin, pair(kKib));
  MeasureThreads("alloc+free 2 MiB", effort, 8, threads, begin, pair(2 * kMib));
  const auto alloc_async = BOTH(cuMemAllocAsync);
  const auto free_async = BOTH(cuMemFreeAsync);
  MeasureThreads("async pair 2 MiB", effort, 50, threads, begin, [&](int which, int thread) {
    CUdeviceptr memory = 0;
    CUstream own = streams[static_cast<size_t>(thread)];
    alloc_async(which, &memory, 2 * kMib, own);
    free_async(which, memory, own);
  });
  std::printf("\n}}\n");
  std::fflush(stdout);
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

int True(int count, const char* library) {
  std::string preload = std::string("LD_PRELOAD=") + library;
  std::vector<char*> with;
  for (char** each = environ; *each != nullptr; ++each) with.push_back(*each);
  with.push_back(preload.data());
  with.push_back(nullptr);
  Rounds rounds({});
  for (int round = -3; round < count; ++round) {
    double ns[2] = {};
    for (int turn = 0; turn < 2; ++turn) {
      const int which = (turn + round + 4) % 2;
      ns[which] = TimeTrue(which != 0 ? with.data() : environ);
    }
    if (round >= 0) rounds.Add(ns);
  }
  rounds.Print("/bin/true");
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
  if (argc < 4) return 2;
  const Effort effort{.seconds = std::atof(argv[2])};
  if (mode == "threads" && argc == 4) return Threads(effort, std::atoi(argv[3]));
  const bool cold = argc == 6 && std::strcmp(argv[5], "cold") == 0;
  if (mode != "calls" || argc != (cold ? 6 : 5)) return 2;
  return Calls(effort, std::strtoull(argv[3], nullptr, 10), std::atof(argv[4]), cold);
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::Main(argc, argv); }
