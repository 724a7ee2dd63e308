// A process beside others on one GPU: when it has the GPU, and how long it waits for its kernels.
// link: cuda
//
//   time_slices deep KERNEL_US MS
//   time_slices waits KERNEL_US MS [COUNT PAUSE_US [copied | filled]]
//   time_slices gate KERNEL_US MS OPEN_US
//
// For MS, deep keeps a queue full and prints {"on_us", "away_us": how long it had the GPU and then
// did not, the medians; "percent": of the time that it had it}. waits records an event, launches
// COUNT kernels, records another one and waits for it, then pauses. In front of the first event it
// copied something to the host (copied), or did that and filled something (filled). It prints
// {"host_us": from the first record to the end of the wait, "events_us": between the events, the
// means}. gate has a stream wait for a word of memory in front of its kernel, some milliseconds
// later makes the word true for OPEN_US, and prints {"passed": the percent of waits that ended}.
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "support/time_program.h"

using namespace timing;

namespace {

constexpr double kWarmUpUs = 20'000;  // until all of them are at work
constexpr size_t kKept = 4'096;       // events, more than a stream's queue takes
constexpr double kShortestAwayUs = 5;
constexpr unsigned long kSlackNs = 1'000;        // who waits for a GPU spins
constexpr unsigned long kPauseSlackNs = 60'000;  // who sleeps does not

double NowUs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

double MedianOf(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Reads the GPU's time off the ends of short kernels.
class Deep {
 public:
  Deep(const Gpu& gpu, unsigned long long kernel_us) : gpu_(gpu), kernel_us_(kernel_us) {
    for (CUevent& event : events_) event = NewEvent();
  }

  void RunUntil(double end_us) {
    CUstream stream = NewStream();
    const double begin_us = NowUs() + kWarmUpUs;
    for (size_t i = 0; NowUs() < end_us; ++i) {
      if (i >= kKept && NowUs() > begin_us) See(events_[i % kKept], events_[(i + 1) % kKept]);
      MUST(gpu_.Spin(stream, kernel_us_ * kUs));
      MUST(cuEventRecord(events_[i % kKept], stream));
    }
    MUST(cuStreamSynchronize(stream));
  }

  void Say() {
    double on_us = 0;
    double away_us = 0;
    for (double us : on_us_) on_us += us;
    for (double us : away_us_) away_us += us;
    Facts facts;
    facts.Say("on_us", MedianOf(on_us_));
    facts.Say("away_us", MedianOf(away_us_));
    facts.Say("percent", away_us == 0 ? 100 : 100 * on_us / (on_us + away_us));
  }

 private:
  // A kernel during which the process is away takes longer by that, which its own clock would say.
  void See(CUevent before, CUevent end) {
    float milliseconds = 0;
    MUST(cuEventElapsedTime(&milliseconds, before, end));
    const double away_us = milliseconds * 1e3 - static_cast<double>(kernel_us_);
    since_us_ += static_cast<double>(kernel_us_);
    if (away_us < kShortestAwayUs) return;
    if (is_seen_) {
      on_us_.push_back(since_us_);
      away_us_.push_back(away_us);
    }
    is_seen_ = true;
    since_us_ = 0;
  }

  const Gpu& gpu_;
  unsigned long long kernel_us_;
  std::vector<CUevent> events_ = std::vector<CUevent>(kKept);
  bool is_seen_ = false;
  double since_us_ = 0;
  std::vector<double> on_us_;
  std::vector<double> away_us_;
};

struct Waits {
  unsigned long long kernel_ns;
  int count;
  unsigned pause_us;
  bool copies = false;
  bool fills = false;
  double host_us = 0;
  double events_us = 0;
  int rounds = 0;

  void RunUntil(const Gpu& gpu, double end_us) {
    CUstream stream = NewStream();
    CUevent start = NewEvent();
    CUevent end = NewEvent();
    CUdeviceptr result = 0;
    unsigned copied = 0;
    MUST(cuMemAlloc_v2(&result, sizeof copied));
    const double begin_us = NowUs() + kWarmUpUs;
    while (NowUs() < end_us) {
      Pause();
      if (copies) MUST(cuMemcpyDtoHAsync_v2(&copied, result, sizeof copied, stream));
      if (copies) MUST(cuStreamSynchronize(stream));
      if (fills) MUST(cuMemsetD32Async(result, 0, 1, stream));
      const double before_us = NowUs();
      MUST(cuEventRecord(start, stream));
      for (int i = 0; i < count; ++i) MUST(gpu.Spin(stream, kernel_ns));
      MUST(cuEventRecord(end, stream));
      MUST(cuStreamSynchronize(stream));
      if (before_us < begin_us) continue;
      host_us += NowUs() - before_us;
      events_us += ElapsedUs(start, end);
      ++rounds;
    }
  }

  void Pause() const {
    if (pause_us == 0) return;
    const timespec time = {0, static_cast<long>(pause_us) * 1'000};
    prctl(PR_SET_TIMERSLACK, kPauseSlackNs);
    nanosleep(&time, nullptr);
    prctl(PR_SET_TIMERSLACK, kSlackNs);
  }

  void Say() const {
    Facts facts;
    facts.Say("host_us", host_us / rounds);
    facts.Say("events_us", events_us / rounds);
  }
};

class Gate {
 public:
  void RunUntil(const Gpu& gpu, unsigned long long kernel_ns, unsigned open_us, double end_us) {
    MUST(cuMemHostAlloc(reinterpret_cast<void**>(&word_), 2 * sizeof(unsigned), 0));
    CUstream stream = NewStream();
    while (NowUs() < end_us) {
      Write(0, kClosed);
      Write(1, 0);
      Put(stream);
      MUST(gpu.Spin(stream, kernel_ns));
      usleep(3'000 + 371 * static_cast<unsigned>(rounds_ % 11));
      Write(0, kOpen);
      cuStreamQuery(stream);  // the simulator looks at words when somebody calls it
      usleep(open_us);
      Write(0, kClosed);
      usleep(kSliceUs);
      passed_ += __atomic_load_n(&word_[1], __ATOMIC_ACQUIRE);
      ++rounds_;
      Write(0, kOpen);
      MUST(cuStreamSynchronize(stream));
    }
  }

  void Say() const {
    Facts facts;
    facts.Say("passed", 100.0 * passed_ / rounds_);
  }

 private:
  static constexpr unsigned kOpen = 1;
  static constexpr unsigned kClosed = 0;
  static constexpr unsigned kSliceUs = 3'000;  // and what it takes to get it

  void Write(int place, unsigned value) const {
    __atomic_store_n(&word_[place], value, __ATOMIC_RELEASE);
  }

  // The GPU waits for the first word, and then writes the second.
  void Put(CUstream stream) const {
    CUstreamBatchMemOpParams ops[2] = {};
    ops[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    ops[0].waitValue.address = reinterpret_cast<CUdeviceptr>(&word_[0]);
    ops[0].waitValue.value = kOpen;
    ops[0].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    ops[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    ops[1].writeValue.address = reinterpret_cast<CUdeviceptr>(&word_[1]);
    ops[1].writeValue.value = 1;
    MUST(cuStreamBatchMemOp_v2(stream, 2, ops, 0));
  }

  unsigned* word_ = nullptr;
  unsigned passed_ = 0;
  unsigned rounds_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const double kernel_us = strtod(argv[2], nullptr);
  prctl(PR_SET_TIMERSLACK, kSlackNs);
  const Gpu gpu;
  const double end_us = NowUs() + strtod(argv[3], nullptr) * 1e3;
  if (strcmp(argv[1], "deep") == 0) {
    Deep deep(gpu, static_cast<unsigned long long>(kernel_us));
    deep.RunUntil(end_us);
    deep.Say();
    return 0;
  }
  if (strcmp(argv[1], "gate") == 0 && argc > 4) {
    Gate gate;
    const auto kernel_ns = static_cast<unsigned long long>(kernel_us * kUs);
    gate.RunUntil(gpu, kernel_ns, static_cast<unsigned>(atoi(argv[4])), end_us);
    gate.Say();
    return 0;
  }
  Waits waits{static_cast<unsigned long long>(kernel_us * kUs), 1, 0};
  if (argc > 4) waits.count = atoi(argv[4]);
  if (argc > 5) waits.pause_us = static_cast<unsigned>(atoi(argv[5]));
  waits.fills = argc > 6 && strcmp(argv[6], "filled") == 0;
  waits.copies = argc > 6;
  waits.RunUntil(gpu, end_us);
  waits.Say();
  return 0;
}
