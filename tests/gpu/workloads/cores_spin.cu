// Kernels that run for a given time and say when they ran, by the GPU's own clock.
//
//   run PATH KERNEL_US BLOCKS SECONDS GAP_US [FILE]   one line of JSON; FILE gets the intervals
//   rate COUNT                                        nanoseconds per launch of empty kernels
//
// Paths: plain, ex, cooperative, graph, chain (a graph of sixteen), two (streams), sync (after
// each), sleep (sync, with waits that give the processor away), fours (an event that blocks is
// waited for behind each four), gap (sync, then GAP_US of sleep), per_thread, green (a stream of a
// green context with all multiprocessors). FILE: pairs of 64-bit nanoseconds, sorted, comparable
// between processes. Intervals reach from a kernel's first block to its last and are united before
// they are counted.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

const size_t kMostKernels = 1 << 20;  // of one stream in one run
const double kBatchNs = 20e6;          // queued ahead: two of these
const size_t kChain = 16;              // kernels of a graph, each behind the one before
const size_t kFour = 4;
const unsigned kCounters = 64;         // of arrivals, each in a line of its own
const unsigned kCounterStride = 16;    // of them, in words
const unsigned kTellers = 264;         // blocks that write down when a kernel began, or ended
const size_t kManyIntervals = 100;     // from here on the first of them do not count

struct Interval {
  unsigned long long begin, end;
};

// What one stream's kernels write.
struct Lane {
  cudaStream_t stream;
  Interval* intervals;
  unsigned long long* arrivals;  // blocks so far, by counter; kernels of a stream do not overlap
  cudaGraphExec_t graph;
  size_t kernels;  // so far
};

__device__ unsigned long long Now() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// Blocks are begun in order and all spin as long: the first tell the begin and the last the end.
// If 65,536 did, and counted themselves in one word, that alone would take longer than 10 us.
__global__ void Spin(unsigned long long ns, Interval* intervals, unsigned long long* arrivals) {
  const unsigned long long begin = Now();
  const unsigned counter = blockIdx.x % kCounters;
  const unsigned peers = (gridDim.x - counter + kCounters - 1) / kCounters;
  const unsigned long long arrived = atomicAdd(&arrivals[counter * kCounterStride], 1);
  Interval* mine = &intervals[arrived / peers % kMostKernels];
  if (blockIdx.x < kTellers) atomicMin(&mine->begin, begin);
  unsigned long long now = begin;
  while (now - begin < ns) now = Now();
  if (blockIdx.x + kTellers >= gridDim.x) atomicMax(&mine->end, now);
}

__global__ void Clear(Interval* intervals, size_t count) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    intervals[i] = {~0ull, 0};
  }
}

__global__ void Empty() {}

void Check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(code));
  exit(1);
}

void Check(CUresult code, const char* what) {
  if (code == CUDA_SUCCESS) return;
  fprintf(stderr, "%s: %d\n", what, static_cast<int>(code));
  exit(1);
}

double Seconds(Clock::duration span) { return std::chrono::duration<double>(span).count(); }

struct Plan {
  std::string path;
  double kernel_us, seconds, gap_us;
  size_t kernels = 1;  // of a launch
  unsigned blocks;
  unsigned long long spin_ns;  // of each block
  std::string file;
};

// So many blocks do not fit at once: each spins for its part of the kernel's time.
unsigned long long SpinOf(const Plan& plan) {
  int per_sm = 0, sms = 0;
  Check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, Spin, 1, 0), "occupancy");
  Check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0), "SMs");
  const unsigned at_once = static_cast<unsigned>(per_sm * sms);
  const unsigned waves = (plan.blocks + at_once - 1) / at_once;
  return static_cast<unsigned long long>(plan.kernel_us * 1000 / waves);
}

void Launch(const Plan& plan, Lane* lane) {
  unsigned long long ns = plan.spin_ns;
  void* arguments[] = {&ns, &lane->intervals, &lane->arrivals};
  const void* kernel = reinterpret_cast<const void*>(Spin);
  if (lane->graph != nullptr) {
    Check(cudaGraphLaunch(lane->graph, lane->stream), "graph launch");
  } else if (plan.path == "cooperative") {
    Check(cudaLaunchCooperativeKernel(kernel, dim3(plan.blocks), dim3(1), arguments, 0,
                                      lane->stream),
          "cooperative launch");
  } else if (plan.path == "ex") {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributePriority;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(plan.blocks);
    config.blockDim = dim3(1);
    config.stream = lane->stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    Check(cudaLaunchKernelExC(&config, kernel, arguments), "extended launch");
  } else {
    Check(cudaLaunchKernel(kernel, dim3(plan.blocks), dim3(1), arguments, 0, lane->stream),
          "launch");
  }
  lane->kernels += plan.kernels;
}

// Its context lives as long as the process.
CUstream GreenStream() {
  CUdevResource all = {};
  CUdevResourceDesc desc = nullptr;
  CUgreenCtx green = nullptr;
  CUstream stream = nullptr;
  Check(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM), "multiprocessors");
  Check(cuDevResourceGenerateDesc(&desc, &all, 1), "description");
  Check(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM), "green context");
  Check(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0), "stream");
  return stream;
}

void Open(const Plan& plan, Lane* lane) {
  if (plan.path == "per_thread") {
    lane->stream = cudaStreamPerThread;
  } else if (plan.path == "green") {
    lane->stream = GreenStream();
  } else {
    Check(cudaStreamCreateWithFlags(&lane->stream, cudaStreamNonBlocking), "stream");
  }
  Check(cudaMalloc(&lane->intervals, kMostKernels * sizeof(Interval)), "intervals");
  const size_t arrival_bytes = kCounters * kCounterStride * sizeof *lane->arrivals;
  Check(cudaMalloc(&lane->arrivals, arrival_bytes), "arrivals");
  Check(cudaMemset(lane->arrivals, 0, arrival_bytes), "arrivals");
  Clear<<<256, 256>>>(lane->intervals, kMostKernels);
  Check(cudaDeviceSynchronize(), "clear");
  if (plan.path != "graph" && plan.path != "chain") return;
  cudaGraph_t graph;
  Check(cudaStreamBeginCapture(lane->stream, cudaStreamCaptureModeGlobal), "capture");
  for (size_t i = 0; i < plan.kernels; ++i) Launch(plan, lane);
  lane->kernels = 0;
  Check(cudaStreamEndCapture(lane->stream, &graph), "capture");
  Check(cudaGraphInstantiateWithFlags(&lane->graph, graph, 0), "instantiate");
  Check(cudaGraphDestroy(graph), "graph");
}

void Close(const Plan& plan, Lane* lane) {
  if (lane->graph != nullptr) Check(cudaGraphExecDestroy(lane->graph), "executable");
  if (plan.path != "per_thread") Check(cudaStreamDestroy(lane->stream), "stream");
  Check(cudaFree(lane->intervals), "free");
  Check(cudaFree(lane->arrivals), "free");
}

// Keeps the GPU busy: a batch is always queued behind the one that runs. Returns the longest time
// that a launch took, in milliseconds.
double Drive(const Plan& plan, std::vector<Lane>* lanes) {
  const bool waits = plan.path == "sync" || plan.path == "sleep" || plan.path == "gap";
  const double launch_ns = plan.kernel_us * 1000 * static_cast<double>(plan.kernels);
  const size_t batch = std::max<size_t>(1, static_cast<size_t>(kBatchNs / launch_ns));
  cudaEvent_t ends[2];
  for (cudaEvent_t& end : ends) {
    const unsigned blocks = plan.path == "fours" ? cudaEventBlockingSync : 0;
    Check(cudaEventCreateWithFlags(&end, cudaEventDisableTiming | blocks), "event");
  }
  const std::chrono::microseconds gap(static_cast<int64_t>(plan.gap_us));
  double longest = 0;
  const Clock::time_point until =
      Clock::now() + std::chrono::microseconds(static_cast<int64_t>(plan.seconds * 1e6));
  const auto has_room = [&] {
    return (*lanes)[0].kernels + batch * plan.kernels < kMostKernels;
  };
  for (size_t round = 0; Clock::now() < until && has_room(); ++round) {
    Lane* lane = nullptr;
    for (size_t i = 0; i < batch && (i == 0 || Clock::now() < until); ++i) {
      lane = &(*lanes)[(round * batch + i) % lanes->size()];
      const Clock::time_point before = Clock::now();
      Launch(plan, lane);
      longest = std::max(longest, Seconds(Clock::now() - before) * 1e3);
      if (waits) Check(cudaStreamSynchronize(lane->stream), "wait");
      if (plan.path == "fours" && lane->kernels % kFour == 0) {
        Check(cudaEventRecord(ends[0], lane->stream), "record");
        Check(cudaEventSynchronize(ends[0]), "wait");
      }
      if (plan.path == "gap") std::this_thread::sleep_for(gap);
    }
    Check(cudaEventRecord(ends[round % 2], lane->stream), "record");
    if (round > 0) Check(cudaEventSynchronize(ends[(round - 1) % 2]), "wait");
  }
  for (Lane& lane : *lanes) Check(cudaStreamSynchronize(lane.stream), "wait");
  for (cudaEvent_t end : ends) Check(cudaEventDestroy(end), "event");
  return longest;
}

std::vector<Interval> United(const std::vector<Lane>& lanes) {
  std::vector<Interval> all, united;
  for (const Lane& lane : lanes) {
    std::vector<Interval> own(lane.kernels);
    Check(cudaMemcpy(own.data(), lane.intervals, own.size() * sizeof(Interval),
                     cudaMemcpyDeviceToHost),
          "intervals");
    all.insert(all.end(), own.begin(), own.end());
  }
  std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.begin < b.begin; });
  for (const Interval& one : all) {
    if (!united.empty() && one.begin <= united.back().end) {
      united.back().end = std::max(united.back().end, one.end);
    } else {
      united.push_back(one);
    }
  }
  return united;
}

double ShareBetween(const std::vector<Interval>& busy, double begin, double end) {
  double sum = 0;
  for (const Interval& one : busy) {
    const double from = std::max(begin, static_cast<double>(one.begin));
    sum += std::max(0.0, std::min(end, static_cast<double>(one.end)) - from);
  }
  return 100 * sum / (end - begin);
}

void Write(const std::vector<Interval>& busy, const std::string& path) {
  FILE* file = fopen(path.c_str(), "wb");
  if (file == nullptr || fwrite(busy.data(), sizeof(Interval), busy.size(), file) != busy.size() ||
      fclose(file) != 0) {
    fprintf(stderr, "cannot write %s\n", path.c_str());
    exit(1);
  }
}

// The share from one begin to another, so that a long kernel comes with the pause it is paid by; of
// many, the first tenth is the credit of an idle GPU. Without a pause all is one interval.
void Tell(const Plan& plan, const std::vector<Lane>& lanes, double longest_ms) {
  const std::vector<Interval> busy = United(lanes);
  if (!plan.file.empty()) Write(busy, plan.file);  // before whoever waits for the answer looks
  size_t launches = 0;
  for (const Lane& lane : lanes) launches += lane.kernels / plan.kernels;
  const size_t skipped = busy.size() < kManyIntervals ? 0 : busy.size() / 10;
  const double first = static_cast<double>(busy[skipped].begin);
  const double last = static_cast<double>(busy.size() > 1 ? busy.back().begin : busy[0].end);
  const double begin = static_cast<double>(busy.front().begin);
  const double end = static_cast<double>(busy.back().end);
  printf("{\"launches\": %zu, \"share\": %.2f, \"rate\": %.3f, \"longest_ms\": %.2f, "
         "\"seconds\": [",
         launches, ShareBetween(busy, first, last),
         static_cast<double>(launches - 1) * 1e9 / (end - begin), longest_ms);
  const char* comma = "";
  for (double at = begin; at + 1e9 <= end; at += 1e9) {
    printf("%s%.1f", comma, ShareBetween(busy, at, at + 1e9));
    comma = ", ";
  }
  printf("]}\n");
  fflush(stdout);
}

void Run(std::istream& words) {
  Plan plan;
  words >> plan.path >> plan.kernel_us >> plan.blocks >> plan.seconds >> plan.gap_us >> plan.file;
  plan.spin_ns = SpinOf(plan);
  if (plan.path == "chain") plan.kernels = kChain;
  const bool sleeps = plan.path == "sleep";
  Check(cudaSetDeviceFlags(sleeps ? cudaDeviceScheduleBlockingSync : cudaDeviceScheduleAuto),
        "flags");
  std::vector<Lane> lanes(plan.path == "two" ? 2 : 1);
  for (Lane& lane : lanes) Open(plan, &lane);
  const double longest_ms = Drive(plan, &lanes);
  Tell(plan, lanes, longest_ms);
  for (Lane& lane : lanes) Close(plan, &lane);
}

void Rate(size_t count) {
  std::vector<double> calls(count);
  Empty<<<1, 1>>>();
  Check(cudaDeviceSynchronize(), "wait");
  const Clock::time_point begin = Clock::now();
  for (size_t i = 0; i < count; ++i) Empty<<<1, 1>>>();
  const double each_ns = Seconds(Clock::now() - begin) * 1e9 / static_cast<double>(count);
  Check(cudaDeviceSynchronize(), "wait");
  for (double& call : calls) {
    const Clock::time_point before = Clock::now();
    Empty<<<1, 1>>>();
    call = Seconds(Clock::now() - before) * 1e9;
  }
  Check(cudaDeviceSynchronize(), "wait");
  std::sort(calls.begin(), calls.end());
  printf("{\"each_ns\": %.1f, \"p50_ns\": %.0f, \"p99_ns\": %.0f, \"longest_ns\": %.0f}\n", each_ns,
         calls[count / 2], calls[count * 99 / 100], calls.back());
  fflush(stdout);
}

}  // namespace

int main() {
  Check(cudaFree(nullptr), "start");
  printf("ready\n");
  fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    if (what == "run") {
      Run(words);
    } else if (what == "rate") {
      size_t count = 0;
      words >> count;
      Rate(count);
    } else {
      fprintf(stderr, "unknown: %s\n", line.c_str());
      return 2;
    }
  }
  return 0;
}
