// link: cuda
// flags: -Wl,-z,lazy
// Facts: graphs built by hand: nodes, instantiation, launches, updates and the memory they own.

#include <string>

#include "gpu.h"

namespace conformance {
namespace {

constexpr unsigned long long kSpinNs = 40'000'000;

CUDA_KERNEL_NODE_PARAMS_v2 SpinNode(const Kernels& kernels, void** params) {
  CUDA_KERNEL_NODE_PARAMS_v2 node{};
  node.func = kernels.spin;
  node.gridDimX = node.gridDimY = node.gridDimZ = 1;
  node.blockDimX = node.blockDimY = node.blockDimZ = 1;
  node.kernelParams = params;
  return node;
}

void Building(Facts& facts, const Kernels& kernels) {
  CUgraph graph = nullptr;
  CUgraphNode empty = nullptr;
  CUgraphNode spin = nullptr;
  CUgraphExec exec = nullptr;
  unsigned long long spin_ns = 1000;
  void* params[] = {&spin_ns};
  CUDA_KERNEL_NODE_PARAMS_v2 wanted = SpinNode(kernels, params);
  facts.Code("graph.bad_flags", cuGraphCreate(&graph, 1));
  facts.Code("graph.create", cuGraphCreate(&graph, 0));
  facts.Code("node.empty", cuGraphAddEmptyNode(&empty, graph, nullptr, 0));
  facts.Code("node.kernel", cuGraphAddKernelNode_v2(&spin, graph, &empty, 1, &wanted));
  facts.Code("node.bad_dependency_count",
             cuGraphAddKernelNode_v2(&spin, graph, nullptr, 1, &wanted));
  facts.Code("edge.cycle", cuGraphAddDependencies(graph, &spin, &empty, 1));
  facts.Code("edge.twice", cuGraphAddDependencies(graph, &empty, &spin, 1));
  facts.Code("graph.instantiate_empty_flags", cuGraphInstantiateWithFlags(&exec, graph, 0));
  facts.Code("graph.launch", cuGraphLaunch(exec, nullptr));
  facts.Code("graph.synchronize", cuCtxSynchronize());
  facts.Code("graph.launch_null", cuGraphLaunch(nullptr, nullptr));
  wanted.gridDimX = 0;
  facts.Code("exec.set_bad_params", cuGraphExecKernelNodeSetParams_v2(exec, spin, &wanted));
  facts.Code("exec.destroy", cuGraphExecDestroy(exec));
  facts.Code("node.destroy", cuGraphDestroyNode(spin));
  CUgraph clone = nullptr;
  facts.Code("graph.clone", cuGraphClone(&clone, graph));
  cuGraphDestroy(clone);
  facts.Code("graph.destroy", cuGraphDestroy(graph));
  facts.Code("graph.instantiate_bad_flags", [&] {
    CUgraph other = nullptr;
    cuGraphCreate(&other, 0);
    const CUresult code = cuGraphInstantiateWithFlags(&exec, other, 1ULL << 40);
    cuGraphDestroy(other);
    return code;
  }());
}

// Two kernels of one graph without an edge between them run together.
void Overlap(Facts& facts, CUgraph graph, const CUDA_KERNEL_NODE_PARAMS_v2& wanted,
             CUstream stream) {
  CUgraphNode beside = nullptr;
  CUgraphExec wide = nullptr;
  cuGraphAddKernelNode_v2(&beside, graph, nullptr, 0, &wanted);
  cuGraphInstantiateWithFlags(&wide, graph, 0);
  cuGraphUpload(wide, stream);
  cuCtxSynchronize();
  const long long wide_start_ns = NowNs();
  cuGraphLaunch(wide, stream);
  cuCtxSynchronize();
  facts.Is("launch.independent_nodes_overlap",
           NowNs() - wide_start_ns < static_cast<long long>(kSpinNs) * 17 / 10);
  cuGraphExecDestroy(wide);
}

// Launches of one executable graph follow each other, whatever the stream.
void Timing(Facts& facts, const Kernels& kernels) {
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  unsigned long long spin_ns = kSpinNs;
  void* params[] = {&spin_ns};
  CUDA_KERNEL_NODE_PARAMS_v2 wanted = SpinNode(kernels, params);
  cuGraphCreate(&graph, 0);
  cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &wanted);
  cuGraphInstantiateWithFlags(&exec, graph, 0);
  Stream first;
  Stream second;
  cuGraphUpload(exec, first.get());
  cuCtxSynchronize();
  const long long start_ns = NowNs();
  cuGraphLaunch(exec, first.get());
  const long long returned_ns = NowNs() - start_ns;
  cuGraphLaunch(exec, second.get());
  Event second_end;
  cuEventRecord(second_end.get(), second.get());
  cuStreamSynchronize(first.get());
  facts.Is("launch.returns_before_the_work", returned_ns < static_cast<long long>(kSpinNs) / 2);
  facts.Is("launch.second_of_same_exec_waits", !second_end.done());
  cuCtxSynchronize();
  facts.Is("launch.two_take_two_times",
           NowNs() - start_ns >= 2 * static_cast<long long>(kSpinNs) - 1'000'000);
  Overlap(facts, graph, wanted, first.get());

  cuGraphLaunch(exec, first.get());
  facts.Code("exec.destroy_while_running", cuGraphExecDestroy(exec));
  facts.Code("exec.work_goes_on", cuStreamQuery(first.get()));
  cuCtxSynchronize();
  cuGraphDestroy(graph);
}

void Updates(Facts& facts, const Kernels& kernels) {
  CUgraph graph = nullptr;
  CUgraph same_shape = nullptr;
  CUgraph other_shape = nullptr;
  CUgraphNode node = nullptr;
  CUgraphNode extra = nullptr;
  CUgraphExec exec = nullptr;
  unsigned long long spin_ns = 1000;
  void* params[] = {&spin_ns};
  CUDA_KERNEL_NODE_PARAMS_v2 wanted = SpinNode(kernels, params);
  cuGraphCreate(&graph, 0);
  cuGraphCreate(&same_shape, 0);
  cuGraphCreate(&other_shape, 0);
  cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &wanted);
  cuGraphInstantiateWithFlags(&exec, graph, 0);
  cuGraphAddKernelNode_v2(&extra, same_shape, nullptr, 0, &wanted);
  CUgraphExecUpdateResultInfo info{};
  facts.Code("update.same_shape", cuGraphExecUpdate_v2(exec, same_shape, &info));
  facts.Number("update.same_shape_result", info.result);
  cuGraphAddKernelNode_v2(&extra, other_shape, nullptr, 0, &wanted);
  cuGraphAddEmptyNode(&extra, other_shape, nullptr, 0);
  facts.Code("update.other_shape", cuGraphExecUpdate_v2(exec, other_shape, &info));
  facts.Number("update.other_shape_result", info.result);
  wanted.func = kernels.empty;
  wanted.kernelParams = nullptr;
  facts.Code("exec.set_other_function", cuGraphExecKernelNodeSetParams_v2(exec, node, &wanted));
  facts.Code("update.launch_afterwards", cuGraphLaunch(exec, nullptr));
  facts.Code("update.synchronize_afterwards", cuCtxSynchronize());
  cuGraphExecDestroy(exec);
  for (CUgraph one : {graph, same_shape, other_shape}) cuGraphDestroy(one);
}

unsigned long long GraphMemory(CUgraphMem_attribute attribute) {
  unsigned long long bytes = 77;
  cuDeviceGetGraphMemAttribute(0, attribute, &bytes);
  return bytes;
}

void Report(Facts& facts, const std::string& moment, size_t before) {
  facts.Number(moment + ".used",
               static_cast<long long>(GraphMemory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT)));
  facts.Number(moment + ".reserved",
               static_cast<long long>(GraphMemory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT)));
  facts.Number(moment + ".device_bytes", DroppedSince(before));
}

// A graph that allocates and does not free: who pays, and until when.
void MemoryNodes(Facts& facts) {
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS_v1 wanted{};
  wanted.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.bytesize = 64 * kMib;
  const size_t before = FreeBytes();
  cuGraphCreate(&graph, 0);
  facts.Code("memory.alloc_node", cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &wanted));
  facts.Is("memory.address_known_at_once", wanted.dptr != 0);
  Report(facts, "memory.added", before);
  facts.Code("memory.clone", [&] {
    CUgraph clone = nullptr;
    const CUresult code = cuGraphClone(&clone, graph);
    if (code == CUDA_SUCCESS) cuGraphDestroy(clone);
    return code;
  }());
  facts.Code("memory.instantiate", cuGraphInstantiateWithFlags(&exec, graph, 0));
  Report(facts, "memory.instantiated", before);
  facts.Code("memory.launch", cuGraphLaunch(exec, nullptr));
  cuCtxSynchronize();
  Report(facts, "memory.launched", before);
  facts.Code("memory.launch_again_unfreed", cuGraphLaunch(exec, nullptr));
  facts.Code("memory.free_as_async", cuMemFreeAsync(wanted.dptr, nullptr));
  cuCtxSynchronize();
  Report(facts, "memory.freed", before);
  facts.Code("memory.launch_after_free", cuGraphLaunch(exec, nullptr));
  cuCtxSynchronize();
  facts.Code("memory.free_as_plain", cuMemFree_v2(wanted.dptr));
  Report(facts, "memory.freed_again", before);
  facts.Code("memory.trim", cuDeviceGraphMemTrim(0));
  Report(facts, "memory.trimmed", before);
  facts.Code("memory.exec_destroy", cuGraphExecDestroy(exec));
  facts.Code("memory.graph_destroy", cuGraphDestroy(graph));
  cuDeviceGraphMemTrim(0);
  Report(facts, "memory.gone", before);
  cuGraphCreate(&graph, 0);
  wanted.bytesize = 0;
  facts.Code("memory.zero", cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &wanted));
  facts.Code("memory.free_node_of_garbage",
             cuGraphAddMemFreeNode(&node, graph, nullptr, 0, 0x1000));
  cuGraphDestroy(graph);
}

}  // namespace
}  // namespace conformance

int main() {
  using namespace conformance;
  Facts facts("graphs_run");
  UsePrimary(FirstDevice(facts));
  const Kernels kernels = LoadKernels();
  LaunchSpin(kernels, nullptr, 1000);
  LaunchEmpty(kernels, nullptr);
  cuCtxSynchronize();
  Building(facts, kernels);
  Timing(facts, kernels);
  Updates(facts, kernels);
  MemoryNodes(facts);
  return 0;
}
