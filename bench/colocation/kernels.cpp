// Programs of kernels for the colocation bench: deep queues, bursts, and programs drawn by a seed.
//
//   kernels calibrate                          steps of work in a nanosecond, as JSON
//   kernels work ONE FULL FILE PLAN ...        ONE, FULL: from calibrate; FILE: for records
//
// Plans: saturate KERNEL_US | bursts KERNEL_US WORK_MS PAUSE_MS | pieces SHORT_US NUMBER LONG_US |
// random SEED.
// Speaks the protocol of workloads/protocol.py: "loaded", "prepare", "ready", "go SECONDS DELAY",
// then one line of JSON. FILE gets three 64-bit numbers for each kernel, stream by stream: begin
// and end by the GPU's clock, and nanoseconds of work. Plans are drawn in random_plan.h.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#if __has_include("driver_abi.h")
#include "driver_abi.h"
#else
#include <cuda.h>
#endif
#include "random_plan.h"

namespace {

using colocation::Plan;
using colocation::ThreadPlan;
using colocation::Wait;
using Clock = std::chrono::steady_clock;

constexpr char kKernels[] =
#include "support/spin_kernel.h"
#include "work_kernel.h"
    ;

constexpr unsigned kThreads = 1024;       // of a block: two fill a multiprocessor
constexpr size_t kCapacity = 1 << 19;     // records of one stream
constexpr double kAheadNs = 20e6;         // queued ahead of a deep queue: two of these
constexpr size_t kMostAhead = 256;        // kernels in each of them
constexpr size_t kFour = 4;
constexpr uint64_t kCalibrationTurns = 20'000;
constexpr int kCalibrationRuns = 200;     // the shortest counts: the others met a neighbour

void Check(CUresult code, const char* what) {
  if (code == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: error %d\n", what, static_cast<int>(code));
  std::exit(1);
}

double Seconds(Clock::duration span) { return std::chrono::duration<double>(span).count(); }

struct Record {
  uint64_t not_begin, end;
};

// What one stream's kernels need. Kernels of a stream have one size, so that arrivals tell which.
struct Lane {
  CUstream stream = nullptr;
  CUdeviceptr records = 0, arrivals = 0, copied = 0;
  void* host = nullptr;
  unsigned blocks = 1;
  double turns_per_ns = 1;
  CUgraphExec graph = nullptr;
  std::vector<uint64_t> graph_ns;    // of a replay
  std::vector<uint64_t> lengths_ns;  // of all kernels so far
};

struct Gpu {
  CUcontext context = nullptr;
  CUfunction work = nullptr;
  unsigned fill_blocks = 1;  // that fill the GPU
  double turns_one = 1, turns_full = 1;

  void Open() {
    CUmodule module = nullptr;
    int processors = 0;
    Check(cuInit(0), "cuInit");
    Check(cuDevicePrimaryCtxRetain(&context, 0), "context");
    Check(cuCtxSetCurrent(context), "context");
    Check(cuModuleLoadData(&module, kKernels), "module");
    Check(cuModuleGetFunction(&work, module, "gpufence_work_ns"), "kernel");
    Check(cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0), "SMs");
    fill_blocks = static_cast<unsigned>(2 * processors);
  }

  void Put(const Lane& lane, uint64_t ns, uint64_t turns) const {
    uint64_t capacity = kCapacity, records = lane.records, arrivals = lane.arrivals;
    void* params[] = {&ns, &turns, &records, &arrivals, &capacity};
    Check(cuLaunchKernel(work, lane.blocks, 1, 1, kThreads, 1, 1, 0, lane.stream, params, nullptr),
          "launch");
  }
  void Launch(Lane* lane, uint64_t ns) const {
    Put(*lane, ns, static_cast<uint64_t>(static_cast<double>(ns) * lane->turns_per_ns));
    lane->lengths_ns.push_back(ns);
  }
};

// Waits, since streams that do not block do not wait for what is set.
void Clear(const Lane& lane) {
  Check(cuMemsetD8_v2(lane.records, 0, kCapacity * sizeof(Record)), "records");
  Check(cuMemsetD8_v2(lane.arrivals, 0, 64), "arrivals");
  Check(cuCtxSynchronize(), "wait");
}

void Capture(const Gpu& gpu, const std::vector<uint64_t>& lengths_ns, size_t kernels, Lane* lane) {
  CUgraph graph = nullptr;
  Check(cuStreamBeginCapture_v2(lane->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "capture");
  for (size_t i = 0; i < kernels; ++i) gpu.Launch(lane, lengths_ns[i % lengths_ns.size()]);
  Check(cuStreamEndCapture(lane->stream, &graph), "capture");
  lane->graph_ns.swap(lane->lengths_ns);
  Check(cuGraphInstantiateWithFlags(&lane->graph, graph, 0), "instantiate");
  Check(cuGraphDestroy(graph), "graph");
}

Lane Opened(const Gpu& gpu, const ThreadPlan& plan) {
  Lane lane;
  const bool fills = plan.blocks == 0;
  lane.blocks = fills ? gpu.fill_blocks : plan.blocks;
  lane.turns_per_ns = fills ? gpu.turns_full : gpu.turns_one;
  Check(cuStreamCreate(&lane.stream, CU_STREAM_NON_BLOCKING), "stream");
  Check(cuMemAlloc_v2(&lane.records, kCapacity * sizeof(Record)), "records");
  Check(cuMemAlloc_v2(&lane.arrivals, 64), "arrivals");
  lane.lengths_ns.reserve(kCapacity);
  if (plan.copy_bytes != 0) {
    Check(cuMemAlloc_v2(&lane.copied, plan.copy_bytes), "copied");
    Check(cuMemHostAlloc(&lane.host, plan.copy_bytes, 0), "host memory");
  }
  if (plan.wait == Wait::kGraph) Capture(gpu, plan.lengths_ns, plan.at_once, &lane);
  Clear(lane);
  gpu.Put(lane, 1'000, 100);  // loads the kernel
  if (lane.graph != nullptr) Check(cuGraphLaunch(lane.graph, lane.stream), "graph launch");
  Check(cuStreamSynchronize(lane.stream), "wait");
  Clear(lane);
  return lane;
}

// A thread of the program: units of launches, copies, a wait and a pause until the time is over.
class Worker {
 public:
  Worker(const Gpu& gpu, const ThreadPlan& plan) : gpu_(gpu), plan_(plan) {
    for (unsigned i = 0; i < plan.streams; ++i) lanes_.push_back(Opened(gpu, plan));
    for (CUevent& end : ends_) {
      Check(cuEventCreate(&end, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC), "event");
    }
  }

  void Run(double seconds) {
    Check(cuCtxSetCurrent(gpu_.context), "context");
    const Clock::time_point begin = Clock::now();
    const Clock::duration span = std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6));
    Clock::time_point burst = begin;
    for (size_t unit = 0; Clock::now() - begin < span && HasRoom(); ++unit) {
      Lane* lane = &lanes_[unit % lanes_.size()];
      Unit(lane, unit);
      Copy(*lane);
      if (plan_.pause_us > 0) usleep(plan_.pause_us);
      if (plan_.burst_ms > 0 && Seconds(Clock::now() - burst) * 1e3 >= plan_.burst_ms) {
        WaitForAll();
        usleep(plan_.burst_pause_ms * 1000);
        burst = Clock::now();
      }
    }
    WaitForAll();
    seconds_ = Seconds(Clock::now() - begin);
  }

  double WorkNs() const {
    double sum = 0;
    for (const Lane& lane : lanes_) {
      for (uint64_t ns : lane.lengths_ns) sum += static_cast<double>(ns);
    }
    return sum;
  }
  double TakenS() const { return seconds_; }
  const std::vector<Lane>& Lanes() const { return lanes_; }

 private:
  bool HasRoom() const {
    return std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) {
      return lane.lengths_ns.size() + kMostAhead + lane.graph_ns.size() < kCapacity;
    });
  }

  uint64_t Next() { return plan_.lengths_ns[next_++ % plan_.lengths_ns.size()]; }

  void Unit(Lane* lane, size_t unit) {
    switch (plan_.wait) {
      case Wait::kDeep:
        return Deep(lane, unit);
      case Wait::kGraph:
        Check(cuGraphLaunch(lane->graph, lane->stream), "graph launch");
        lane->lengths_ns.insert(lane->lengths_ns.end(), lane->graph_ns.begin(),
                                lane->graph_ns.end());
        break;
      case Wait::kEach:
        gpu_.Launch(lane, Next());
        break;
      case Wait::kFours:
        for (size_t i = 0; i < kFour; ++i) gpu_.Launch(lane, Next());
        Check(cuEventRecord(ends_[0], lane->stream), "record");
        Check(cuEventSynchronize(ends_[0]), "wait");
        return;
      case Wait::kBatch:
        for (size_t i = 0; i < plan_.at_once; ++i) gpu_.Launch(lane, Next());
        break;
    }
    Check(cuStreamSynchronize(lane->stream), "wait");
  }

  // A batch is always queued behind the one that runs.
  void Deep(Lane* lane, size_t unit) {
    double queued_ns = 0;
    for (size_t i = 0; i < kMostAhead && queued_ns < kAheadNs; ++i) {
      const uint64_t ns = Next();
      gpu_.Launch(lane, ns);
      queued_ns += static_cast<double>(ns);
    }
    Check(cuEventRecord(ends_[unit % 2], lane->stream), "record");
    if (unit > 0) Check(cuEventSynchronize(ends_[(unit - 1) % 2]), "wait");
  }

  void Copy(const Lane& lane) const {
    if (plan_.copy_bytes == 0) return;
    Check(cuMemcpyHtoDAsync_v2(lane.copied, lane.host, plan_.copy_bytes, lane.stream), "copy");
    Check(cuMemcpyDtoHAsync_v2(lane.host, lane.copied, plan_.copy_bytes, lane.stream), "copy");
  }

  void WaitForAll() const {
    for (const Lane& lane : lanes_) Check(cuStreamSynchronize(lane.stream), "wait");
  }

  const Gpu& gpu_;
  const ThreadPlan& plan_;
  std::vector<Lane> lanes_;
  CUevent ends_[2] = {};
  size_t next_ = 0;
  double seconds_ = 0;
};

std::vector<Record> RecordsOf(const Lane& lane) {
  std::vector<Record> records(std::min(lane.lengths_ns.size(), kCapacity));
  if (records.empty()) return records;
  Check(cuMemcpyDtoH_v2(records.data(), lane.records, records.size() * sizeof(Record)), "records");
  return records;
}

void Write(const std::vector<Worker*>& workers, const char* path) {
  FILE* file = std::fopen(path, "wb");
  bool written = file != nullptr;
  for (const Worker* worker : workers) {
    for (const Lane& lane : worker->Lanes()) {
      const std::vector<Record> records = RecordsOf(lane);
      for (size_t i = 0; i < records.size(); ++i) {
        const uint64_t line[] = {~records[i].not_begin, records[i].end, lane.lengths_ns[i]};
        written = written && std::fwrite(line, sizeof line, 1, file) == 1;
      }
    }
  }
  if (written && std::fclose(file) == 0) return;
  std::fprintf(stderr, "cannot write %s\n", path);
  std::exit(1);
}

// The shortest of many, one by one: a neighbour's time slice can only make a kernel longer.
double TurnsPerNs(const Gpu& gpu, unsigned blocks) {
  Lane lane;
  lane.blocks = blocks;
  Check(cuStreamCreate(&lane.stream, CU_STREAM_NON_BLOCKING), "stream");
  Check(cuMemAlloc_v2(&lane.records, kCapacity * sizeof(Record)), "records");
  Check(cuMemAlloc_v2(&lane.arrivals, 64), "arrivals");
  Clear(lane);
  for (int i = 0; i < kCalibrationRuns; ++i) {
    gpu.Put(lane, kCalibrationTurns, kCalibrationTurns);
    Check(cuStreamSynchronize(lane.stream), "wait");
  }
  lane.lengths_ns.resize(kCalibrationRuns);
  uint64_t least = UINT64_MAX;
  for (const Record& one : RecordsOf(lane)) {
    if (one.end == 0) return 1;  // the simulator's kernels write nothing
    least = std::min(least, one.end - ~one.not_begin);
  }
  return static_cast<double>(kCalibrationTurns) / static_cast<double>(std::max<uint64_t>(least, 1));
}

int Calibrate() {
  Gpu gpu;
  gpu.Open();
  std::printf("{\"one\": %.9f, \"full\": %.9f}\n", TurnsPerNs(gpu, 1),
              TurnsPerNs(gpu, gpu.fill_blocks));
  return 0;
}

bool Read(std::istringstream* words, const char* expected) {
  std::string line, first;
  if (!std::getline(std::cin, line)) return false;
  words->str(line);
  return *words >> first && first == expected;
}

void Say(const char* line) {
  std::printf("%s\n", line);
  std::fflush(stdout);
}

int Work(const Plan& plan, double turns_one, double turns_full, const char* path) {
  std::istringstream words;
  Say("loaded");
  if (!Read(&words, "prepare")) return 2;
  Gpu gpu;
  gpu.turns_one = turns_one;
  gpu.turns_full = turns_full;
  gpu.Open();
  std::vector<Worker*> workers;  // lives as long as the process
  for (const ThreadPlan& thread : plan.threads) workers.push_back(new Worker(gpu, thread));
  Say("ready");
  std::istringstream go;
  double seconds = 0, delay = 0;
  if (!Read(&go, "go") || !(go >> seconds >> delay)) return 2;
  usleep(static_cast<useconds_t>(delay * 1e6));
  std::vector<std::thread> threads;
  for (Worker* worker : workers) threads.emplace_back([=] { worker->Run(seconds - delay); });
  for (std::thread& thread : threads) thread.join();
  double rate = 0, longest = 0;
  size_t kernels = 0;
  for (const Worker* worker : workers) {
    rate += worker->WorkNs() / 1e9 / worker->TakenS();
    longest = std::max(longest, worker->TakenS());
    for (const Lane& lane : worker->Lanes()) kernels += lane.lengths_ns.size();
  }
  Write(workers, path);
  std::printf("{\"rate\": %.5f, \"seconds\": %.4f, \"kernels\": %zu, \"plan\": \"%s\"}\n",
              100 * rate, longest, kernels, plan.Told().c_str());
  std::fflush(stdout);
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (count == 2 && std::strcmp(words[1], "calibrate") == 0) return Calibrate();
  Plan plan;
  if (count < 6 || std::strcmp(words[1], "work") != 0 || !plan.Read(words + 5, count - 5)) {
    std::fprintf(stderr, "usage: kernels calibrate | kernels work ONE FULL FILE PLAN ...\n");
    return 2;
  }
  return Work(plan, std::atof(words[2]), std::atof(words[3]), words[4]);
}
