// Nanoseconds per call, the driver's own function against ours, in one process and interleaved, so
// that clock changes and neighbours hit both alike.
//
// Started with libgpufence.so preloaded.  "direct" is the address in the driver's symbol table,
// "ours" what dlsym gives.  Prints one JSON object; call_overhead.py judges it.

#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "driver_abi.h"
#include "measure.h"
#include "raw_symbol.h"

namespace bench {
namespace {

constexpr size_t kMib = size_t{1} << 20;

// One function in its two forms.
template <typename Function>
struct Pair {
  Function* direct;
  Function* ours;
};

void* g_driver = nullptr;

template <typename Function>
Pair<Function> Both(const char* name) {
  Pair<Function> pair{reinterpret_cast<Function*>(RawSymbol("libcuda.so", name)),
                      reinterpret_cast<Function*>(dlsym(g_driver, name))};
  if (pair.direct == nullptr || pair.ours == nullptr) {
    std::fprintf(stderr, "call_overhead: the driver lacks %s\n", name);
    std::exit(3);
  }
  return pair;
}
#define BOTH(name) Both<decltype(name)>(#name)

// The library's file that holds an address: proves which side is measured.
std::string ObjectOf(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0) return "?";
  const std::string path = info.dli_fname;
  return path.substr(path.rfind('/') + 1);
}

class Table {
 public:
  Table(int rounds, double scale) : rounds_(rounds), scale_(scale) {}

  // Times `call(which)` for the direct (0) and our (1) form.  `settle` runs between the timed
  // batches, untimed.  The order turns round by round.
  template <typename Call, typename Settle>
  void Measure(const char* name, int calls, Call call, Settle settle) {
    calls = std::max(1, static_cast<int>(calls * scale_));
    std::vector<double> times[2];
    std::vector<double> extra;
    // A batch of launches must fit the device's queue, so it is too short to average out the
    // neighbours of this process by itself; many batches do.
    const int rounds = calls < kShortBatch ? rounds_ * kShortBatchRepeats : rounds_;
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
      times[0].push_back(ns[0]);
      times[1].push_back(ns[1]);
      extra.push_back(ns[1] - ns[0]);
    }
    Print(name, calls, rounds, times, extra);
  }

 private:
  static constexpr int kShortBatch = 1000;
  static constexpr int kShortBatchRepeats = 16;

  void Print(const char* name, int calls, int rounds, const std::vector<double> (&times)[2],
             const std::vector<double>& extra) {
    std::printf("%s\n  \"%s\": {\"calls\": %d, \"rounds\": %d, ", printed_++ == 0 ? "" : ",", name,
                calls, rounds);
    std::printf("\"direct_min_ns\": %.2f, \"direct_median_ns\": %.2f, ",
                *std::min_element(times[0].begin(), times[0].end()), Median(times[0]));
    std::printf("\"ours_min_ns\": %.2f, \"ours_median_ns\": %.2f, ",
                *std::min_element(times[1].begin(), times[1].end()), Median(times[1]));
    std::printf("\"extra_median_ns\": %.2f}", Median(extra));
    std::fflush(stdout);
  }

  int rounds_;
  double scale_;
  int printed_ = 0;
};

void Nothing() {}

struct Gpu {
  CUcontext context = nullptr;
  CUfunction empty = nullptr;
  CUstream stream = nullptr;
  CUevent event = nullptr;
};

bool Open(Gpu* gpu) {
  if (BOTH(cuInit).ours(0) != CUDA_SUCCESS) return false;
  CUmodule module = nullptr;
  BOTH(cuDevicePrimaryCtxRetain).ours(&gpu->context, 0);
  BOTH(cuCtxSetCurrent).ours(gpu->context);
  BOTH(cuModuleLoadData).ours(&module, kEmptyKernel);
  BOTH(cuModuleGetFunction).ours(&gpu->empty, module, "gpufence_empty");
  BOTH(cuStreamCreate).ours(&gpu->stream, CU_STREAM_NON_BLOCKING);
  BOTH(cuEventCreate).ours(&gpu->event, CU_EVENT_DISABLE_TIMING);
  return gpu->empty != nullptr && gpu->stream != nullptr;
}

// Calls whose own cost is a few nanoseconds: here a passthrough shows.
void CheapCalls(Table& table, const Gpu& gpu) {
  const auto get_current = BOTH(cuCtxGetCurrent);
  CUcontext current = nullptr;
  table.Measure(
      "cuCtxGetCurrent", 400000,
      [&](int which) { (which != 0 ? get_current.ours : get_current.direct)(&current); }, Nothing);
  const auto get_version = BOTH(cuDriverGetVersion);
  int version = 0;
  table.Measure(
      "cuDriverGetVersion", 400000,
      [&](int which) { (which != 0 ? get_version.ours : get_version.direct)(&version); }, Nothing);
  const auto get_count = BOTH(cuDeviceGetCount);
  int count = 0;
  table.Measure(
      "cuDeviceGetCount", 400000,
      [&](int which) { (which != 0 ? get_count.ours : get_count.direct)(&count); }, Nothing);
  const auto stream_query = BOTH(cuStreamQuery);
  table.Measure(
      "cuStreamQuery", 20000,
      [&](int which) { (which != 0 ? stream_query.ours : stream_query.direct)(gpu.stream); },
      Nothing);
  const auto event_query = BOTH(cuEventQuery);
  table.Measure(
      "cuEventQuery", 20000,
      [&](int which) { (which != 0 ? event_query.ours : event_query.direct)(gpu.event); }, Nothing);
}

void DeviceCalls(Table& table, const Gpu& gpu) {
  const auto synchronize = BOTH(cuStreamSynchronize);
  const auto settle = [&] { synchronize.direct(gpu.stream); };
  const auto launch = BOTH(cuLaunchKernel);
  table.Measure(
      "cuLaunchKernel", 400,
      [&](int which) {
        (which != 0 ? launch.ours : launch.direct)(gpu.empty, 1, 1, 1, 1, 1, 1, 0, gpu.stream,
                                                   nullptr, nullptr);
      },
      settle);
  const auto alloc = BOTH(cuMemAlloc_v2);
  const auto free_memory = BOTH(cuMemFree_v2);
  CUdeviceptr memory = 0;
  table.Measure(
      "cuMemAlloc+cuMemFree 2 MiB", 40,
      [&](int which) {
        (which != 0 ? alloc.ours : alloc.direct)(&memory, 2 * kMib);
        (which != 0 ? free_memory.ours : free_memory.direct)(memory);
      },
      Nothing);
  const auto alloc_async = BOTH(cuMemAllocAsync);
  const auto free_async = BOTH(cuMemFreeAsync);
  table.Measure(
      "cuMemAllocAsync+cuMemFreeAsync 2 MiB", 400,
      [&](int which) {
        (which != 0 ? alloc_async.ours : alloc_async.direct)(&memory, 2 * kMib, gpu.stream);
        (which != 0 ? free_async.ours : free_async.direct)(memory, gpu.stream);
      },
      settle);
  const auto info = BOTH(cuMemGetInfo_v2);
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  table.Measure(
      "cuMemGetInfo", 400,
      [&](int which) { (which != 0 ? info.ours : info.direct)(&free_bytes, &total_bytes); },
      Nothing);
}

// Lookups.  The direct dlsym is the C library's own.
void Lookups(Table& table) {
  using Find = void*(void*, const char*);
  void* libc_dlsym = RawSymbol("libc.so", "dlsym");
  if (libc_dlsym == nullptr) libc_dlsym = RawSymbol("libdl.so", "dlsym");  // before glibc 2.34
  const Pair<Find> find{reinterpret_cast<Find*>(libc_dlsym), &dlsym};
  if (find.direct != nullptr) {
    table.Measure(
        "dlsym of a driver function", 5000,
        [&](int which) { (which != 0 ? find.ours : find.direct)(g_driver, "cuCtxGetCurrent"); },
        Nothing);
    table.Measure(
        "dlsym of another function", 5000,
        [&](int which) { (which != 0 ? find.ours : find.direct)(RTLD_DEFAULT, "strlen"); },
        Nothing);
  }
  const auto get_address = BOTH(cuGetProcAddress_v2);
  void* found = nullptr;
  table.Measure(
      "cuGetProcAddress", 20000,
      [&](int which) {
        (which != 0 ? get_address.ours : get_address.direct)("cuMemAlloc", &found, 12000, 0,
                                                             nullptr);
      },
      Nothing);
}

int Main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(3, std::atoi(argv[1])) : 31;
  const double scale = argc > 2 ? std::atof(argv[2]) : 1.0;
  g_driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (g_driver == nullptr) {
    std::fprintf(stderr, "call_overhead: no libcuda.so.1 to measure\n");
    return 3;
  }
  Gpu gpu;
  if (!Open(&gpu)) {
    std::fprintf(stderr, "call_overhead: no GPU to measure on\n");
    return 3;
  }
  const auto probe = BOTH(cuCtxGetCurrent);
  std::printf("{\"direct_object\": \"%s\", \"our_object\": \"%s\", \"calls\": {",
              ObjectOf(reinterpret_cast<void*>(probe.direct)).c_str(),
              ObjectOf(reinterpret_cast<void*>(probe.ours)).c_str());
  Table table(rounds, scale);
  CheapCalls(table, gpu);
  DeviceCalls(table, gpu);
  Lookups(table);
  std::printf("\n}}\n");
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::Main(argc, argv); }
