// The exports that add nodes to graphs and read their parameters back. Must not know streams or
// captures.
#include <string.h>

#include "cuda/graphs/graph.h"
#include "machine/calls.h"

namespace sim {

namespace graph {

namespace {

constinit Table<Conditional, Kind::kGraphConditional> conditionals;

CUresult Add(CUgraphNode* out, CUgraph handle, const CUgraphNode* dependencies,
             const CUgraphEdgeData* edges, size_t count, CUgraphNodeParams* params) {
  if (out == nullptr || params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  Graph* graph = Find(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Operation operation;
  CUresult result = OperationOf(params, &operation);
  if (result != CUDA_SUCCESS) return result;
  Node* node = nullptr;
  result = AddNode(*graph, operation, dependencies, edges, count, &node);
  if (result == CUDA_SUCCESS) {
    *out = AsHandle<CUgraphNode>(node->handle);
  } else {
    DisposeOperation(&operation);
  }
  return result;
}

CUresult Add(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
             CUgraphNodeParams params) {
  return Add(out, graph, dependencies, nullptr, count, &params);
}

}  // namespace

const Conditional* FindConditional(CUgraphConditionalHandle handle) {
  return conditionals.Find(handle);
}

}  // namespace graph

}  // namespace sim

// The exports are global, everything that they use is in sim.
using namespace sim;

extern "C" CUresult cuGraphAddNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                   const CUgraphNode* dependencies, size_t numDependencies,
                                   CUgraphNodeParams* nodeParams) {
  SIM_CALL(cuGraphAddNode, phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
  return graph::Add(phGraphNode, hGraph, dependencies, nullptr, numDependencies, nodeParams);
}

extern "C" CUresult cuGraphAddNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                                      const CUgraphNode* dependencies,
                                      const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                      CUgraphNodeParams* nodeParams) {
  SIM_CALL(cuGraphAddNode_v2, phGraphNode, hGraph, dependencies, dependencyData, numDependencies,
           nodeParams);
  return graph::Add(phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams);
}

extern "C" CUresult cuGraphAddNode_v3(CUgraphNode* phGraphNode, CUgraph hGraph,
                                      const CUgraphNode* dependencies,
                                      const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                      CUgraphNodeParams* nodeParams) {
  SIM_CALL(cuGraphAddNode_v3, phGraphNode, hGraph, dependencies, dependencyData, numDependencies,
           nodeParams);
  return graph::Add(phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams);
}

extern "C" CUresult cuGraphAddKernelNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                         const CUgraphNode* dependencies, size_t numDependencies,
                                         const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  SIM_CALL(cuGraphAddKernelNode, phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return graph::Add(phGraphNode, hGraph, dependencies, numDependencies,
                    graph::KernelParams(*nodeParams));
}

extern "C" CUresult cuGraphAddKernelNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                                            const CUgraphNode* dependencies, size_t numDependencies,
                                            const CUDA_KERNEL_NODE_PARAMS_v2* nodeParams) {
  SIM_CALL(cuGraphAddKernelNode_v2, phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return graph::Add(phGraphNode, hGraph, dependencies, numDependencies,
                    graph::KernelParams(*nodeParams));
}

extern "C" CUresult cuGraphAddMemcpyNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                         const CUgraphNode* dependencies, size_t numDependencies,
                                         const CUDA_MEMCPY3D_v2* copyParams, CUcontext ctx) {
  SIM_CALL(cuGraphAddMemcpyNode, phGraphNode, hGraph, dependencies, numDependencies, copyParams,
           ctx);
  if (copyParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return graph::Add(phGraphNode, hGraph, dependencies, numDependencies,
                    graph::CopyParams(*copyParams, ctx));
}

extern "C" CUresult cuGraphAddMemsetNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                         const CUgraphNode* dependencies, size_t numDependencies,
                                         const CUDA_MEMSET_NODE_PARAMS_v1* memsetParams,
                                         CUcontext ctx) {
  SIM_CALL(cuGraphAddMemsetNode, phGraphNode, hGraph, dependencies, numDependencies, memsetParams,
           ctx);
  if (memsetParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return graph::Add(phGraphNode, hGraph, dependencies, numDependencies,
                    graph::FillParams(*memsetParams, ctx));
}

extern "C" CUresult cuGraphAddHostNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                       const CUgraphNode* dependencies, size_t numDependencies,
                                       const CUDA_HOST_NODE_PARAMS_v1* nodeParams) {
  SIM_CALL(cuGraphAddHostNode, phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return graph::Add(phGraphNode, hGraph, dependencies, numDependencies,
                    graph::HostParams(*nodeParams));
}

extern "C" CUresult cuGraphAddChildGraphNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                             const CUgraphNode* dependencies,
                                             size_t numDependencies, CUgraph childGraph) {
  SIM_CALL(cuGraphAddChildGraphNode, phGraphNode, hGraph, dependencies, numDependencies,
           childGraph);
  return graph::Add(phGraphNode, hGraph, dependencies, numDependencies,
                    graph::ChildParams(childGraph));
}

extern "C" CUresult cuGraphAddEmptyNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                        const CUgraphNode* dependencies, size_t numDependencies) {
  SIM_CALL(cuGraphAddEmptyNode, phGraphNode, hGraph, dependencies, numDependencies);
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_EMPTY;
  return graph::Add(phGraphNode, hGraph, dependencies, numDependencies, params);
}

extern "C" CUresult cuGraphAddEventRecordNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                              const CUgraphNode* dependencies,
                                              size_t numDependencies, CUevent event) {
  SIM_CALL(cuGraphAddEventRecordNode, phGraphNode, hGraph, dependencies, numDependencies, event);
  return graph::Add(phGraphNode, hGraph, dependencies, numDependencies,
                    graph::EventParams(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event));
}

extern "C" CUresult cuGraphAddEventWaitNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                            const CUgraphNode* dependencies, size_t numDependencies,
                                            CUevent event) {
  SIM_CALL(cuGraphAddEventWaitNode, phGraphNode, hGraph, dependencies, numDependencies, event);
  return graph::Add(phGraphNode, hGraph, dependencies, numDependencies,
                    graph::EventParams(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event));
}

extern "C" CUresult cuGraphAddMemAllocNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                           const CUgraphNode* dependencies, size_t numDependencies,
                                           CUDA_MEM_ALLOC_NODE_PARAMS_v1* nodeParams) {
  SIM_CALL(cuGraphAddMemAllocNode, phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  params.alloc.poolProps = nodeParams->poolProps;
  params.alloc.bytesize = nodeParams->bytesize;
  const CUresult result =
      graph::Add(phGraphNode, hGraph, dependencies, nullptr, numDependencies, &params);
  if (result == CUDA_SUCCESS) nodeParams->dptr = params.alloc.dptr;
  return result;
}

extern "C" CUresult cuGraphAddMemFreeNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                          const CUgraphNode* dependencies, size_t numDependencies,
                                          CUdeviceptr dptr) {
  SIM_CALL(cuGraphAddMemFreeNode, phGraphNode, hGraph, dependencies, numDependencies, dptr);
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
  params.free.dptr = dptr;
  return graph::Add(phGraphNode, hGraph, dependencies, numDependencies, params);
}

extern "C" CUresult cuGraphAddBatchMemOpNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                             const CUgraphNode* dependencies,
                                             size_t numDependencies,
                                             const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1* nodeParams) {
  SIM_CALL(cuGraphAddBatchMemOpNode, phGraphNode, hGraph, dependencies, numDependencies,
           nodeParams);
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return graph::Add(phGraphNode, hGraph, dependencies, numDependencies,
                    graph::BatchParams(*nodeParams));
}

extern "C" CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* pHandle_out,
                                                   CUgraph hGraph, CUcontext ctx,
                                                   unsigned int defaultLaunchValue,
                                                   unsigned int flags) {
  SIM_CALL(cuGraphConditionalHandleCreate, pHandle_out, hGraph, ctx, defaultLaunchValue, flags);
  DriverLock lock;
  if (pHandle_out == nullptr || graph::Find(hGraph) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t handle = 0;
  graph::Conditional* conditional = graph::conditionals.Create(&handle);
  if (conditional == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  constexpr unsigned kAssignDefault = 1;  // CU_GRAPH_COND_ASSIGN_DEFAULT, a macro of the header
  conditional->default_value = (flags & kAssignDefault) != 0 ? defaultLaunchValue : 0;
  *pHandle_out = handle;
  return CUDA_SUCCESS;
}

namespace sim {

namespace graph {

namespace {

// The general parameters of a node that must be of a type; `take` picks what the caller wants.
template <typename Out, typename Take>
CUresult Get(CUgraphNode handle, CUgraphNodeType type, Out* out, Take take) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  Node* node = FindNode(handle);
  if (node == nullptr || node->operation.type != type) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams params;
  const CUresult result = ParamsOf(*node, &params);
  if (result == CUDA_SUCCESS) take(params, out);
  return result;
}

// Attributes have no effect on simulated time; a kernel node has the one that it was launched with.
CUresult GetAttribute(CUgraphNode handle, CUlaunchAttributeID attribute,
                      CUlaunchAttributeValue* value) {
  DriverLock lock;
  const Node* node = FindNode(handle);
  const bool is_kernel = node != nullptr && node->operation.type == CU_GRAPH_NODE_TYPE_KERNEL;
  if (!is_kernel || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  memset(value, 0, sizeof(*value));
  if (attribute == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
    value->cooperative = node->operation.kernel.cooperative ? 1 : 0;
  }
  return CUDA_SUCCESS;
}

CUresult SetAttribute(CUgraphNode handle, CUlaunchAttributeID attribute,
                      const CUlaunchAttributeValue* value) {
  DriverLock lock;
  Node* node = FindNode(handle);
  const bool is_kernel = node != nullptr && node->operation.type == CU_GRAPH_NODE_TYPE_KERNEL;
  if (!is_kernel || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
    node->operation.kernel.cooperative = value->cooperative != 0;
  }
  return CUDA_SUCCESS;
}

}  // namespace

}  // namespace graph

}  // namespace sim

// The exports are global, everything that they use is in sim.
using namespace sim;

extern "C" CUresult cuGraphNodeGetParams(CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
  SIM_CALL(cuGraphNodeGetParams, hNode, nodeParams);
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  graph::Node* node = graph::FindNode(hNode);
  return node == nullptr ? CUDA_ERROR_INVALID_VALUE : graph::ParamsOf(*node, nodeParams);
}

extern "C" CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode,
                                               CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  SIM_CALL(cuGraphKernelNodeGetParams, hNode, nodeParams);
  // The first form is the beginning of the later ones.
  return graph::Get(hNode, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams,
                    [](const CUgraphNodeParams& params, CUDA_KERNEL_NODE_PARAMS_v1* out) {
                      memcpy(out, &params.kernel, sizeof(*out));
                    });
}

extern "C" CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode,
                                                  CUDA_KERNEL_NODE_PARAMS_v2* nodeParams) {
  SIM_CALL(cuGraphKernelNodeGetParams_v2, hNode, nodeParams);
  return graph::Get(hNode, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams,
                    [](const CUgraphNodeParams& params, CUDA_KERNEL_NODE_PARAMS_v2* out) {
                      memcpy(out, &params.kernel, sizeof(*out));
                    });
}

extern "C" CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D_v2* nodeParams) {
  SIM_CALL(cuGraphMemcpyNodeGetParams, hNode, nodeParams);
  return graph::Get(hNode, CU_GRAPH_NODE_TYPE_MEMCPY, nodeParams,
                    [](const CUgraphNodeParams& params, CUDA_MEMCPY3D_v2* out) {
                      *out = params.memcpy.copyParams;
                    });
}

extern "C" CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode,
                                               CUDA_MEMSET_NODE_PARAMS_v1* nodeParams) {
  SIM_CALL(cuGraphMemsetNodeGetParams, hNode, nodeParams);
  return graph::Get(hNode, CU_GRAPH_NODE_TYPE_MEMSET, nodeParams,
                    [](const CUgraphNodeParams& params, CUDA_MEMSET_NODE_PARAMS_v1* out) {
                      memcpy(out, &params.memset, sizeof(*out));
                    });
}

extern "C" CUresult cuGraphHostNodeGetParams(CUgraphNode hNode,
                                             CUDA_HOST_NODE_PARAMS_v1* nodeParams) {
  SIM_CALL(cuGraphHostNodeGetParams, hNode, nodeParams);
  return graph::Get(hNode, CU_GRAPH_NODE_TYPE_HOST, nodeParams,
                    [](const CUgraphNodeParams& params, CUDA_HOST_NODE_PARAMS_v1* out) {
                      *out = {params.host.fn, params.host.userData};
                    });
}

extern "C" CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph* phGraph) {
  SIM_CALL(cuGraphChildGraphNodeGetGraph, hNode, phGraph);
  return graph::Get(
      hNode, CU_GRAPH_NODE_TYPE_GRAPH, phGraph,
      [](const CUgraphNodeParams& params, CUgraph* out) { *out = params.graph.graph; });
}

extern "C" CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent* event_out) {
  SIM_CALL(cuGraphEventRecordNodeGetEvent, hNode, event_out);
  return graph::Get(
      hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event_out,
      [](const CUgraphNodeParams& params, CUevent* out) { *out = params.eventRecord.event; });
}

extern "C" CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent* event_out) {
  SIM_CALL(cuGraphEventWaitNodeGetEvent, hNode, event_out);
  return graph::Get(
      hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event_out,
      [](const CUgraphNodeParams& params, CUevent* out) { *out = params.eventWait.event; });
}

extern "C" CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode,
                                                 CUDA_MEM_ALLOC_NODE_PARAMS_v1* params_out) {
  SIM_CALL(cuGraphMemAllocNodeGetParams, hNode, params_out);
  return graph::Get(hNode, CU_GRAPH_NODE_TYPE_MEM_ALLOC, params_out,
                    [](const CUgraphNodeParams& params, CUDA_MEM_ALLOC_NODE_PARAMS_v1* out) {
                      static_assert(sizeof(*out) == sizeof(params.alloc));
                      memcpy(out, &params.alloc, sizeof(*out));
                    });
}

extern "C" CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr* dptr_out) {
  SIM_CALL(cuGraphMemFreeNodeGetParams, hNode, dptr_out);
  return graph::Get(
      hNode, CU_GRAPH_NODE_TYPE_MEM_FREE, dptr_out,
      [](const CUgraphNodeParams& params, CUdeviceptr* out) { *out = params.free.dptr; });
}

extern "C" CUresult cuGraphBatchMemOpNodeGetParams(
    CUgraphNode hNode, CUDA_BATCH_MEM_OP_NODE_PARAMS_v1* nodeParams_out) {
  SIM_CALL(cuGraphBatchMemOpNodeGetParams, hNode, nodeParams_out);
  return graph::Get(hNode, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, nodeParams_out,
                    [](const CUgraphNodeParams& params, CUDA_BATCH_MEM_OP_NODE_PARAMS_v1* out) {
                      *out = {params.memOp.ctx, params.memOp.count, params.memOp.paramArray,
                              params.memOp.flags};
                    });
}

extern "C" CUresult cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUlaunchAttributeID attr,
                                                  CUlaunchAttributeValue* value_out) {
  SIM_CALL(cuGraphKernelNodeGetAttribute, hNode, attr, value_out);
  return graph::GetAttribute(hNode, attr, value_out);
}

extern "C" CUresult cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUlaunchAttributeID attr,
                                                  const CUlaunchAttributeValue* value) {
  SIM_CALL(cuGraphKernelNodeSetAttribute, hNode, attr, value);
  return graph::SetAttribute(hNode, attr, value);
}

extern "C" CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src) {
  SIM_CALL(cuGraphKernelNodeCopyAttributes, dst, src);
  CUlaunchAttributeValue value;
  const CUresult result = graph::GetAttribute(src, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value);
  if (result != CUDA_SUCCESS) return result;
  return graph::SetAttribute(dst, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value);
}
