// What people put side by side on one GPU, in small: a program of requests, each some kernels.
// Virtual time: what the host takes is slept.
// link: cuda
//
//   cores_tenant MS KERNELS KERNEL_US LAUNCH_US [uneven] [ahead N] [graph] [rate R] [spread]
//                [long EACH US] [burst WORK_MS PAUSE_MS] [sparse US PAUSE_US] [copies] [lanes N]
//                [delay MS] [seed S]
//
// A request is KERNELS kernels of KERNEL_US, launched LAUNCH_US apart, or as one graph, and a wait
// for the last one; or (ahead) for the one N requests before. It follows the one before at once, or
// comes R times a second, at random (rate). Lengths vary from 0.1 to 2 times that (spread); each
// EACH-th kernel of a request takes US (long). Behind so much work is a pause (burst), in which it
// may launch kernels of US, rest before each and wait for it (sparse). A request's result is copied
// to the host (copies). Requests go into N streams, one after the other (lanes). One in five
// launches takes the host 4.2 times as long, and the others a fifth (uneven, as with Python).
//
// Prints {"rate": requests a second, "p50_ms", "p99_ms": of a request from when it came, "busy":
// percent of the GPU's time that its kernels take, "seconds": [...], of each second}.
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cores_ways.h"

using namespace timing;

namespace {

constexpr size_t kResultBytes = 64 << 10;

struct Options {
  double ms, kernel_us, launch_us;
  unsigned kernels;
  unsigned ahead = 0;
  unsigned lanes = 1;
  bool graph = false;
  bool uneven = false;
  bool spread = false;
  bool copies = false;
  unsigned long_each = 0;
  double long_us = 0;
  double rate = 0;
  double work_ms = 0, pause_ms = 0;
  double sparse_us = 0, sparse_pause_us = 0;
  double delay_ms = 0;
  unsigned long long seed = 1;
};

double NowUs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

void SleepUntil(double us) {
  const double left_us = us - NowUs();
  if (left_us <= 0) return;
  timespec time = {};
  time.tv_sec = static_cast<time_t>(left_us / 1e6);
  time.tv_nsec = static_cast<long>(std::fmod(left_us, 1e6) * 1e3);
  nanosleep(&time, nullptr);
}

double Unit(unsigned long long* state) {
  *state += 0x9E3779B97F4A7C15u;
  unsigned long long z = *state;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

bool Read(int argc, char** argv, Options* to) {
  if (argc < 5) return false;
  to->ms = atof(argv[1]);
  to->kernels = static_cast<unsigned>(atoi(argv[2]));
  to->kernel_us = atof(argv[3]);
  to->launch_us = atof(argv[4]);
  for (int i = 5; i < argc; ++i) {
    const auto is = [&](const char* name, int more) {
      return strcmp(argv[i], name) == 0 && i + more < argc;
    };
    if (is("graph", 0)) {
      to->graph = true;
    } else if (is("uneven", 0)) {
      to->uneven = true;
    } else if (is("spread", 0)) {
      to->spread = true;
    } else if (is("copies", 0)) {
      to->copies = true;
    } else if (is("ahead", 1)) {
      to->ahead = static_cast<unsigned>(atoi(argv[++i]));
    } else if (is("lanes", 1)) {
      to->lanes = static_cast<unsigned>(atoi(argv[++i]));
    } else if (is("rate", 1)) {
      to->rate = atof(argv[++i]);
    } else if (is("delay", 1)) {
      to->delay_ms = atof(argv[++i]);
    } else if (is("seed", 1)) {
      to->seed = strtoull(argv[++i], nullptr, 10);
    } else if (is("long", 2)) {
      to->long_each = static_cast<unsigned>(atoi(argv[++i]));
      to->long_us = atof(argv[++i]);
    } else if (is("burst", 2)) {
      to->work_ms = atof(argv[++i]);
      to->pause_ms = atof(argv[++i]);
    } else if (is("sparse", 2)) {
      to->sparse_us = atof(argv[++i]);
      to->sparse_pause_us = atof(argv[++i]);
    } else {
      return false;
    }
  }
  return true;
}

class Tenant {
 public:
  explicit Tenant(const Options& options)
      : options_(options), stream_(NewStream()), work_{gpu_, 0, nullptr} {
    for (lanes_.push_back(stream_); lanes_.size() < options.lanes;) lanes_.push_back(NewStream());
    for (unsigned i = 0; i < options.kernels; ++i) {
      const double times = options.spread ? 0.1 * std::pow(20, Unit(&options_.seed)) : 1;
      const bool is_long = options.long_each != 0 && (i + 1) % options.long_each == 0;
      const double us = is_long ? options.long_us : options.kernel_us * times;
      lengths_ns_.push_back(static_cast<unsigned long long>(us * 1e3));
      request_ns_ += lengths_ns_.back();
    }
    if (options.graph) Capture();
    if (options.copies) {
      MUST(cuMemAlloc_v2(&result_, kResultBytes));
      MUST(cuMemHostAlloc(&copied_, kResultBytes, 0));
    }
    for (unsigned i = 0; i <= options.ahead; ++i)
      ends_.push_back(NewEvent(CU_EVENT_DISABLE_TIMING));
  }

  void Run() {
    prctl(PR_SET_TIMERSLACK, 1);
    begin_us_ = NowUs() + options_.delay_ms * 1e3;
    SleepUntil(begin_us_);
    const double until_us = begin_us_ + (options_.ms - options_.delay_ms) * 1e3;
    double due_us = begin_us_;
    while (NowUs() < until_us) {
      if (options_.rate != 0) {
        due_us += -std::log(1 - Unit(&options_.seed)) * 1e6 / options_.rate;
        SleepUntil(due_us);
        if (due_us >= until_us) break;
      }
      const double came_us = options_.rate != 0 ? due_us : NowUs();
      stream_ = lanes_[ends_us_.size() % lanes_.size()];
      Launch();
      if (options_.copies) MUST(cuMemcpyDtoHAsync_v2(copied_, result_, kResultBytes, stream_));
      Wait();
      const double now_us = NowUs();
      ends_us_.push_back(now_us);
      latencies_us_.push_back(now_us - came_us);
      if (options_.work_ms != 0 &&
          static_cast<double>(++of_burst_ * request_ns_) >= options_.work_ms * 1e6) {
        MUST(cuStreamSynchronize(stream_));
        Pause();
        of_burst_ = 0;
      }
    }
    MUST(cuStreamSynchronize(stream_));
    end_us_ = std::max(NowUs(), until_us);
  }

  void Tell() {
    const double us = end_us_ - begin_us_;
    const auto count = static_cast<double>(ends_us_.size());
    const double of_one = static_cast<double>(request_ns_) / 10;
    const double sparse = static_cast<double>(sparse_) * options_.sparse_us * 100 / us;
    std::sort(latencies_us_.begin(), latencies_us_.end());
    const auto part = [&](double of) {
      if (latencies_us_.empty()) return -1.0;
      const auto last = static_cast<double>(latencies_us_.size() - 1);
      return latencies_us_[static_cast<size_t>(std::lround(of * last))] / 1e3;
    };
    printf("{\"rate\": %.3f, \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"busy\": %.3f, \"seconds\": [",
           count * 1e6 / us, part(0.5), part(0.99), count * of_one / us + sparse);
    const char* separator = "";
    for (double at_us = begin_us_; at_us + 1e6 <= end_us_; at_us += 1e6) {
      const auto ended = std::count_if(ends_us_.begin(), ends_us_.end(), [&](double end_us) {
        return end_us >= at_us && end_us < at_us + 1e6;
      });
      printf("%s%.2f", separator, static_cast<double>(ended) * of_one / 1e6);
      separator = ", ";
    }
    printf("]}\n");
  }

 private:
  void Capture() {
    CUgraph graph = nullptr;
    CUgraphNode before = nullptr;
    MUST(cuGraphCreate(&graph, 0));
    for (unsigned long long ns : lengths_ns_) {
      CUgraphNode node = nullptr;
      void* params[] = {&ns};
      const CUDA_KERNEL_NODE_PARAMS_v2 kernel = NodeOf(gpu_, params);
      MUST(cuGraphAddKernelNode_v2(&node, graph, &before, before == nullptr ? 0 : 1, &kernel));
      before = node;
    }
    work_.graph = Instantiated(graph);
  }

  void Launch() {
    if (options_.graph) {
      SleepUntil(NowUs() + options_.launch_us);
      MUST(cuGraphLaunch(work_.graph, stream_));
      return;
    }
    for (size_t i = 0; i < lengths_ns_.size(); ++i) {
      if (options_.launch_us != 0) SleepUntil(NowUs() + options_.launch_us * Times());
      work_.ns = lengths_ns_[i];
      work_.blocks = kWholeGpu + static_cast<unsigned>(i);  // each is another function's
      MUST(Kernel(work_, stream_));
    }
  }

  void Pause() {
    const double until_us = NowUs() + options_.pause_ms * 1e3;
    work_.ns = static_cast<unsigned long long>(options_.sparse_us * 1e3);
    while (work_.ns != 0 && NowUs() + options_.sparse_pause_us < until_us) {
      SleepUntil(NowUs() + options_.sparse_pause_us);
      MUST(Kernel(work_, stream_));
      MUST(cuStreamSynchronize(stream_));
      ++sparse_;
    }
    SleepUntil(until_us);
  }

  // How many times LAUNCH_US the host takes to the next launch; 1 in the mean.
  double Times() {
    if (!options_.uneven) return 1;
    return Unit(&options_.seed) < 0.2 ? 4.2 : 0.2;
  }

  void Wait() {
    if (options_.ahead == 0) {
      MUST(cuStreamSynchronize(stream_));
      return;
    }
    const size_t count = ends_us_.size();
    MUST(cuEventRecord(ends_[count % ends_.size()], stream_));
    if (count >= options_.ahead) MUST(cuEventSynchronize(ends_[(count + 1) % ends_.size()]));
  }

  Options options_;
  Gpu gpu_;
  CUstream stream_;
  std::vector<CUstream> lanes_;
  Work work_;
  std::vector<unsigned long long> lengths_ns_;
  unsigned long long request_ns_ = 0;
  CUdeviceptr result_ = 0;
  void* copied_ = nullptr;
  std::vector<CUevent> ends_;
  std::vector<double> latencies_us_, ends_us_;
  unsigned long long of_burst_ = 0;
  unsigned long long sparse_ = 0;
  double begin_us_ = 0, end_us_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  Options options = {};
  if (!Read(argc, argv, &options)) return 2;
  Tenant tenant(options);
  tenant.Run();
  tenant.Tell();
  return 0;
}
