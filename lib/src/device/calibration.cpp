#include "device/calibration.h"

#include <algorithm>
#include <cstdlib>

#include "base/forked.h"
#include "base/futex.h"
#include "device/context_scope.h"
#include "device/paces.h"
#include "real.h"

namespace gpufence {
namespace {

// The clock by which the kernel ends is the multiprocessor's, so that what the other one rounds is
// rounded up as often as down. PTX that each driver since CUDA 9 compiles for each GPU that it has.
constexpr char kKernel[] = R"(
.version 6.0
.target sm_50
.address_size 64
.visible .global .align 8 .b64 gpufence_paces[16384];
.visible .entry gpufence_pace(.param .u64 cycles, .param .u32 index)
{
    .reg .pred %p<2>;
    .reg .b32 %r<4>;
    .reg .b64 %rd<10>;
    mov.u64 %rd1, %globaltimer;
    mov.u64 %rd2, %clock64;
    ld.param.u64 %rd3, [cycles];
    ld.param.u32 %r1, [index];
    mov.u32 %r2, %ctaid.x;
    add.u32 %r3, %r1, %r2;
again:
    mov.u64 %rd4, %clock64;
    sub.s64 %rd5, %rd4, %rd2;
    setp.lt.u64 %p1, %rd5, %rd3;
    @%p1 bra again;
    mov.u64 %rd6, gpufence_paces;
    mul.wide.u32 %rd7, %r3, 16;
    add.s64 %rd8, %rd6, %rd7;
    st.global.u64 [%rd8], %rd1;
    mov.u64 %rd9, %globaltimer;
    st.global.u64 [%rd8+8], %rd9;
    ret;
}
)";

struct Pace {
  uint64_t begin_ns;
  uint64_t end_ns;
};

constexpr uint32_t kPlaces = 8192;  // that gpufence_paces has, one for each block
constexpr uint32_t kQueued = 12;    // kernels behind each other, in a batch
constexpr uint32_t kSingle = 6;     // kernels in an idle stream, in a batch
// Between kernels with one block on each multiprocessor lie 0.1 us less than between usual ones,
// which have more and write to memory: 1.56 us and 1.65 to 1.73 (H200).
constexpr uint32_t kBlocksEach = 2;
constexpr uint32_t kMostBlocks = kPlaces / (kQueued + 1);
constexpr uint32_t kMarked = 6;  // of the queued ones have a marker behind them
constexpr uint32_t kAside = 12;  // the event of a marker that stands for itself
static_assert(2 * kSingle <= kQueued && 2 * kSingle <= kAside && 2 * kMarked <= kAside);
constexpr uint64_t kPaceCycles = 8'000;
// Each of a batch takes so much more than the one before, so that what a coarse clock rounds is
// another part of its step each time.
constexpr uint64_t kMoreCycles = 331;
constexpr uint64_t kLongestNs = 100'000'000;  // all batches
// In front of a batch the GPU is busy until all of it is queued, for so long in between.
constexpr uint64_t kLeastAheadNs = 50'000;
constexpr uint64_t kMostAheadNs = 1'000'000;
constexpr int64_t kLeastGapNs = 100;  // from kernel to kernel, of anything that is a GPU
constexpr uint64_t kMostPolledNs = 5'000'000;
// The wait for a kernel in an idle stream is longer only if somebody else has the GPU or the
// processor.
constexpr int64_t kMostAloneNs = 500'000;
constexpr int64_t kStrayNs = 4'000;  // two clocks of microseconds round off less
constexpr uint32_t kMostLost = 3;    // such batches in a row: it is the GPU
// So many batches must agree. Beside others few are to be had, and what disturbs them is a slice.
constexpr size_t kLeast = 5;
constexpr size_t kLeastBeside = 3;
constexpr uint64_t kMostLeadNs = 10'000;  // as MarkedStream::LeadNs

// What a marker between queued kernels takes at most, beyond its mean: a probe that took longer was
// not queued.
constexpr uint32_t kQueuedMore = 3;
constexpr uint32_t kQueuedLess = 2;

constexpr uint64_t CyclesOf(uint32_t kernel) { return kPaceCycles + kernel * kMoreCycles; }

CUgraphExec Instantiate(CUgraph graph) {
  CUgraphExec made = nullptr;
  if (real::cuGraphInstantiateWithFlags(&made, graph, 0) == CUDA_SUCCESS) return made;
  return real::cuGraphInstantiate_v2(&made, graph, nullptr, nullptr, 0) == CUDA_SUCCESS ? made
                                                                                        : nullptr;
}

// The kernel, a stream for it and events; given back with it.
class Pacer {
 public:
  explicit Pacer(uint32_t blocks)
      : blocks_(std::clamp(blocks, 1u, kMostBlocks)),
        read_(static_cast<Pace*>(MapWipedOnFork(kReadBytes))) {}
  ~Pacer() {
    if (executable_ != nullptr) real::cuGraphExecDestroy(executable_);
    for (const CUevent event : events_) {
      if (event != nullptr) real::cuEventDestroy_v2(event);
    }
    if (stream_ != nullptr) real::cuStreamDestroy_v2(stream_);
    if (module_ != nullptr) real::cuModuleUnload(module_);
    if (read_ != nullptr) UnmapWipedOnFork(read_, kReadBytes);
  }
  Pacer(const Pacer&) = delete;
  Pacer& operator=(const Pacer&) = delete;

  // False: with one clause in `why`.
  bool Open(const char** why) {
    *why = "no memory";
    if (read_ == nullptr) return false;
    *why = "the driver cannot compile the kernel that measuring needs";
    if (real::cuModuleLoadData(&module_, kKernel) != CUDA_SUCCESS) return false;
    *why = "the driver refuses a call that measuring needs";
    size_t bytes = 0;
    if (real::cuModuleGetFunction(&function_, module_, "gpufence_pace") != CUDA_SUCCESS ||
        real::cuModuleGetGlobal_v2(&paces_, &bytes, module_, "gpufence_paces") != CUDA_SUCCESS ||
        bytes < sizeof(Pace) * kPlaces ||
        real::cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
      return false;
    }
    unsigned int flags = 0;
    waits_sleep_ =
        real::cuCtxGetFlags(&flags) == CUDA_SUCCESS && (flags & CU_CTX_SCHED_BLOCKING_SYNC) != 0;
    for (CUevent& event : events_) {
      if (real::cuEventCreate(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) return false;
    }
    MakeGraph();
    return true;
  }
  bool has_graph() const { return executable_ != nullptr; }

  bool Launch(uint32_t kernel) { return Launch(kernel, CyclesOf(kernel)); }
  bool Launch(uint32_t kernel, uint64_t cycles) {
    uint32_t index = kernel * blocks_;
    void* parameters[] = {&cycles, &index};
    return real::cuLaunchKernel(function_, blocks_, 1, 1, 1, 1, 1, 0, stream_, parameters,
                                nullptr) == CUDA_SUCCESS;
  }
  bool LaunchGraph() { return real::cuGraphLaunch(executable_, stream_) == CUDA_SUCCESS; }
  bool Mark(uint32_t event) { return real::cuEventRecord(events_[event], stream_) == CUDA_SUCCESS; }
  bool Wait() { return real::cuStreamSynchronize(stream_) == CUDA_SUCCESS; }
  // The same to the moment: waits that sleep end when they are woken, behind which the GPU and this
  // processor begin late as well.
  bool WaitSharply() {
    if (!waits_sleep_) return Wait();
    const uint64_t until_ns = NowNs() + kMostPolledNs;
    CUresult rc = CUDA_ERROR_NOT_READY;
    while (rc == CUDA_ERROR_NOT_READY && NowNs() < until_ns) rc = real::cuStreamQuery(stream_);
    return rc == CUDA_ERROR_NOT_READY ? Wait() : rc == CUDA_SUCCESS;
  }
  bool IsBehind(uint32_t event) { return real::cuEventQuery(events_[event]) == CUDA_SUCCESS; }

  // From one event to another; both are over.
  bool Between(uint32_t first, uint32_t second, int64_t* ns) {
    float ms = 0;
    if (real::cuEventElapsedTime(&ms, events_[first], events_[second]) != CUDA_SUCCESS)
      return false;
    *ns = static_cast<int64_t>(static_cast<double>(ms) * 1e6);
    return true;
  }

  // When the first `count` kernels ran, from the first block's begin to the last one's end.
  bool Read(uint32_t count, Pace* kernels) {
    const size_t bytes = count * blocks_ * sizeof(Pace);
    if (real::cuMemcpyDtoHAsync_v2(read_, paces_, bytes, stream_) != CUDA_SUCCESS || !Wait()) {
      return false;
    }
    for (uint32_t kernel = 0; kernel < count; ++kernel) {
      Pace* all = &kernels[kernel];
      *all = read_[kernel * blocks_];
      for (uint32_t block = 1; block < blocks_; ++block) {
        const Pace& one = read_[kernel * blocks_ + block];
        if (one.begin_ns == 0) continue;  // a simulated GPU tells of one
        all->begin_ns = std::min(all->begin_ns, one.begin_ns);
        all->end_ns = std::max(all->end_ns, one.end_ns);
      }
    }
    return true;
  }

 private:
  static constexpr size_t kReadBytes = kPlaces * sizeof(Pace);  // much for a thread's stack

  // Kernels of which each waits for the one before. None where the driver has no graphs.
  void MakeGraph() {
    CUgraph graph = nullptr;
    if (real::cuGraphCreate(&graph, 0) != CUDA_SUCCESS) return;
    CUgraphNode last = nullptr;
    bool made = true;
    for (uint32_t kernel = 0; made && kernel < kQueued; ++kernel) {
      uint64_t cycles = CyclesOf(kernel);
      uint32_t index = kernel * blocks_;
      void* parameters[] = {&cycles, &index};
      const CUDA_KERNEL_NODE_PARAMS_v1 node = {.func = function_,
                                               .gridDimX = blocks_,
                                               .gridDimY = 1,
                                               .gridDimZ = 1,
                                               .blockDimX = 1,
                                               .blockDimY = 1,
                                               .blockDimZ = 1,
                                               .sharedMemBytes = 0,
                                               .kernelParams = parameters,
                                               .extra = nullptr};
      made = real::cuGraphAddKernelNode(&last, graph, last != nullptr ? &last : nullptr,
                                        last != nullptr ? 1 : 0, &node) == CUDA_SUCCESS;
    }
    if (made) executable_ = Instantiate(graph);
    real::cuGraphDestroy(graph);
  }

  const uint32_t blocks_;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
  CUdeviceptr paces_ = 0;
  CUstream stream_ = nullptr;
  CUgraphExec executable_ = nullptr;
  bool waits_sleep_ = false;
  CUevent events_[kAside + 1] = {};
  Pace* read_;
};

int64_t Since(uint64_t from_ns) { return static_cast<int64_t>(NowNs() - from_ns); }
int64_t LengthOf(const Pace& pace) { return static_cast<int64_t>(pace.end_ns - pace.begin_ns); }

// In the mean, between neighbours of so many kernels.
int64_t GapNs(const Pace* kernels, uint32_t count) {
  int64_t sum_ns = 0;
  for (uint32_t i = 1; i < count; ++i) {
    sum_ns += static_cast<int64_t>(kernels[i].begin_ns - kernels[i - 1].end_ns);
  }
  return sum_ns / static_cast<int64_t>(count - 1);
}

// All that is measured, a batch of each in each round.
struct Measured {
  Batches launch_gap;   // between two kernels
  Batches marked_gap;   // ... with a marker between
  Batches two_markers;  // from one to the next
  Batches step_gap;     // between two of a graph
  Batches around_run;   // around a kernel in an idle stream, without the host's part of it
  Batches with_host;    // ... with the host's, from where the marker was recorded
  Batches end_marker;   // by so much a marker behind a kernel makes the wait longer
};

class Measuring {
 public:
  explicit Measuring(Pacer* pacer) : pacer_(*pacer) {}

  // Until batches enough agree, or the time is over. False: a call failed, or what runs there is no
  // GPU's.
  bool Run() {
    const uint64_t until_ns = NowNs() + kLongestNs;
    if (!WarmUp() || !Queue() || !HasPauses()) return false;
    while (!HasEnough() && NowNs() < until_ns) {
      if (!(IsBeside() ? QueueEach() : RunFree())) return false;
    }
    return true;
  }

  const Measured& measured() const { return measured_; }
  size_t least() const { return IsBeside() ? kLeastBeside : kLeast; }

 private:
  // Somebody else keeps the GPU busy.
  bool IsBeside() const { return lost_ >= kMostLost; }

  bool HasEnough() const {
    const auto are = [&](const Batches& batches) {
      uint32_t ns = 0;
      return (IsBeside() || batches.HasEnough()) && batches.Agree(least(), &ns);
    };
    const bool is_queue_known = are(measured_.launch_gap) && are(measured_.two_markers);
    return is_queue_known &&
           (IsBeside() || (are(measured_.around_run) && are(measured_.with_host)));
  }

  // Nothing is as it will be the first time: code and memory are put into place.
  bool WarmUp() {
    if (pacer_.has_graph() && !pacer_.LaunchGraph()) return false;
    for (uint32_t i = 0; i < 3; ++i) {
      const uint64_t from_ns = NowNs();
      if (!pacer_.Mark(0) || !pacer_.Launch(0)) return false;
      host_ns_ = static_cast<uint64_t>(Since(from_ns));
      if (!pacer_.Mark(1)) return false;
    }
    if (!pacer_.Read(1, kernels_)) return false;
    if (kernels_[0].begin_ns == 0 || LengthOf(kernels_[0]) <= 0) return false;
    pace_ns_ = static_cast<uint64_t>(LengthOf(kernels_[0]));
    ahead_ns_ = std::clamp(2 * kQueued * host_ns_, kLeastAheadNs, kMostAheadNs);
    return true;
  }

  // What `put` puts behind a kernel that is long enough is queued as a whole: then `is_queued`.
  template <typename Put>
  bool Behind(Put put, bool* is_queued) {
    if (!pacer_.Launch(kQueued, kPaceCycles * ahead_ns_ / pace_ns_) || !pacer_.Mark(kAside) ||
        !put()) {
      return false;
    }
    *is_queued = !pacer_.IsBehind(kAside);
    if (!*is_queued) ahead_ns_ = std::min(2 * ahead_ns_, kMostAheadNs);
    return pacer_.Read(kQueued, kernels_);
  }

  // Whether the batch that was read last says so.
  bool HasPauses() const { return GapNs(kernels_, kQueued) >= kLeastGapNs; }

  bool Queue() {
    bool is_queued = false;
    const auto put = [&] {
      for (uint32_t i = 0; i < kQueued; ++i) {
        if (!pacer_.Launch(i)) return false;
      }
      return true;
    };
    if (!Behind(put, &is_queued)) return false;
    if (is_queued) measured_.launch_gap.Add(GapNs(kernels_, kQueued));
    return true;
  }

  // Behind each kernel a marker, and behind each other one two.
  bool QueueMarked() {
    bool is_queued = false;
    const auto put = [&] {
      for (uint32_t i = 0; i < kMarked; ++i) {
        if (!pacer_.Launch(i) || !pacer_.Mark(2 * i)) return false;
      }
      return true;
    };
    if (!Behind(put, &is_queued)) return false;
    if (is_queued) measured_.marked_gap.Add(GapNs(kernels_, kMarked));
    const auto put_two = [&] {
      for (uint32_t i = 0; i + 1 < kMarked; ++i) {
        if (!pacer_.Launch(i) || !pacer_.Mark(2 * i) || !pacer_.Mark(2 * i + 1)) return false;
      }
      return true;
    };
    if (!Behind(put_two, &is_queued)) return false;
    int64_t sum_ns = 0;
    for (uint32_t i = 0; i + 1 < kMarked; ++i) {
      int64_t ns = 0;
      if (!pacer_.Between(2 * i, 2 * i + 1, &ns)) return false;
      sum_ns += ns;
    }
    if (is_queued) measured_.two_markers.Add(sum_ns / (kMarked - 1));
    return true;
  }

  bool QueueGraph() {
    if (!pacer_.has_graph()) return true;
    if (!pacer_.LaunchGraph() || !pacer_.Read(kQueued, kernels_)) return false;
    measured_.step_gap.Add(GapNs(kernels_, kQueued));
    return true;
  }

  bool QueueEach() { return Queue() && QueueMarked() && QueueGraph(); }

  // A round where the GPU is free, unless kernels in an idle stream say that it is not.
  bool RunFree() { return RunAlone() && (lost_ == 0 || RunAlone()) && QueueEach(); }

  // A kernel in an idle stream, behind a marker and with another behind it.
  struct Single {
    int64_t record_ns;  // the host took it for the first marker ...
    int64_t lead_ns;    // ... and from there to the launch's return
    int64_t longer_ns;  // so much longer the wait takes than without the second one
  };

  // Kernel `i`, waited for; an even one with both markers. False: a call failed.
  bool RunSingle(uint32_t i, Single* single, int64_t* wait_ns) {
    const bool is_marked = i % 2 == 0;
    const uint64_t begin_ns = NowNs();
    if (!pacer_.Mark(is_marked ? i : kAside)) return false;
    const uint64_t marked_ns = NowNs();
    if (!pacer_.Launch(i, CyclesOf(i / 2))) return false;
    const uint64_t launched_ns = NowNs();
    if ((is_marked && !pacer_.Mark(i + 1)) || !pacer_.WaitSharply()) return false;
    *wait_ns = Since(launched_ns);
    single->longer_ns += is_marked ? *wait_ns : -*wait_ns;
    if (!is_marked) return true;
    const uint64_t passed_ns = MarkerPassedNs(begin_ns, marked_ns);
    single->record_ns = static_cast<int64_t>(marked_ns - begin_ns);
    single->lead_ns = static_cast<int64_t>(std::min(launched_ns - passed_ns, kMostLeadNs));
    return true;
  }

  // Each kernel in an idle stream, with a marker behind it and without. Not to the end where
  // somebody else has the GPU: each wait takes a slice then.
  bool RunAlone() {
    Single singles[kSingle] = {};
    for (uint32_t i = 0; i < 2 * kSingle; ++i) {
      int64_t wait_ns = 0;
      if (!RunSingle(i, &singles[i / 2], &wait_ns)) return false;
      if (wait_ns > kMostAloneNs) {
        ++lost_;
        return true;
      }
    }
    lost_ = 0;
    return pacer_.Read(2 * kSingle, kernels_) && AddSingles(singles);
  }

  // A batch of them, without those before or into which somebody else's work fell: one would make
  // it what no GPU has.
  bool AddSingles(const Single* singles) {
    int64_t around_ns[kSingle];
    for (uint32_t i = 0; i < kSingle; ++i) {
      if (!pacer_.Between(2 * i, 2 * i + 1, &around_ns[i])) return false;
      around_ns[i] -= LengthOf(kernels_[2 * i]) + singles[i].lead_ns;
    }
    int64_t sorted_ns[kSingle];
    std::copy(around_ns, around_ns + kSingle, sorted_ns);
    std::sort(sorted_ns, sorted_ns + kSingle);
    int64_t sum_ns = 0;
    int64_t host_ns = 0;
    int64_t longer_ns = 0;
    int64_t count = 0;
    for (uint32_t i = 0; i < kSingle; ++i) {
      if (std::abs(around_ns[i] - sorted_ns[kSingle / 2]) > kStrayNs) continue;
      ++count;
      sum_ns += around_ns[i];
      host_ns += singles[i].lead_ns - singles[i].record_ns;
      longer_ns += singles[i].longer_ns;
    }
    if (count < kSingle / 2) return true;
    measured_.around_run.Add(sum_ns / count);
    measured_.with_host.Add((sum_ns + host_ns) / count);
    measured_.end_marker.Add(longer_ns / count);
    return true;
  }

  Pacer& pacer_;
  Measured measured_;
  uint64_t host_ns_ = 0;   // a marker and a launch take it
  uint64_t pace_ns_ = 1;   // of a kernel of kPaceCycles
  uint64_t ahead_ns_ = 0;  // so long the GPU is busy in front of a batch
  uint32_t lost_ = 0;      // batches in a row for which the GPU or the host was late
  Pace kernels_[kQueued];
};

uint32_t Beyond(uint32_t whole_ns, uint32_t part_ns) {
  return whole_ns - std::min(whole_ns, part_ns);
}

// Pauses within a queue, as far as batches agree on them.
Calibration QueuedPausesOf(const Measured& measured, size_t least, bool has_graph,
                           GpuPauses* pauses) {
  uint32_t marked_gap_ns = 0;
  uint32_t two_markers_ns = 0;
  if (!measured.launch_gap.Agree(least, &pauses->launch_gap_ns)) return Calibration::kNothing;
  const bool has_steps = has_graph && measured.step_gap.Agree(least, &pauses->step_gap_ns);
  // As long as between two steps: 10 us of 65,536 blocks had 47.3 % at 50 without it (H200).
  if (has_steps) pauses->wide_gap_ns = pauses->step_gap_ns;
  if (!measured.marked_gap.Agree(least, &marked_gap_ns)) return Calibration::kPartly;
  pauses->marker_gap_ns = Beyond(marked_gap_ns, pauses->launch_gap_ns);
  if (!measured.two_markers.Agree(least, &two_markers_ns)) return Calibration::kPartly;
  pauses->queued_gap_ns = two_markers_ns * kQueuedMore / kQueuedLess;
  // A marker behind a kernel takes no less than one behind a marker (H200: 1.6 to 1.9 us around a
  // kernel, 1.3 to 1.5 between two markers).
  pauses->around_run_ns = std::max(pauses->around_run_ns, two_markers_ns);
  return has_steps || !has_graph ? Calibration::kWhole : Calibration::kPartly;
}

// What lies around a kernel in an idle stream. False: batches do not agree on it.
bool LonePausesOf(const Measured& measured, size_t least, GpuPauses* pauses) {
  uint32_t around_ns = 0;
  uint32_t with_host_ns = 0;
  if (!measured.around_run.Agree(least, &around_ns) ||
      !measured.with_host.Agree(least, &with_host_ns)) {
    return false;
  }
  // What others' work keeps from the marker in front is no pause.
  if (around_ns < pauses->around_run_ns - pauses->around_run_ns / 4) return false;
  pauses->around_run_ns = around_ns;
  pauses->start_ns = Beyond(with_host_ns, pauses->launch_gap_ns);
  // Waits that sleep do not tell: whatever is behind the kernel, they end when they are woken.
  uint32_t end_marker_ns = 0;
  if (measured.end_marker.Agree(least, &end_marker_ns) &&
      end_marker_ns >= pauses->marker_gap_ns / 2) {
    pauses->end_marker_ns = end_marker_ns;
  }
  return true;
}

}  // namespace

Calibration Calibrate(uint32_t processors, GpuPauses* pauses, const char** why) {
  const CaptureRelaxed relaxed;  // another thread's capture may begin at any moment
  Pacer pacer(kBlocksEach * processors);
  *pauses = kUnknownPauses;
  if (!pacer.Open(why)) return Calibration::kNothing;
  Measuring measuring(&pacer);
  *why = "the driver refuses a call that measuring needs, or simulates a GPU without pauses";
  if (!measuring.Run()) return Calibration::kNothing;
  *why = "the measurements disagree: another program uses the GPU, or the host is busy";
  const Measured& measured = measuring.measured();
  const size_t least = measuring.least();
  const Calibration queue = QueuedPausesOf(measured, least, pacer.has_graph(), pauses);
  if (queue != Calibration::kWhole) return queue;
  return LonePausesOf(measured, least, pauses) ? Calibration::kWhole : Calibration::kPartly;
}

}  // namespace gpufence
