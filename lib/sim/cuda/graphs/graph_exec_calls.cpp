// The exports that instantiate, launch, update and end executable graphs. Must not know captures.
#include <string.h>

#include "cuda/graphs/graph_exec.h"
#include "cuda/graphs/graph_params.h"
#include "cuda/streams/launch.h"

namespace sim {

namespace graph {

namespace {

CUresult Make(CUgraphExec* out, CUgraph graph, uint64_t flags) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  Executable* executable = nullptr;
  const CUresult result = Instantiate(graph, flags, &executable);
  if (result == CUDA_SUCCESS) *out = AsHandle<CUgraphExec>(executable->handle);
  return result;
}

// The forms of before CUDA 12, with a place for messages; there are none.
CUresult MakeWithLog(CUgraphExec* out, CUgraph graph, CUgraphNode* error_node, char* log,
                     size_t log_bytes) {
  if (error_node != nullptr) *error_node = nullptr;
  if (log != nullptr && log_bytes != 0) log[0] = '\0';
  return Make(out, graph, 0);
}

CUresult MakeWithParams(bool, CUgraphExec* out, CUgraph graph,
                        CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  params->hErrNode_out = nullptr;
  const CUresult result = Make(out, graph, params->flags);
  params->result_out =
      result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}

CUresult Upload(bool per_thread, CUgraphExec handle, CUstream stream_handle) {
  DriverLock lock;
  if (FindExecutable(handle) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  stream::Stream* stream = nullptr;
  return stream::Resolve(stream_handle, per_thread, &stream);
}

// Replaces what a node does; its type stays.
CUresult Replace(Node* node, CUgraphNodeParams* params) {
  if (node == nullptr || node->operation.type != params->type) return CUDA_ERROR_INVALID_VALUE;
  Operation operation;
  const CUresult result = OperationOf(params, &operation);
  if (result != CUDA_SUCCESS) return result;
  DisposeOperation(&node->operation);
  node->operation = operation;
  return CUDA_SUCCESS;
}

CUresult Set(CUgraphNode handle, CUgraphNodeParams params) {
  DriverLock lock;
  return Replace(FindNode(handle), &params);
}

CUresult SetInExecutable(CUgraphExec handle, CUgraphNode original, CUgraphNodeParams params) {
  DriverLock lock;
  const Executable* executable = FindExecutable(handle);
  if (executable == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Node* node = FindSnapshot(*executable, original);
  const CUresult result = Replace(node, &params);
  const bool is_kernel = result == CUDA_SUCCESS && params.type == CU_GRAPH_NODE_TYPE_KERNEL;
  return is_kernel ? launch::Provide(node->operation) : result;
}

}  // namespace

}  // namespace graph

}  // namespace sim

// The exports are global, everything that they use is in sim.
using namespace sim;

extern "C" CUresult cuGraphInstantiate(CUgraphExec* phGraphExec, CUgraph hGraph,
                                       CUgraphNode* phErrorNode, char* logBuffer,
                                       size_t bufferSize) {
  SIM_CALL(cuGraphInstantiate, phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
  return graph::MakeWithLog(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

extern "C" CUresult cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph,
                                          CUgraphNode* phErrorNode, char* logBuffer,
                                          size_t bufferSize) {
  SIM_CALL(cuGraphInstantiate_v2, phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
  return graph::MakeWithLog(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

extern "C" CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph,
                                                unsigned long long flags) {
  SIM_CALL(cuGraphInstantiateWithFlags, phGraphExec, hGraph, flags);
  return graph::Make(phGraphExec, hGraph, flags);
}

SIM_TWINS(cuGraphInstantiateWithParams, graph::MakeWithParams,
          (CUgraphExec * phGraphExec, CUgraph hGraph,
           CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams),
          phGraphExec, hGraph, instantiateParams);
SIM_TWINS(cuGraphLaunch, graph::Launch, (CUgraphExec hGraphExec, CUstream hStream), hGraphExec,
          hStream);
SIM_TWINS(cuGraphUpload, graph::Upload, (CUgraphExec hGraphExec, CUstream hStream), hGraphExec,
          hStream);

// Launches that are still to end keep what they need.
extern "C" CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
  SIM_CALL(cuGraphExecDestroy, hGraphExec);
  DriverLock lock;
  graph::Executable* executable = graph::FindExecutable(hGraphExec);
  if (executable == nullptr) return CUDA_ERROR_INVALID_VALUE;
  graph::DestroyExecutable(executable);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t* flags) {
  SIM_CALL(cuGraphExecGetFlags, hGraphExec, flags);
  DriverLock lock;
  const graph::Executable* executable = graph::FindExecutable(hGraphExec);
  if (executable == nullptr || flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = executable->flags;
  return CUDA_SUCCESS;
}

extern "C" CUresult cuGraphExecGetId(CUgraphExec hGraphExec, unsigned int* graphId) {
  SIM_CALL(cuGraphExecGetId, hGraphExec, graphId);
  DriverLock lock;
  const graph::Executable* executable = graph::FindExecutable(hGraphExec);
  if (executable == nullptr || graphId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *graphId = graph::FindByHandle(executable->graph)->id;
  return CUDA_SUCCESS;
}

extern "C" CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph,
                                      CUgraphNode* hErrorNode_out,
                                      CUgraphExecUpdateResult* updateResult_out) {
  SIM_CALL(cuGraphExecUpdate, hGraphExec, hGraph, hErrorNode_out, updateResult_out);
  DriverLock lock;
  graph::Executable* executable = graph::FindExecutable(hGraphExec);
  if (executable == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphExecUpdateResultInfo_v1 info;
  const CUresult result = graph::Update(executable, hGraph, &info);
  if (hErrorNode_out != nullptr) *hErrorNode_out = info.errorNode;
  if (updateResult_out != nullptr) *updateResult_out = info.result;
  return result;
}

extern "C" CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                                         CUgraphExecUpdateResultInfo_v1* resultInfo) {
  SIM_CALL(cuGraphExecUpdate_v2, hGraphExec, hGraph, resultInfo);
  DriverLock lock;
  graph::Executable* executable = graph::FindExecutable(hGraphExec);
  if (executable == nullptr || resultInfo == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return graph::Update(executable, hGraph, resultInfo);
}

extern "C" CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode,
                                          unsigned int isEnabled) {
  SIM_CALL(cuGraphNodeSetEnabled, hGraphExec, hNode, isEnabled);
  DriverLock lock;
  const graph::Executable* executable = graph::FindExecutable(hGraphExec);
  graph::Node* node = executable != nullptr ? graph::FindSnapshot(*executable, hNode) : nullptr;
  // Only work that can be left out without harm: kernels, fills and copies.
  if (node == nullptr || node->operation.type > CU_GRAPH_NODE_TYPE_MEMSET) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  node->disabled = isEnabled == 0;
  return CUDA_SUCCESS;
}

extern "C" CUresult cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode,
                                          unsigned int* isEnabled) {
  SIM_CALL(cuGraphNodeGetEnabled, hGraphExec, hNode, isEnabled);
  DriverLock lock;
  const graph::Executable* executable = graph::FindExecutable(hGraphExec);
  const graph::Node* node =
      executable != nullptr ? graph::FindSnapshot(*executable, hNode) : nullptr;
  if (node == nullptr || isEnabled == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *isEnabled = node->disabled ? 0 : 1;
  return CUDA_SUCCESS;
}

extern "C" CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
  SIM_CALL(cuGraphNodeSetParams, hNode, nodeParams);
  return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE : graph::Set(hNode, *nodeParams);
}

extern "C" CUresult cuGraphNodeSetParams_v2(CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
  SIM_CALL(cuGraphNodeSetParams_v2, hNode, nodeParams);
  return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE : graph::Set(hNode, *nodeParams);
}

extern "C" CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                             CUgraphNodeParams* nodeParams) {
  SIM_CALL(cuGraphExecNodeSetParams, hGraphExec, hNode, nodeParams);
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return graph::SetInExecutable(hGraphExec, hNode, *nodeParams);
}

// The forms for one type each: in the graph, and in what was made of it.
#define SIM_NODE_SETTER(name, type, convert)                                             \
  extern "C" CUresult cuGraph##name(CUgraphNode hNode, const type* nodeParams) {         \
    SIM_CALL(cuGraph##name, hNode, nodeParams);                                          \
    return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE                              \
                                 : graph::Set(hNode, graph::convert(*nodeParams));       \
  }                                                                                      \
  extern "C" CUresult cuGraphExec##name(CUgraphExec hGraphExec, CUgraphNode hNode,       \
                                        const type* nodeParams) {                        \
    SIM_CALL(cuGraphExec##name, hGraphExec, hNode, nodeParams);                          \
    return nodeParams == nullptr                                                         \
               ? CUDA_ERROR_INVALID_VALUE                                                \
               : graph::SetInExecutable(hGraphExec, hNode, graph::convert(*nodeParams)); \
  }                                                                                      \
  static_assert(true)

SIM_NODE_SETTER(KernelNodeSetParams, CUDA_KERNEL_NODE_PARAMS_v1, KernelParams);
SIM_NODE_SETTER(KernelNodeSetParams_v2, CUDA_KERNEL_NODE_PARAMS_v2, KernelParams);
SIM_NODE_SETTER(HostNodeSetParams, CUDA_HOST_NODE_PARAMS_v1, HostParams);
SIM_NODE_SETTER(BatchMemOpNodeSetParams, CUDA_BATCH_MEM_OP_NODE_PARAMS_v1, BatchParams);

#define SIM_EVENT_SETTER(name, type)                                                   \
  extern "C" CUresult cuGraph##name(CUgraphNode hNode, CUevent event) {                \
    SIM_CALL(cuGraph##name, hNode, event);                                             \
    return graph::Set(hNode, graph::EventParams(type, event));                         \
  }                                                                                    \
  extern "C" CUresult cuGraphExec##name(CUgraphExec hGraphExec, CUgraphNode hNode,     \
                                        CUevent event) {                               \
    SIM_CALL(cuGraphExec##name, hGraphExec, hNode, event);                             \
    return graph::SetInExecutable(hGraphExec, hNode, graph::EventParams(type, event)); \
  }                                                                                    \
  static_assert(true)

SIM_EVENT_SETTER(EventRecordNodeSetEvent, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
SIM_EVENT_SETTER(EventWaitNodeSetEvent, CU_GRAPH_NODE_TYPE_WAIT_EVENT);

// Without a context of their own, setters in a graph keep using the current one.
extern "C" CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode,
                                               const CUDA_MEMCPY3D_v2* nodeParams) {
  SIM_CALL(cuGraphMemcpyNodeSetParams, hNode, nodeParams);
  return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE
                               : graph::Set(hNode, graph::CopyParams(*nodeParams, nullptr));
}

extern "C" CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode,
                                               const CUDA_MEMSET_NODE_PARAMS_v1* nodeParams) {
  SIM_CALL(cuGraphMemsetNodeSetParams, hNode, nodeParams);
  return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE
                               : graph::Set(hNode, graph::FillParams(*nodeParams, nullptr));
}

extern "C" CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                   const CUDA_MEMCPY3D_v2* copyParams,
                                                   CUcontext ctx) {
  SIM_CALL(cuGraphExecMemcpyNodeSetParams, hGraphExec, hNode, copyParams, ctx);
  if (copyParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return graph::SetInExecutable(hGraphExec, hNode, graph::CopyParams(*copyParams, ctx));
}

extern "C" CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                   const CUDA_MEMSET_NODE_PARAMS_v1* memsetParams,
                                                   CUcontext ctx) {
  SIM_CALL(cuGraphExecMemsetNodeSetParams, hGraphExec, hNode, memsetParams, ctx);
  if (memsetParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return graph::SetInExecutable(hGraphExec, hNode, graph::FillParams(*memsetParams, ctx));
}

extern "C" CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                       CUgraph childGraph) {
  SIM_CALL(cuGraphExecChildGraphNodeSetParams, hGraphExec, hNode, childGraph);
  return graph::SetInExecutable(hGraphExec, hNode, graph::ChildParams(childGraph));
}
