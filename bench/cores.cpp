// What a core limit costs a program: the rate of launches, how long a launch was held against the
// debt that explains it, and what the watcher takes.
//
//   cores rate ROUNDS KERNEL_US   kernels by the driver's own functions and by those that programs
//                                 find, in turns: how long one takes of many in a row, and p50, p99
//                                 and the longest of those that are timed one by one; empty ones
//                                 (0), or such as are waited for
//   cores hold KERNEL_US COUNT    one kernel after the other, each waited for: how long launches
//                                 were held, and how late after the moment at which all was paid;
//                                 without the first one, for which the driver loads the kernel
//   cores watch WAY KERNEL_US S IDLE_S    processor time by thread name, in percent of one, and
//                                 how many launches went in a second
//
// Ways to wait after every four kernels: stream, context, event (one that blocks), spin (one that
// does not); or ahead: as event, four more are queued before the last four are waited for.
// The program's own thread goes by "program".
// Prints one line of JSON. The due moment is read from the library's time file, which is mapped in
// this very process; without one, `hold` says so and nothing about lateness.

#include <dirent.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "driver_abi.h"
#include "measure.h"
#include "raw_symbol.h"
#include "state/time_file.h"

namespace bench {
namespace {

constexpr double kHeldNs = 100'000;     // a launch that takes longer was held
constexpr int kBlock = 20'000;          // empty launches of one form in a row: some 60 ms
constexpr int kWaitedBlock = 1'000;     // of those that are waited for
constexpr useconds_t kLullUs = 10'000;  // behind a block: whoever watches has stopped
constexpr int kRound = 4;               // launches before each wait

constexpr char kKernels[] =
#include "support/spin_kernel.h"
    ".visible .entry gpufence_empty() { ret; }";

void Check(CUresult code, const char* what) {
  if (code == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: error %d\n", what, static_cast<int>(code));
  std::exit(3);
}

struct Gpu {
  CUfunction empty = nullptr;
  CUfunction spin = nullptr;
  CUstream stream = nullptr;

  Gpu() {
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    Check(cuInit(0), "cuInit");
    Check(cuDevicePrimaryCtxRetain(&context, 0), "context");
    Check(cuCtxSetCurrent(context), "context");
    Check(cuModuleLoadData(&module, kKernels), "module");
    Check(cuModuleGetFunction(&empty, module, "gpufence_empty"), "kernel");
    Check(cuModuleGetFunction(&spin, module, "gpufence_spin_ns"), "kernel");
    Check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "stream");
  }
  void Launch(CUfunction function, void** params) const {
    Check(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr), "launch");
  }
  void Spin(uint64_t ns) const {
    void* params[] = {&ns};
    Launch(spin, params);
  }
  void Wait() const { Check(cuStreamSynchronize(stream), "wait"); }
};

double At(const std::vector<double>& sorted, double part) {
  return sorted[static_cast<size_t>(part * static_cast<double>(sorted.size() - 1))];
}

// The functions of the driver, or those that programs find.
struct Form {
  decltype(cuLaunchKernel)* launch;
  decltype(cuStreamSynchronize)* wait;
};

// A kernel, over and over: an empty one, or one that is waited for.
struct Work {
  const Gpu& gpu;
  uint64_t kernel_ns;  // 0: empty
  int block;           // so many in a row

  void Do(const Form& form) {
    void* params[] = {&kernel_ns};
    CUfunction kernel = kernel_ns != 0 ? gpu.spin : gpu.empty;
    Check(form.launch(kernel, 1, 1, 1, 1, 1, 1, 0, gpu.stream, params, nullptr), "launch");
    if (kernel_ns != 0) Check(form.wait(gpu.stream), "wait");
  }
  void Settle() const {
    gpu.Wait();
    usleep(kLullUs);
  }
  double RowNs(const Form& form) {
    const double begin_ns = NowNs();
    for (int i = 0; i < block; ++i) Do(form);
    const double each_ns = (NowNs() - begin_ns) / block;
    Settle();
    return each_ns;
  }
  // Each for itself: reading the clock between them would slow those in a row.
  void TimeEach(const Form& form, std::vector<double>* calls) {
    for (int i = 0; i < block; ++i) {
      const double before_ns = NowNs();
      Do(form);
      calls->push_back(NowNs() - before_ns);
    }
    Settle();
  }
};

template <typename Function>
Function* Raw(Function*, const char* name) {
  return reinterpret_cast<Function*>(RawSymbol("libcuda.so", name));
}

// In one process and in turns, since processes differ by more than a limit costs.
void Rate(Work work, int rounds) {
  const Form forms[] = {{Raw(&cuLaunchKernel, "cuLaunchKernel"),
                         Raw(&cuStreamSynchronize, "cuStreamSynchronize")},
                        {&cuLaunchKernel, &cuStreamSynchronize}};
  std::vector<double> rows[2], calls[2], ratios;
  for (int round = -1; round < rounds; ++round) {  // the first fills caches
    double each_ns[2];
    for (int turn = 0; turn < 2; ++turn) {
      const int form = (turn + round + 2) % 2;
      each_ns[form] = work.RowNs(forms[form]);
      work.TimeEach(forms[form], &calls[form]);
    }
    if (round < 0) continue;
    ratios.push_back(each_ns[0] / each_ns[1]);
    for (int form = 0; form < 2; ++form) rows[form].push_back(each_ns[form]);
  }
  std::sort(ratios.begin(), ratios.end());
  std::printf("{\"ratio\": %.4f, \"ratio_low\": %.4f, \"ratio_high\": %.4f", At(ratios, 0.5),
              At(ratios, 0.25), At(ratios, 0.75));
  for (int form = 0; form < 2; ++form) {
    std::sort(calls[form].begin(), calls[form].end());
    std::printf(
        ", \"%s\": {\"each_ns\": %.1f, \"p50_ns\": %.0f, \"p99_ns\": %.0f, "
        "\"longest_ns\": %.0f}",
        form == 0 ? "driver" : "found", Median(rows[form]), At(calls[form], 0.5),
        At(calls[form], 0.99), calls[form].back());
  }
  std::printf("}\n");
}

// The library's time file, as this process has it mapped; null without a core limit.
const gpufence::TimeBytes* TimeFile() {
  FILE* maps = std::fopen("/proc/self/maps", "r");
  char line[4352];
  const gpufence::TimeBytes* found = nullptr;
  while (maps != nullptr && std::fgets(line, sizeof line, maps) != nullptr) {
    if (std::strstr(line, ".cores") == nullptr || found != nullptr) continue;
    found = reinterpret_cast<const gpufence::TimeBytes*>(std::strtoull(line, nullptr, 16));
  }
  if (maps != nullptr) std::fclose(maps);
  return found;
}

// Nothing is queued when a launch is asked for, so only debt may hold it.
void Hold(const Gpu& gpu, uint64_t kernel_ns, int count) {
  const gpufence::TimeBytes* file = TimeFile();
  std::vector<double> held;
  std::vector<double> late;
  int latest_at = 0;
  const double begin_ns = NowNs();
  gpu.Spin(kernel_ns);
  const double first_ns = NowNs() - begin_ns;
  gpu.Wait();
  for (int i = 0; i < count; ++i) {
    const double before_ns = NowNs();
    gpu.Spin(kernel_ns);
    const double after_ns = NowNs();
    // Read before the kernel can have been seen: what held it, or less.
    const uint64_t due_ns = file != nullptr ? file->tenants[0][0].due_ns.load() : 0;
    gpu.Wait();
    if (after_ns - before_ns < kHeldNs) continue;
    held.push_back(after_ns - before_ns);
    late.push_back(after_ns - std::max(before_ns, static_cast<double>(due_ns)));
    if (late.back() >= *std::max_element(late.begin(), late.end())) latest_at = i;
  }
  std::sort(held.begin(), held.end());
  std::sort(late.begin(), late.end());
  std::printf("{\"launches\": %d, \"first_ns\": %.0f", count, first_ns);
  std::printf(", \"held\": %zu", held.size());
  if (!held.empty()) std::printf(", \"longest_held_ns\": %.0f", held.back());
  if (!held.empty() && file != nullptr) {
    std::printf(", \"late_p50_ns\": %.0f, \"late_p99_ns\": %.0f, \"latest_ns\": %.0f",
                At(late, 0.5), At(late, 0.99), late.back());
    std::printf(", \"latest_at\": %d", latest_at);
  }
  std::printf("}\n");
}

using ByThread = std::map<std::string, double>;

std::string LineOf(const std::string& path) {
  char line[256] = "";
  FILE* file = std::fopen(path.c_str(), "r");
  if (file == nullptr) return line;
  if (std::fgets(line, sizeof line, file) == nullptr) line[0] = 0;
  std::fclose(file);
  line[std::strcspn(line, "\n")] = 0;
  return line;
}

// Processor time of all threads that have a name, in nanoseconds.
ByThread Threads() {
  ByThread found;
  const std::string own = std::to_string(getpid());
  DIR* folder = opendir("/proc/self/task");
  while (const dirent* entry = folder != nullptr ? readdir(folder) : nullptr) {
    if (entry->d_name[0] == '.') continue;
    const std::string task = std::string("/proc/self/task/") + entry->d_name;
    const std::string name = entry->d_name == own ? "program" : LineOf(task + "/comm");
    found[name] += std::atof(LineOf(task + "/schedstat").c_str());
  }
  if (folder != nullptr) closedir(folder);
  return found;
}

void TellSince(const char* what, const ByThread& before, double begin_ns) {
  const double span_ns = NowNs() - begin_ns;
  const char* comma = "";
  std::printf("\"%s\": {", what);
  for (const auto& [name, ns] : Threads()) {
    const auto known = before.find(name);
    const double ran_ns = ns - (known != before.end() ? known->second : 0);
    std::printf("%s\"%s\": %.3f", comma, name.c_str(), 100 * ran_ns / span_ns);
    comma = ", ";
  }
  std::printf("}");
}

// Four kernels, and the wait that `way` names.
class Waiting {
 public:
  Waiting(const Gpu& gpu, const std::string& way) : gpu_(gpu), way_(way) {
    for (CUevent& end : ends_) {
      const unsigned int blocks = way == "spin" ? 0u : unsigned{CU_EVENT_BLOCKING_SYNC};
      Check(cuEventCreate(&end, CU_EVENT_DISABLE_TIMING | blocks), "event");
      Check(cuEventRecord(end, gpu.stream), "record");
    }
  }
  bool IsKnown() const {
    return way_ == "stream" || way_ == "context" || way_ == "event" || way_ == "spin" ||
           way_ == "ahead";
  }
  void Round(uint64_t kernel_ns) {
    for (int i = 0; i < kRound; ++i) gpu_.Spin(kernel_ns);
    if (way_ == "stream") return gpu_.Wait();
    if (way_ == "context") return Check(cuCtxSynchronize(), "wait");
    Check(cuEventRecord(ends_[round_ % 2], gpu_.stream), "record");
    if (way_ == "ahead") ++round_;
    Check(cuEventSynchronize(ends_[round_ % 2]), "wait");
  }

 private:
  const Gpu& gpu_;
  std::string way_;
  CUevent ends_[2];
  int round_ = 0;
};

int Watch(const Gpu& gpu, const char* way, uint64_t kernel_ns, double seconds, double idle_s) {
  Waiting waiting(gpu, way);
  if (!waiting.IsKnown()) return 2;
  waiting.Round(kernel_ns);
  ByThread before = Threads();
  double begin_ns = NowNs();
  int rounds = 0;
  for (; NowNs() < begin_ns + seconds * 1e9; ++rounds) waiting.Round(kernel_ns);
  std::printf("{\"rate\": %.0f, ", kRound * rounds / (NowNs() - begin_ns) * 1e9);
  TellSince("busy", before, begin_ns);
  gpu.Wait();
  usleep(100'000);  // it looks on for some milliseconds
  before = Threads();
  begin_ns = NowNs();
  usleep(static_cast<useconds_t>(idle_s * 1e6));
  std::printf(", ");
  TellSince("idle", before, begin_ns);
  std::printf("}\n");
  return 0;
}

int Main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const auto number = [&](int index) { return std::atof(argv[index]); };
  const auto kernel_ns = [&](int index) { return static_cast<uint64_t>(number(index) * 1e3); };
  if (what == "rate" && argc == 4) {
    const Gpu gpu;
    Rate({gpu, kernel_ns(3), kernel_ns(3) != 0 ? kWaitedBlock : kBlock}, std::atoi(argv[2]));
  } else if (what == "hold" && argc == 4) {
    Hold(Gpu(), kernel_ns(2), std::atoi(argv[3]));
  } else if (what == "watch" && argc == 6) {
    return Watch(Gpu(), argv[2], kernel_ns(3), number(4), number(5));
  } else {
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::Main(argc, argv); }
