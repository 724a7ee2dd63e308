// Ranks that compute and then meet in a collective, step by step, a GPU each: a kernel of the
// collective runs until all ranks have begun theirs, and its length beyond.
// link: cuda
// flags: -pthread
//
//   cores_gang STEPS [NAME=VALUE ...]
//
// first=0 and ranks=2: which of them this process has, a thread each; devices=2: all there are.
// gpu: on which one a rank is, its number else; group=0 and place, its number else: who meets whom.
// from and to: instead, it is a stage of a pipeline, and begins its steps by meeting the one before
// it in the one group, and ends them by meeting the next one in the other.
// kernels=10 of compute=100 us each, then a collective of length=200 us; the host takes host=5 us
// for each launch. A name with a rank's number behind it is that rank's alone (compute1=120). lone:
// so many collectives come first that no other rank takes part in. waits=1: each of those is waited
// for, and each step of plain. graph=1: the collective is a
// graph. stream=1: it has a stream of its own, which the next step waits for; stream=2: only the
// one behind that does. plain: so many more steps without a collective. late: so many us before the
// first step. pause: so many in the middle. shrinks: from that step on only two devices meet. ends:
// the rank does steps for ever, or with meets=0 only computes behind so many, and its process is
// killed so many us (after) later; or stopped, and killed when it goes on (stops=1).
//
// Prints {"us": from the first step to the end of the last, "share": percent of it during which
// kernels ran, waiting for other ranks included} of each rank, with its number behind the name.
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <vector>

#include "support/time_program.h"

using namespace timing;

namespace {

constexpr char kCollectives[] = R"(
.version 7.0
.target sm_50
.address_size 64
.visible .entry ncclDevKernel_AllReduce_ns(.param .u64 ns, .param .u64 ranks, .param .u64 group,
                                           .param .u64 rank) { ret; }
.visible .entry ncclKernel_Lone_10us() { ret; }
)";
constexpr int kMostRanks = 4;
constexpr unsigned long long kNowhere = ~0ull;

int argument_count = 0;
char** arguments = nullptr;

unsigned long long NowNs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<unsigned long long>(now.tv_sec) * 1'000'000'000u +
         static_cast<unsigned long long>(now.tv_nsec);
}

double NowUs() { return static_cast<double>(NowNs()) / 1e3; }

// What was given for a rank, or for all.
unsigned long long Value(const char* name, int rank, unsigned long long otherwise) {
  char own[64];
  snprintf(own, sizeof own, "%s%d=", name, rank);
  char all[64];
  snprintf(all, sizeof all, "%s=", name);
  unsigned long long value = otherwise;
  for (int i = 2; i < argument_count; ++i) {
    const char* given = arguments[i];
    if (strncmp(given, all, strlen(all)) == 0) value = strtoull(given + strlen(all), nullptr, 10);
  }
  for (int i = 2; i < argument_count; ++i) {
    const char* given = arguments[i];
    if (strncmp(given, own, strlen(own)) == 0) value = strtoull(given + strlen(own), nullptr, 10);
  }
  return value;
}

// What of the time between the events around a collective is none of it, by the simulated GPU.
double PauseUs(const char* name) {
  const std::string variable = std::string("GPUFENCE_SIM_") + name;
  const char* ns = getenv(variable.c_str());
  return ns != nullptr ? strtod(ns, nullptr) / 1e3 : 0;
}

struct Rank {
  int number;
  double us;
  double share;
  std::atomic<bool> ends;
  std::atomic<bool> is_done;
};

class Runner {
 public:
  explicit Runner(int number)
      : gpu_(0, static_cast<int>(Value("gpu", number, static_cast<unsigned long long>(number)))),
        stream_(NewStream()),
        meeting_stream_(Value("stream", number, 0) != 0 ? NewStream() : stream_),
        is_overlapped_(Value("stream", number, 0) == 2),
        devices_(Value("devices", number, 2)),
        group_(Value("group", number, 0)),
        place_(Value("place", number, static_cast<unsigned long long>(number))),
        from_(Value("from", number, kNowhere)),
        to_(Value("to", number, kNowhere)),
        is_stage_(from_ != kNowhere || to_ != kNowhere),
        waits_(Value("waits", number, 0) != 0),
        kernels_(Value("kernels", number, 10)),
        compute_ns_(Value("compute", number, 100) * kUs),
        length_ns_(Value("length", number, 200) * kUs),
        host_ns_(Value("host", number, 5) * kUs),
        is_graph_(Value("graph", number, 0) != 0) {
    CUmodule module = nullptr;
    MUST(cuModuleLoadData(&module, kCollectives));
    MUST(cuModuleGetFunction(&collective_, module, "ncclDevKernel_AllReduce_ns"));
    MUST(cuModuleGetFunction(&lone_, module, "ncclKernel_Lone_10us"));
    usleep(static_cast<useconds_t>(Value("late", number, 0)));
    for (auto left = Value("lone", number, 0); left > 0; --left) {
      Enqueue(lone_, nullptr, stream_);
      if (waits_) MUST(cuStreamSynchronize(stream_));
    }
    if (is_graph_) Capture();
  }

  void Run(Rank* rank, unsigned long long steps, unsigned long long plain) {
    const unsigned long long begin_ns = NowNs();
    const unsigned long long shrinks = Value("shrinks", rank->number, steps);
    const unsigned long long ends = Value("ends", rank->number, steps);
    for (unsigned long long i = 0; i < steps; ++i) {
      if (i == steps / 2) usleep(static_cast<useconds_t>(Value("pause", rank->number, 0)));
      if (i == shrinks) devices_ = 2;
      Step();
      if (i == ends) GoOn(rank);
    }
    for (unsigned long long i = 0; i < plain; ++i) {
      Compute();
      if (waits_) MUST(cuStreamSynchronize(stream_));
    }
    MUST(cuCtxSynchronize());
    const auto took_us = static_cast<double>(NowNs() - begin_ns) / 1e3;
    double busy_us = static_cast<double>((steps + plain) * kernels_ * compute_ns_) / 1e3;
    const double pauses_us =
        PauseUs("EVENT_GAP_NS") + PauseUs("LAUNCH_GAP_NS") + PauseUs("EVENT_NS");
    for (size_t i = 0; i + 1 < marks_.size(); i += 2) {
      busy_us += ElapsedUs(marks_[i], marks_[i + 1]) - pauses_us;
    }
    rank->us = took_us;
    rank->share = 100 * busy_us / took_us;
    rank->is_done.store(true, std::memory_order_release);
  }

 private:
  void Spend() const { BusyUntil(NowUs, NowUs() + static_cast<double>(host_ns_) / 1e3); }

  void Enqueue(CUfunction function, void** params, CUstream stream) const {
    MUST(cuLaunchKernel(function, kWholeGpu, 1, 1, 1, 1, 1, 0, stream, params, nullptr));
    Spend();
  }

  void Compute() {
    for (unsigned long long i = 0; i < kernels_; ++i) {
      MUST(gpu_.Spin(stream_, compute_ns_, kWholeGpu));
      Spend();
    }
  }

  // Until the process ends.
  void GoOn(Rank* rank) {
    const bool meets = Value("meets", rank->number, 1) != 0;
    MUST(cuCtxSynchronize());
    rank->ends.store(true, std::memory_order_release);
    for (;;) meets ? Step() : Compute();
  }

  void Meet(unsigned long long ranks, unsigned long long group, unsigned long long place) const {
    unsigned long long length_ns = length_ns_;
    void* params[] = {&length_ns, &ranks, &group, &place};
    Enqueue(collective_, params, meeting_stream_);
  }
  void Meet() const { Meet(devices_, group_, place_); }

  // What one stage of a pipeline has for the next one, which waits for it.
  void Pass(unsigned long long group, unsigned long long place) {
    if (group == kNowhere) return;
    marks_.push_back(Mark(stream_));
    Meet(2, group, place);
    marks_.push_back(Mark(stream_));
  }

  void Capture() {
    CUgraph graph = nullptr;
    MUST(cuStreamBeginCapture_v2(meeting_stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    Meet();
    MUST(cuStreamEndCapture(meeting_stream_, &graph));
    MUST(cuGraphInstantiateWithFlags(&meeting_, graph, 0));
  }

  void Step() {
    Pass(from_, 1);
    Compute();
    Pass(to_, 0);
    if (is_stage_) return;
    if (meeting_stream_ != stream_) Follow(stream_, meeting_stream_);
    const CUevent last_end = marks_.empty() ? nullptr : marks_.back();
    marks_.push_back(Mark(meeting_stream_));
    if (is_graph_) {
      MUST(cuGraphLaunch(meeting_, meeting_stream_));
      Spend();
    } else {
      Meet();
    }
    marks_.push_back(Mark(meeting_stream_));
    if (meeting_stream_ == stream_) return;
    const CUevent awaited = is_overlapped_ ? last_end : marks_.back();
    if (awaited != nullptr) MUST(cuStreamWaitEvent(stream_, awaited, 0));
  }

  static void Follow(CUstream first, CUstream second) {
    MUST(cuStreamWaitEvent(second, Mark(first), 0));
  }

  Gpu gpu_;
  CUstream stream_;
  CUstream meeting_stream_;
  bool is_overlapped_;
  unsigned long long devices_;
  unsigned long long group_;
  unsigned long long place_;
  unsigned long long from_;
  unsigned long long to_;
  bool is_stage_;
  bool waits_;
  unsigned long long kernels_;
  unsigned long long compute_ns_;
  unsigned long long length_ns_;
  unsigned long long host_ns_;
  bool is_graph_;
  CUfunction collective_ = nullptr;
  CUfunction lone_ = nullptr;
  CUgraphExec meeting_ = nullptr;
  std::vector<CUevent> marks_;  // before and behind each collective
};

void* RunRank(void* given) {
  Rank* rank = static_cast<Rank*>(given);
  Runner runner(rank->number);
  const unsigned long long steps = strtoull(arguments[1], nullptr, 10);
  runner.Run(rank, steps, Value("plain", rank->number, 0));
  return nullptr;
}

void EndBehind(const Rank& rank) {
  if (!rank.ends.load(std::memory_order_acquire)) return;
  usleep(static_cast<useconds_t>(Value("after", rank.number, 0)));
  if (Value("stops", rank.number, 0) != 0) kill(getpid(), SIGSTOP);
  kill(getpid(), SIGKILL);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  argument_count = argc;
  arguments = argv;
  const int first = static_cast<int>(Value("first", 0, 0));
  const int count = static_cast<int>(Value("ranks", 0, 2));
  if (count > kMostRanks) return 2;
  Rank ranks[kMostRanks] = {};
  pthread_t threads[kMostRanks];
  MUST(cuInit(0));
  for (int i = 0; i < count; ++i) {
    ranks[i].number = first + i;
    if (pthread_create(&threads[i], nullptr, RunRank, &ranks[i]) != 0) return 1;
  }
  // Where time is virtual nobody may block otherwise.
  for (int i = 0; i < count; ++i) {
    while (!ranks[i].is_done.load(std::memory_order_acquire)) {
      usleep(1'000);
      EndBehind(ranks[i]);
    }
  }
  Facts facts;
  for (int i = 0; i < count; ++i) {
    char name[32];
    snprintf(name, sizeof name, "us%d", ranks[i].number);
    facts.Say(name, ranks[i].us);
    snprintf(name, sizeof name, "share%d", ranks[i].number);
    facts.Say(name, ranks[i].share);
  }
  return 0;
}
