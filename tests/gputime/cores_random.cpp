// A program drawn at random (bench/colocation/random_plan.h) on a simulated GPU, in virtual time.
// link: cuda
// flags: -pthread
//
//   cores_random MS SEED [full]
//
// full: every kernel fills the GPU, whatever the plan says, so that what ran is what was launched.
// Prints {"share": of a hundred nanoseconds, those that its kernels took; "plan": what it is}.
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "colocation/random_plan.h"
#include "support/time_program.h"

using colocation::Plan;
using colocation::ThreadPlan;
using colocation::Wait;
using namespace timing;

namespace {

constexpr double kAheadNs = 20e6;
constexpr size_t kMostAhead = 256;
constexpr size_t kFour = 4;
constexpr size_t kBusSlower = 512;  // than that of the GPU that it stands for

double NowUs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

struct Lane {
  CUstream stream = nullptr;
  CUdeviceptr copied = 0;
  void* host = nullptr;
  CUgraphExec graph = nullptr;
  double graph_ns = 0;
};

class Worker {
 public:
  Worker(const Gpu& gpu, const ThreadPlan& plan, bool is_full)
      : gpu_(gpu), plan_(plan), blocks_(is_full || plan.blocks == 0 ? kWholeGpu : plan.blocks) {
    for (unsigned i = 0; i < plan.streams; ++i) lanes_.push_back(Opened());
    for (CUevent& end : ends_) end = NewEvent(CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
  }

  void Run(double us) {
    prctl(PR_SET_TIMERSLACK, 1);
    MUST(cuCtxSetCurrent(gpu_.context));
    const double begin_us = NowUs();
    double burst_us = begin_us;
    for (size_t unit = 0; NowUs() - begin_us < us; ++unit) {
      Lane* lane = &lanes_[unit % lanes_.size()];
      Unit(lane, unit);
      Copy(*lane);
      if (plan_.pause_us > 0) usleep(plan_.pause_us);
      if (plan_.burst_ms > 0 && NowUs() - burst_us >= plan_.burst_ms * 1e3) {
        WaitForAll();
        usleep(plan_.burst_pause_ms * 1000);
        burst_us = NowUs();
      }
    }
    WaitForAll();
    taken_us_ = NowUs() - begin_us;
  }

  double Share() const { return work_ns_ / 10 / taken_us_; }

 private:
  void Launch(const Lane& lane, uint64_t ns) {
    MUST(gpu_.Spin(lane.stream, ns, blocks_));
    work_ns_ += static_cast<double>(ns);
  }

  Lane Opened() {
    Lane lane;
    lane.stream = NewStream();
    if (plan_.copy_bytes != 0) {
      MUST(cuMemAlloc_v2(&lane.copied, plan_.copy_bytes));
      MUST(cuMemHostAlloc(&lane.host, plan_.copy_bytes, 0));
    }
    if (plan_.wait == Wait::kGraph) Capture(&lane);
    return lane;
  }

  void Capture(Lane* lane) {
    CUgraph graph = nullptr;
    MUST(cuStreamBeginCapture_v2(lane->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (size_t i = 0; i < plan_.at_once; ++i) {
      Launch(*lane, plan_.lengths_ns[i % plan_.lengths_ns.size()]);
    }
    MUST(cuStreamEndCapture(lane->stream, &graph));
    lane->graph_ns = work_ns_;
    work_ns_ = 0;
    MUST(cuGraphInstantiateWithFlags(&lane->graph, graph, 0));
  }

  uint64_t Next() { return plan_.lengths_ns[next_++ % plan_.lengths_ns.size()]; }

  void Unit(Lane* lane, size_t unit) {
    switch (plan_.wait) {
      case Wait::kDeep:
        return Deep(*lane, unit);
      case Wait::kGraph:
        MUST(cuGraphLaunch(lane->graph, lane->stream));
        work_ns_ += lane->graph_ns;
        break;
      case Wait::kEach:
        Launch(*lane, Next());
        break;
      case Wait::kFours:
        for (size_t i = 0; i < kFour; ++i) Launch(*lane, Next());
        MUST(cuEventRecord(ends_[0], lane->stream));
        MUST(cuEventSynchronize(ends_[0]));
        return;
      case Wait::kBatch:
        for (size_t i = 0; i < plan_.at_once; ++i) Launch(*lane, Next());
        break;
    }
    MUST(cuStreamSynchronize(lane->stream));
  }

  // A batch is always queued behind the one that runs.
  void Deep(const Lane& lane, size_t unit) {
    double queued_ns = 0;
    for (size_t i = 0; i < kMostAhead && queued_ns < kAheadNs; ++i) {
      const uint64_t ns = Next();
      Launch(lane, ns);
      queued_ns += static_cast<double>(ns);
    }
    MUST(cuEventRecord(ends_[unit % 2], lane.stream));
    if (unit > 0) MUST(cuEventSynchronize(ends_[(unit - 1) % 2]));
  }

  void Copy(const Lane& lane) const {
    if (plan_.copy_bytes == 0) return;
    // The simulator really copies: a part of it, over a bus that is slower by as much.
    const size_t bytes = plan_.copy_bytes / kBusSlower;
    MUST(cuMemcpyHtoDAsync_v2(lane.copied, lane.host, bytes, lane.stream));
    MUST(cuMemcpyDtoHAsync_v2(lane.host, lane.copied, bytes, lane.stream));
  }

  void WaitForAll() const {
    for (const Lane& lane : lanes_) MUST(cuStreamSynchronize(lane.stream));
  }

  const Gpu& gpu_;
  const ThreadPlan& plan_;
  const unsigned blocks_;
  std::vector<Lane> lanes_;
  CUevent ends_[2] = {};
  size_t next_ = 0;
  double work_ns_ = 0;
  double taken_us_ = 1;
};

}  // namespace

int main(int argc, char** argv) {
  char kind[] = "random";
  const bool is_full = argc == 4 && strcmp(argv[3], "full") == 0;
  char* words[] = {kind, argc >= 3 ? argv[2] : nullptr};
  Plan plan;
  if ((argc != 3 && !is_full) || !plan.Read(words, 2)) return 2;
  const Gpu gpu;
  std::vector<std::unique_ptr<Worker>> workers;
  for (const ThreadPlan& thread : plan.threads) {
    workers.push_back(std::make_unique<Worker>(gpu, thread, is_full));
  }
  std::vector<std::thread> threads;
  std::atomic<size_t> ended{0};
  for (const auto& worker : workers) {
    threads.emplace_back([&ended, &worker, argv] {
      worker->Run(atof(argv[1]) * 1e3);
      ended.fetch_add(1);
    });
  }
  // Virtual time passes in sleeps; to join a thread is a wait that it does not know.
  while (ended.load() != threads.size()) usleep(1'000);
  for (std::thread& thread : threads) thread.join();
  double share = 0;
  for (const auto& worker : workers) share += worker->Share();
  printf("{\"share\": %.4f, \"plan\": \"%s\"}\n", share, plan.Told().c_str());
  return 0;
}
