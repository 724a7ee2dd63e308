// Every way by which kernels enter a stream, by the name of the driver's function. Those that
// change a graph change one that is launched afterwards: a kernel of a tenth of the length becomes
// one of the whole.
#pragma once

#include "support/time_program.h"

namespace timing {

inline constexpr unsigned kShortened = 10;

struct Work {
  const Gpu& gpu;
  unsigned long long ns;  // of a kernel
  CUgraphExec graph;
  unsigned blocks = kWholeGpu;
};

inline CUDA_KERNEL_NODE_PARAMS_v2 NodeOf(const Gpu& gpu, void** params) {
  CUDA_KERNEL_NODE_PARAMS_v2 node = {};
  node.func = gpu.spin;
  node.gridDimX = kWholeGpu;
  node.gridDimY = node.gridDimZ = 1;
  node.blockDimX = node.blockDimY = node.blockDimZ = 1;
  node.kernelParams = params;
  return node;
}

// ---- launches ----

inline CUresult Kernel(Work& work, CUstream stream) {
  return work.gpu.Spin(stream, work.ns, work.blocks);
}

inline CUresult KernelPtsz(Work& work, CUstream stream) {
  void* params[] = {&work.ns};
  return cuLaunchKernel_ptsz(work.gpu.spin, work.blocks, 1, 1, 1, 1, 1, 0, stream, params, nullptr);
}

inline CUlaunchConfig ConfigOf(const Work& work, CUstream stream) {
  CUlaunchConfig config = {};
  config.gridDimX = work.blocks;
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  return config;
}

inline CUresult Ex(Work& work, CUstream stream) {
  void* params[] = {&work.ns};
  const CUlaunchConfig config = ConfigOf(work, stream);
  return cuLaunchKernelEx(&config, work.gpu.spin, params, nullptr);
}

inline CUresult ExPtsz(Work& work, CUstream stream) {
  void* params[] = {&work.ns};
  const CUlaunchConfig config = ConfigOf(work, stream);
  return cuLaunchKernelEx_ptsz(&config, work.gpu.spin, params, nullptr);
}

// All blocks of a cooperative kernel must fit at once: as many as there are multiprocessors.
inline CUresult Cooperative(Work& work, CUstream stream) {
  void* params[] = {&work.ns};
  return cuLaunchCooperativeKernel(work.gpu.spin, 132, 1, 1, 1024, 1, 1, 0, stream, params);
}

inline CUresult CooperativePtsz(Work& work, CUstream stream) {
  void* params[] = {&work.ns};
  return cuLaunchCooperativeKernel_ptsz(work.gpu.spin, 132, 1, 1, 1024, 1, 1, 0, stream, params);
}

inline CUresult MultiDevice(Work& work, CUstream stream) {
  void* params[] = {&work.ns};
  CUDA_LAUNCH_PARAMS one = {};
  one.function = work.gpu.spin;
  one.gridDimX = 132;
  one.gridDimY = one.gridDimZ = 1;
  one.blockDimX = 1024;
  one.blockDimY = one.blockDimZ = 1;
  one.hStream = stream;
  one.kernelParams = params;
  return cuLaunchCooperativeKernelMultiDevice(&one, 1, 0);
}

inline void Describe(Work& work) {
  MUST(cuFuncSetBlockShape(work.gpu.spin, 1024, 1, 1));
  MUST(cuParamSetSize(work.gpu.spin, sizeof work.ns));
  MUST(cuParamSetv(work.gpu.spin, 0, &work.ns, sizeof work.ns));
}

inline CUresult Legacy(Work& work, CUstream) {
  Describe(work);
  return cuLaunch(work.gpu.spin);
}

inline CUresult LegacyGrid(Work& work, CUstream) {
  Describe(work);
  return cuLaunchGrid(work.gpu.spin, kWholeGpu, 1);
}

inline CUresult LegacyGridAsync(Work& work, CUstream stream) {
  Describe(work);
  return cuLaunchGridAsync(work.gpu.spin, kWholeGpu, 1, stream);
}

// ---- graphs ----

inline CUresult Graph(Work& work, CUstream stream) { return cuGraphLaunch(work.graph, stream); }

inline CUresult GraphPtsz(Work& work, CUstream stream) {
  return cuGraphLaunch_ptsz(work.graph, stream);
}

inline CUgraph GraphOf(const Gpu& gpu, unsigned long long ns, CUgraphNode* node) {
  CUgraph graph = nullptr;
  void* params[] = {&ns};
  const CUDA_KERNEL_NODE_PARAMS_v2 kernel = NodeOf(gpu, params);
  MUST(cuGraphCreate(&graph, 0));
  MUST(cuGraphAddKernelNode_v2(node, graph, nullptr, 0, &kernel));
  return graph;
}

inline CUgraphExec Instantiated(CUgraph graph) {
  CUgraphExec executable = nullptr;
  MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
  return executable;
}

inline void Plain(Work* work) {
  CUgraphNode node = nullptr;
  work->graph = Instantiated(GraphOf(work->gpu, work->ns, &node));
}

// Begins with a short kernel, which `change` makes as long as it is said to be.
template <typename Change>
void Changed(Work* work, Change change) {
  CUgraphNode node = nullptr;
  CUgraph graph = GraphOf(work->gpu, work->ns / kShortened, &node);
  work->graph = Instantiated(graph);
  void* params[] = {&work->ns};
  CUDA_KERNEL_NODE_PARAMS_v2 longer = NodeOf(work->gpu, params);
  MUST(change(node, &longer));
}

inline void SetKernel(Work* work) {
  Changed(work, [&](CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2* longer) {
    CUDA_KERNEL_NODE_PARAMS_v1 first = {};
    memcpy(&first, longer, sizeof first);
    return cuGraphExecKernelNodeSetParams(work->graph, node, &first);
  });
}

inline void SetKernelV2(Work* work) {
  Changed(work, [&](CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2* longer) {
    return cuGraphExecKernelNodeSetParams_v2(work->graph, node, longer);
  });
}

inline void SetNode(Work* work) {
  Changed(work, [&](CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2* longer) {
    CUgraphNodeParams params = {};
    params.type = CU_GRAPH_NODE_TYPE_KERNEL;
    memcpy(&params.kernel, longer, sizeof *longer);
    return cuGraphExecNodeSetParams(work->graph, node, &params);
  });
}

inline void Update(Work* work) {
  Changed(work, [&](CUgraphNode, CUDA_KERNEL_NODE_PARAMS_v2*) {
    CUgraphNode node = nullptr;
    CUgraphNode wrong = nullptr;
    CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    return cuGraphExecUpdate(work->graph, GraphOf(work->gpu, work->ns, &node), &wrong, &result);
  });
}

inline void UpdateV2(Work* work) {
  Changed(work, [&](CUgraphNode, CUDA_KERNEL_NODE_PARAMS_v2*) {
    CUgraphNode node = nullptr;
    CUgraphExecUpdateResultInfo info = {};
    return cuGraphExecUpdate_v2(work->graph, GraphOf(work->gpu, work->ns, &node), &info);
  });
}

inline void SetChild(Work* work) {
  CUgraphNode node = nullptr;
  CUgraphNode child = nullptr;
  CUgraph parent = nullptr;
  MUST(cuGraphCreate(&parent, 0));
  CUgraph within = GraphOf(work->gpu, work->ns / kShortened, &node);
  MUST(cuGraphAddChildGraphNode(&child, parent, nullptr, 0, within));
  work->graph = Instantiated(parent);
  CUgraph longer = GraphOf(work->gpu, work->ns, &node);
  MUST(cuGraphExecChildGraphNodeSetParams(work->graph, child, longer));
}

// Two kernels, of which one does not run.
inline void Disable(Work* work) {
  CUgraphNode node = nullptr;
  CUgraphNode other = nullptr;
  CUgraph graph = GraphOf(work->gpu, work->ns, &node);
  void* params[] = {&work->ns};
  const CUDA_KERNEL_NODE_PARAMS_v2 kernel = NodeOf(work->gpu, params);
  MUST(cuGraphAddKernelNode_v2(&other, graph, &node, 1, &kernel));
  work->graph = Instantiated(graph);
  MUST(cuGraphNodeSetEnabled(work->graph, other, 0));
}

struct Way {
  const char* name;
  CUresult (*launch)(Work&, CUstream);
  void (*prepare)(Work*);
};

inline constexpr Way kWays[] = {
    {"cuLaunchKernel", Kernel, nullptr},
    {"cuLaunchKernel_ptsz", KernelPtsz, nullptr},
    {"cuLaunchKernelEx", Ex, nullptr},
    {"cuLaunchKernelEx_ptsz", ExPtsz, nullptr},
    {"cuLaunchCooperativeKernel", Cooperative, nullptr},
    {"cuLaunchCooperativeKernel_ptsz", CooperativePtsz, nullptr},
    {"cuLaunchCooperativeKernelMultiDevice", MultiDevice, nullptr},
    {"cuLaunch", Legacy, nullptr},
    {"cuLaunchGrid", LegacyGrid, nullptr},
    {"cuLaunchGridAsync", LegacyGridAsync, nullptr},
    {"cuGraphLaunch", Graph, Plain},
    {"cuGraphLaunch_ptsz", GraphPtsz, Plain},
    {"cuGraphExecKernelNodeSetParams", Graph, SetKernel},
    {"cuGraphExecKernelNodeSetParams_v2", Graph, SetKernelV2},
    {"cuGraphExecNodeSetParams", Graph, SetNode},
    {"cuGraphExecUpdate", Graph, Update},
    {"cuGraphExecUpdate_v2", Graph, UpdateV2},
    {"cuGraphExecChildGraphNodeSetParams", Graph, SetChild},
    {"cuGraphNodeSetEnabled", Graph, Disable},
};

// Null when there is none of that name.
inline const Way* WayOf(const char* name) {
  for (const Way& way : kWays) {
    if (strcmp(way.name, name) == 0) return &way;
  }
  return nullptr;
}

}  // namespace timing
