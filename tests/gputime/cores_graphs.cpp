// Launches one graph after the other and says how busy its kernels kept the GPU.
// link: cuda
//
//   cores_graphs SHAPE MS [waits]
//
// waits: for each graph's end before the next one is launched.
//
// Prints {"share": percent from one held launch to the last one, "kernels": one after the other,
// "steps": as many as the limiter knows of}.
#include <time.h>

#include <utility>
#include <vector>

#include "cores_ways.h"

using namespace timing;

namespace {

constexpr unsigned long long kKernelNs = 5 * kUs;
constexpr unsigned long long kMemsetNs = kUs;  // what a small one takes on the simulated GPU
constexpr unsigned kHalfGpu = 66;              // blocks: two such kernels run side by side
constexpr double kLaunchUs = 2.2;
constexpr double kHeldUs = 500;
constexpr int kUploads = 20;
constexpr int kCrowd = 20'000;  // executables, more than anybody remembers

using Nodes = std::vector<CUgraphNode>;

double NowUs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

// A graph that is being made, with what its launches will do.
struct Shape {
  const Gpu& gpu;
  unsigned long long kernel_ns = kKernelNs;
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  unsigned steps = 1;    // that are known
  unsigned kernels = 1;  // one after the other
  unsigned long long more_ns = 0;
  int uploads = 0;

  explicit Shape(const Gpu& one) : gpu(one) { MUST(cuGraphCreate(&graph, 0)); }

  CUgraphNode Kernel(const Nodes& before, unsigned blocks = kWholeGpu) {
    void* params[] = {&kernel_ns};
    CUDA_KERNEL_NODE_PARAMS_v2 node = NodeOf(gpu, params);
    node.gridDimX = blocks;
    CUgraphNode added = nullptr;
    MUST(cuGraphAddKernelNode_v2(&added, graph, before.data(), before.size(), &node));
    return added;
  }

  CUgraphNode Line(CUgraphNode before, int count, unsigned blocks = kWholeGpu) {
    for (int i = 0; i < count; ++i) {
      before = Kernel(before != nullptr ? Nodes{before} : Nodes{}, blocks);
    }
    return before;
  }

  CUgraphNode Child(CUgraphNode before, const Shape& child) {
    CUgraphNode added = nullptr;
    MUST(cuGraphAddChildGraphNode(&added, graph, &before, 1, child.graph));
    return added;
  }

  void Expect(unsigned known_steps, unsigned in_a_row) {
    steps = known_steps;
    kernels = in_a_row;
  }
};

void One(Shape* shape) {
  shape->Line(nullptr, 1);
  shape->Expect(1, 1);
}

void Line(Shape* shape) {
  shape->Line(nullptr, 8);
  shape->Expect(8, 8);
}

void Short(Shape* shape) {
  shape->Line(nullptr, 5);
  shape->Expect(5, 5);
}

// Two chains between a first and a last kernel.
void Wide(Shape* shape) {
  CUgraphNode first = shape->Line(nullptr, 1);
  CUgraphNode left = shape->Line(first, 3, kHalfGpu);
  CUgraphNode right = shape->Line(first, 3, kHalfGpu);
  shape->Kernel({left, right});
  shape->Expect(3, 5);
}

// Two side by side, again and again.
void Ladder(Shape* shape) {
  CUgraphNode last = shape->Line(nullptr, 1);
  for (int i = 0; i < 3; ++i) {
    CUgraphNode left = shape->Kernel({last}, kHalfGpu);
    CUgraphNode right = shape->Kernel({last}, kHalfGpu);
    last = shape->Kernel({left, right});
  }
  shape->Expect(7, 7);
}

void Roots(Shape* shape) {
  CUgraphNode left = shape->Kernel({}, kHalfGpu);
  CUgraphNode right = shape->Kernel({}, kHalfGpu);
  shape->Kernel({left, right});
  shape->Expect(2, 2);
}

// For one nobody waits: it may run beside all that comes behind.
void Loose(Shape* shape) {
  CUgraphNode first = shape->Line(nullptr, 2);
  shape->Kernel({first}, kHalfGpu);
  shape->Line(first, 3, kHalfGpu);
  shape->Expect(3, 5);
}

void ChildBetween(Shape* shape) {
  Shape child(shape->gpu);
  child.Line(nullptr, 3);
  CUgraphNode first = shape->Line(nullptr, 1);
  shape->Line(shape->Child(first, child), 1);
  shape->Expect(5, 5);
}

void ChildBeside(Shape* shape) {
  Shape child(shape->gpu);
  child.Line(nullptr, 3, kHalfGpu);
  CUgraphNode first = shape->Line(nullptr, 1);
  CUgraphNode left = shape->Child(first, child);
  CUgraphNode right = shape->Kernel({first}, kHalfGpu);
  shape->Kernel({left, right});
  shape->Expect(3, 5);
}

// A memset is no kernel, and a step all the same; an empty node is nothing.
void Memory(Shape* shape) {
  CUdeviceptr memory = 0;
  MUST(cuMemAlloc_v2(&memory, 64));
  CUDA_MEMSET_NODE_PARAMS_v1 fill = {};
  fill.dst = memory;
  fill.elementSize = 1;
  fill.width = 64;
  fill.height = 1;
  CUgraphNode first = shape->Line(nullptr, 1);
  CUgraphNode set = nullptr;
  CUgraphNode empty = nullptr;
  MUST(cuGraphAddMemsetNode(&set, shape->graph, &first, 1, &fill, shape->gpu.context));
  CUgraphNode second = shape->Line(set, 1);
  MUST(cuGraphAddEmptyNode(&empty, shape->graph, &second, 1));
  shape->Line(empty, 1);
  shape->Expect(4, 3);
  shape->more_ns = kMemsetNs;
}

// From the last kernel to the first, in the order in which they were added.
void Backwards(Shape* shape) {
  Nodes nodes;
  for (int i = 0; i < 4; ++i) nodes.push_back(shape->Kernel({}));
  for (int i = 0; i < 3; ++i) {
    MUST(cuGraphAddDependencies(shape->graph, &nodes[static_cast<size_t>(i) + 1],
                                &nodes[static_cast<size_t>(i)], 1));
  }
  shape->Expect(1, 4);
}

// Kernels that begin before the ones that they wait for have ended; the first does not.
void Overlapping(Shape* shape) {
  Nodes nodes;
  CUgraphEdgeData data = {};
  data.from_port = 1;  // CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, a macro of cuda.h
  data.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  for (int i = 0; i < 4; ++i) {
    nodes.push_back(shape->Kernel({}));
    if (i == 0) continue;
    MUST(cuGraphAddDependencies_v2(shape->graph, &nodes[static_cast<size_t>(i) - 1],
                                   &nodes[static_cast<size_t>(i)], &data, 1));
  }
  shape->Expect(1, 4);
}

void Captured(Shape* shape) {
  CUstream stream = NewStream();
  CUstream side = NewStream();
  CUevent fork = nullptr;
  CUevent join = nullptr;
  MUST(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  MUST(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
  MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  MUST(shape->gpu.Spin(stream, kKernelNs, kWholeGpu));
  MUST(cuEventRecord(fork, stream));
  MUST(cuStreamWaitEvent(side, fork, 0));
  MUST(shape->gpu.Spin(stream, kKernelNs, kHalfGpu));
  MUST(shape->gpu.Spin(side, kKernelNs, kHalfGpu));
  MUST(cuEventRecord(join, side));
  MUST(cuStreamWaitEvent(stream, join, 0));
  for (int i = 0; i < 3; ++i) MUST(shape->gpu.Spin(stream, kKernelNs, kWholeGpu));
  MUST(cuStreamEndCapture(stream, &shape->graph));
  shape->Expect(5, 5);
}

// ---- executables that change ----

void SwitchedOff(Shape* shape) {
  CUgraphNode last = shape->Line(nullptr, 4);
  shape->executable = Instantiated(shape->graph);
  MUST(cuGraphNodeSetEnabled(shape->executable, last, 0));
  shape->Expect(1, 3);
}

void Updated(Shape* shape) {
  Shape before(shape->gpu);
  before.kernel_ns = kKernelNs / kShortened;
  before.Line(nullptr, 8);
  shape->executable = Instantiated(before.graph);
  Line(shape);
  CUgraphExecUpdateResultInfo info = {};
  MUST(cuGraphExecUpdate_v2(shape->executable, shape->graph, &info));
}

void Uploaded(Shape* shape) {
  Line(shape);
  shape->uploads = kUploads;
}

// The driver refuses to end it.
void NotEnded(Shape* shape) {
  Line(shape);
  shape->executable = Instantiated(shape->graph);
  if (cuGraphExecDestroy(shape->executable) == CUDA_SUCCESS) exit(4);
}

// After more than can be remembered came and went.
void Crowded(Shape* shape) {
  Shape small(shape->gpu);
  small.Line(nullptr, 2);
  std::vector<CUgraphExec> crowd;
  for (int i = 0; i < kCrowd; ++i) crowd.push_back(Instantiated(small.graph));
  for (CUgraphExec each : crowd) MUST(cuGraphExecDestroy(each));
  Line(shape);
}

struct Named {
  const char* name;
  void (*make)(Shape*);
};

constexpr Named kShapes[] = {
    {"one", One},
    {"line", Line},
    {"short", Short},
    {"wide", Wide},
    {"ladder", Ladder},
    {"roots", Roots},
    {"loose", Loose},
    {"child_between", ChildBetween},
    {"child_beside", ChildBeside},
    {"memory", Memory},
    {"backwards", Backwards},
    {"overlapping", Overlapping},
    {"captured", Captured},
    {"switched_off", SwitchedOff},
    {"updated", Updated},
    {"uploaded", Uploaded},
    {"not_ended", NotEnded},
    {"crowded", Crowded},
};

// When a launch went that had been held: then all before it was paid for.
struct Paid {
  double at_us;
  double launches;
};

void Launch(const Shape& shape, CUstream stream) {
  for (int i = 0; i < shape.uploads; ++i) MUST(cuGraphUpload(shape.executable, stream));
  MUST(cuGraphLaunch(shape.executable, stream));
}

// Launches for so long. The first time and the last time that it was held, of all behind a quarter.
std::pair<Paid, Paid> Run(const Shape& shape, double run_us, bool waits) {
  CUstream stream = NewStream();
  const double begin_us = NowUs();
  Paid first = {};
  Paid last = {};
  double launches = 0;
  for (double at_us = begin_us; at_us < begin_us + run_us; at_us = NowUs()) {
    Launch(shape, stream);
    const double went_us = NowUs();
    if (went_us - at_us > kHeldUs && went_us > begin_us + run_us / 4) {
      last = {went_us, launches};
      if (first.at_us == 0) first = last;
    }
    ++launches;
    if (waits) {
      MUST(cuStreamSynchronize(stream));
    } else {
      BusyUntil(NowUs, went_us + kLaunchUs);
    }
  }
  MUST(cuStreamSynchronize(stream));
  return {first, last};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && (argc != 4 || strcmp(argv[3], "waits") != 0)) return 2;
  const Gpu gpu;
  Shape shape(gpu);
  bool is_known = false;
  for (const Named& each : kShapes) {
    if (strcmp(each.name, argv[1]) != 0) continue;
    each.make(&shape);
    is_known = true;
  }
  if (!is_known) return 3;
  if (shape.executable == nullptr) shape.executable = Instantiated(shape.graph);
  const auto busy_ns = static_cast<double>(shape.kernels * kKernelNs + shape.more_ns);

  const auto [first, last] = Run(shape, strtod(argv[2], nullptr) * 1e3, argc == 4);
  Facts facts;
  facts.Say("share", (last.launches - first.launches) * busy_ns / 10 / (last.at_us - first.at_us));
  facts.Say("kernels", shape.kernels);
  facts.Say("steps", shape.steps);
  return 0;
}
