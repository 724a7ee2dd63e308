// Graphs: what launching them takes, what can be asked and changed, what their memory does.
// link: cuda
#include <unistd.h>

#include "support/time_program.h"

using namespace timing;

namespace {

CUDA_KERNEL_NODE_PARAMS_v2 SpinNode(const Gpu& gpu, void** params, unsigned blocks = 1) {
  CUDA_KERNEL_NODE_PARAMS_v2 node = {};
  node.func = gpu.spin;
  node.gridDimX = blocks;
  node.gridDimY = node.gridDimZ = 1;
  node.blockDimX = node.blockDimY = node.blockDimZ = 1;
  node.kernelParams = params;
  return node;
}

CUgraphNode AddSpin(const Gpu& gpu, CUgraph graph, const CUgraphNode* before, size_t count,
                    unsigned long long ns) {
  void* params[] = {&ns};
  const CUDA_KERNEL_NODE_PARAMS_v2 node = SpinNode(gpu, params);
  CUgraphNode added = nullptr;
  MUST(cuGraphAddKernelNode_v2(&added, graph, before, count, &node));
  return added;
}

CUgraphExec Instantiate(CUgraph graph, unsigned long long flags = 0) {
  CUgraphExec executable = nullptr;
  MUST(cuGraphInstantiateWithFlags(&executable, graph, flags));
  return executable;
}

double LaunchUs(const Gpu& gpu, CUgraphExec executable, int times) {
  CUstream stream = NewStream();
  MUST(gpu.Spin(stream, 10 * kMs));
  CUevent start = Mark(stream);
  for (int i = 0; i < times; ++i) MUST(cuGraphLaunch(executable, stream));
  return ElapsedUs(start, Mark(stream));
}

// root (100 us) -> left (300) and right (200) -> tail (50): the longest way is 450 us.
struct Diamond {
  CUgraph graph = nullptr;
  CUgraphNode root, left, right, tail;

  explicit Diamond(const Gpu& gpu) {
    MUST(cuGraphCreate(&graph, 0));
    root = AddSpin(gpu, graph, nullptr, 0, 100 * kUs);
    left = AddSpin(gpu, graph, &root, 1, 300 * kUs);
    right = AddSpin(gpu, graph, &root, 1, 200 * kUs);
    const CUgraphNode both[] = {left, right};
    tail = AddSpin(gpu, graph, both, 2, 50 * kUs);
  }
};

void Shape(const Gpu& gpu, Facts& facts) {
  Diamond diamond(gpu);
  size_t nodes = 0;
  size_t edges = 0;
  size_t roots = 0;
  size_t dependents = 0;
  MUST(cuGraphGetNodes(diamond.graph, nullptr, &nodes));
  MUST(cuGraphGetEdges(diamond.graph, nullptr, nullptr, &edges));
  MUST(cuGraphGetRootNodes(diamond.graph, nullptr, &roots));
  MUST(cuGraphNodeGetDependentNodes(diamond.root, nullptr, &dependents));
  facts.Say("nodes", static_cast<double>(nodes));
  facts.Say("edges", static_cast<double>(edges));
  facts.Say("roots", static_cast<double>(roots));
  facts.Say("dependents of the root", static_cast<double>(dependents));
  facts.Code("same edge twice",
             cuGraphAddDependencies(diamond.graph, &diamond.root, &diamond.left, 1));
  CUgraphNode stranger[] = {reinterpret_cast<CUgraphNode>(diamond.graph)};
  CUgraphNode added = nullptr;
  facts.Code("unknown dependency", cuGraphAddEmptyNode(&added, diamond.graph, stranger, 1));
  MUST(cuGraphAddDependencies(diamond.graph, &diamond.tail, &diamond.root, 1));
  CUgraphExec executable = nullptr;
  facts.Code("cycle", cuGraphInstantiateWithFlags(&executable, diamond.graph, 0));
  MUST(cuGraphDestroy(diamond.graph));
  facts.Code("destroyed graph", cuGraphGetNodes(diamond.graph, nullptr, &nodes));
}

void Launches(const Gpu& gpu, Facts& facts) {
  Diamond diamond(gpu);
  CUgraphExec executable = Instantiate(diamond.graph);
  facts.Say("diamond", LaunchUs(gpu, executable, 1));
  facts.Say("diamond three times", LaunchUs(gpu, executable, 3));

  // In two streams the same executable still runs one launch after the other.
  CUstream left = NewStream();
  CUstream right = NewStream();
  MUST(gpu.Spin(left, 10 * kMs));
  CUevent start = Mark(left);
  MUST(cuStreamWaitEvent(right, start, 0));
  MUST(cuGraphLaunch(executable, left));
  MUST(cuGraphLaunch(executable, right));
  facts.Say("never beside itself", ElapsedUs(start, Mark(right)));

  MUST(cuGraphNodeSetEnabled(executable, diamond.left, 0));
  facts.Say("left disabled", LaunchUs(gpu, executable, 1));
  MUST(cuGraphNodeSetEnabled(executable, diamond.left, 1));
  unsigned long long ns = kMs;
  void* params[] = {&ns};
  const CUDA_KERNEL_NODE_PARAMS_v2 longer = SpinNode(gpu, params);
  MUST(cuGraphExecKernelNodeSetParams_v2(executable, diamond.tail, &longer));
  facts.Say("tail set to 1 ms", LaunchUs(gpu, executable, 1));
  MUST(cuGraphExecDestroy(executable));
  facts.Code("destroyed executable", cuGraphLaunch(executable, nullptr));
}

void Updates(const Gpu& gpu, Facts& facts) {
  Diamond diamond(gpu);
  CUgraphExec executable = Instantiate(diamond.graph);
  Diamond changed(gpu);
  unsigned long long ns = 2 * kMs;
  void* params[] = {&ns};
  const CUDA_KERNEL_NODE_PARAMS_v2 node = SpinNode(gpu, params);
  MUST(cuGraphKernelNodeSetParams_v2(changed.root, &node));
  CUDA_KERNEL_NODE_PARAMS_v2 read = {};
  MUST(cuGraphKernelNodeGetParams_v2(changed.root, &read));
  facts.Say("parameter read back",
            static_cast<double>(*static_cast<unsigned long long*>(read.kernelParams[0])));
  CUgraphExecUpdateResultInfo_v1 info = {};
  facts.Code("update", cuGraphExecUpdate_v2(executable, changed.graph, &info));
  facts.Say("after the update", LaunchUs(gpu, executable, 1));
  AddSpin(gpu, changed.graph, nullptr, 0, kUs);
  facts.Code("update with another shape", cuGraphExecUpdate_v2(executable, changed.graph, &info));
  facts.Say("reason", static_cast<double>(info.result));
}

void ChildrenAndClones(const Gpu& gpu, Facts& facts) {
  Diamond diamond(gpu);
  CUgraph parent = nullptr;
  MUST(cuGraphCreate(&parent, 0));
  CUgraphNode first = AddSpin(gpu, parent, nullptr, 0, kMs);
  CUgraphNode child = nullptr;
  MUST(cuGraphAddChildGraphNode(&child, parent, &first, 1, diamond.graph));
  CUgraph inner = nullptr;
  MUST(cuGraphChildGraphNodeGetGraph(child, &inner));
  facts.Code("destroy a node's graph", cuGraphDestroy(inner));
  CUgraph clone = nullptr;
  CUgraphNode twin = nullptr;
  MUST(cuGraphClone(&clone, parent));
  facts.Code("find in clone", cuGraphNodeFindInClone(&twin, first, clone));
  MUST(cuGraphDestroyNode(first));
  facts.Say("child alone", LaunchUs(gpu, Instantiate(parent), 1));
  facts.Say("clone with both", LaunchUs(gpu, Instantiate(clone), 1));
}

void Bytes(const Gpu&, Facts& facts) {
  CUgraph graph = nullptr;
  MUST(cuGraphCreate(&graph, 0));
  CUdeviceptr device = 0;
  MUST(cuMemAlloc_v2(&device, 64));
  CUDA_MEMSET_NODE_PARAMS_v1 fill = {device, 0, 0x2a, 1, 64, 1};
  CUgraphNode filled = nullptr;
  MUST(cuGraphAddMemsetNode(&filled, graph, nullptr, 0, &fill, nullptr));
  unsigned char host[64] = {};
  CUDA_MEMCPY3D_v2 copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = device;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = host;
  copy.WidthInBytes = sizeof(host);
  copy.Height = copy.Depth = 1;
  CUgraphNode copied = nullptr;
  MUST(cuGraphAddMemcpyNode(&copied, graph, &filled, 1, &copy, nullptr));
  static int calls;
  CUDA_HOST_NODE_PARAMS_v1 host_call = {[](void*) { ++calls; }, nullptr};
  CUgraphNode called = nullptr;
  MUST(cuGraphAddHostNode(&called, graph, &copied, 1, &host_call));
  CUgraphExec executable = Instantiate(graph);
  facts.Say("nothing before the launch", host[63]);
  MUST(cuGraphLaunch(executable, nullptr));
  MUST(cuGraphLaunch(executable, nullptr));
  MUST(cuCtxSynchronize());
  facts.Say("byte after the launch", host[63]);
  facts.Say("host calls", calls);
}

double Attribute(CUgraphMem_attribute attribute) {
  unsigned long long value = 0;
  MUST(cuDeviceGetGraphMemAttribute(0, attribute, &value));
  return static_cast<double>(value);
}

CUDA_MEM_ALLOC_NODE_PARAMS_v1 AllocationOf(size_t bytes) {
  CUDA_MEM_ALLOC_NODE_PARAMS_v1 params = {};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  params.bytesize = bytes;
  return params;
}

void Memory(const Gpu&, Facts& facts) {
  CUgraph graph = nullptr;
  MUST(cuGraphCreate(&graph, 0));
  CUDA_MEM_ALLOC_NODE_PARAMS_v1 params = AllocationOf(64 << 20);
  CUgraphNode allocated = nullptr;
  MUST(cuGraphAddMemAllocNode(&allocated, graph, nullptr, 0, &params));
  CUgraphExec executable = Instantiate(graph);
  facts.Code("first launch", cuGraphLaunch(executable, nullptr));
  facts.Code("launch with memory still there", cuGraphLaunch(executable, nullptr));
  CUgraphExec freeing = nullptr;
  constexpr auto kAutoFree = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
  facts.Code("second executable with memory",
             cuGraphInstantiateWithFlags(&freeing, graph, kAutoFree));
  CUgraph clone = nullptr;
  facts.Code("clone with memory", cuGraphClone(&clone, graph));
  MUST(cuGraphExecDestroy(executable));
  freeing = Instantiate(graph, kAutoFree);
  facts.Code("first launch of the next executable", cuGraphLaunch(freeing, nullptr));
  facts.Code("launch that frees first", cuGraphLaunch(freeing, nullptr));
  MUST(cuCtxSynchronize());
  facts.Code("the program frees it", cuMemFree_v2(params.dptr));
  facts.Code("the program frees it twice", cuMemFree_v2(params.dptr));
  MUST(cuGraphExecDestroy(freeing));
  MUST(cuGraphDestroy(graph));
}

// Allocated and freed within the graph: the device keeps the bytes until they are trimmed.
void BalancedMemory(const Gpu&, Facts& facts) {
  MUST(cuDeviceGraphMemTrim(0));
  const double before = Attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
  CUgraph graph = nullptr;
  MUST(cuGraphCreate(&graph, 0));
  CUDA_MEM_ALLOC_NODE_PARAMS_v1 params = AllocationOf(64 << 20);
  CUgraphNode allocated = nullptr;
  CUgraphNode freed = nullptr;
  MUST(cuGraphAddMemAllocNode(&allocated, graph, nullptr, 0, &params));
  MUST(cuGraphAddMemFreeNode(&freed, graph, &allocated, 1, params.dptr));
  CUgraphExec executable = Instantiate(graph);
  MUST(cuGraphLaunch(executable, nullptr));
  MUST(cuGraphLaunch(executable, nullptr));
  MUST(cuCtxSynchronize());
  facts.Say("reserved", Attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) - before);
  MUST(cuGraphExecDestroy(executable));
  MUST(cuGraphDestroy(graph));
  facts.Say("reserved after the graph", Attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) - before);
  MUST(cuDeviceGraphMemTrim(0));
  facts.Say("reserved after the trim", Attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) - before);
}

void UserObjects(const Gpu&, Facts& facts) {
  static volatile int destroyed;
  CUuserObject object = nullptr;
  MUST(cuUserObjectCreate(
      &object, nullptr, [](void*) { destroyed = 1; }, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  CUgraph graph = nullptr;
  MUST(cuGraphCreate(&graph, 0));
  MUST(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  CUgraphExec executable = Instantiate(graph);
  MUST(cuGraphDestroy(graph));
  usleep(20'000);
  facts.Say("kept by the executable", destroyed);
  MUST(cuGraphExecDestroy(executable));
  for (int i = 0; i < 1'000 && destroyed == 0; ++i) usleep(1'000);
  facts.Say("destroyed at last", destroyed);
}

}  // namespace

int main() {
  const Gpu gpu;
  Facts facts;
  Shape(gpu, facts);
  Launches(gpu, facts);
  Updates(gpu, facts);
  ChildrenAndClones(gpu, facts);
  Bytes(gpu, facts);
  Memory(gpu, facts);
  BalancedMemory(gpu, facts);
  UserObjects(gpu, facts);
  return 0;
}
