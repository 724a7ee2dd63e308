// Executable graphs, and the exports that instantiate, launch, update and end them. Must not know
// captures, nor what operations do.
#include "cuda/graphs/graph_exec.h"

#include <string.h>

#include "cuda/devices/context.h"
#include "cuda/graphs/capture.h"
#include "cuda/graphs/graph.h"
#include "cuda/streams/launch.h"

namespace sim::graph {

namespace {

constinit Table<Executable, Kind::kGraphExec> executables;

constexpr uint64_t kKnownFlags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

bool HasCycle(const Graph& graph) {
  Vec<Node*> order{};
  const bool sorted = Sort(graph, &order);
  order.Free();
  return !sorted;
}

bool HasExecutable(const Graph& graph) {
  bool found = false;
  executables.ForEach([&](uint64_t, Executable* executable) {
    const Graph* snapshot = FindByHandle(executable->graph);
    found = found || (snapshot != nullptr && snapshot->origin == graph.handle);
  });
  return found;
}

// Memory that a launch left allocated, and nobody freed since, cannot be allocated again.
CUresult CheckAllocations(const Executable& executable, const Graph& graph) {
  const bool frees = (executable.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
  for (const Node* node : graph.nodes) {
    if (node->operation.type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) continue;
    const CUdeviceptr address = node->operation.allocation.dptr;
    if (!IsAllocated(address)) continue;
    if (!frees) return CUDA_ERROR_INVALID_VALUE;
    NoteFreed(address);
  }
  return CUDA_SUCCESS;
}

CUgraphExecUpdateResult CompareNodes(const Node& snapshot, const Node& wanted) {
  if (snapshot.operation.type != wanted.operation.type) {
    return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
  }
  if (snapshot.before.size() != wanted.before.size()) {
    return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  }
  for (size_t i = 0; i < wanted.before.size(); ++i) {
    const Node* left = FindNodeByHandle(snapshot.before[i]);
    const Node* right = FindNodeByHandle(wanted.before[i]);
    if (left->local_id != right->local_id) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  }
  const bool moved = snapshot.operation.type == CU_GRAPH_NODE_TYPE_KERNEL &&
                     snapshot.operation.context != wanted.operation.context;
  return moved ? CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE
               : CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

CUgraphExecUpdateResult Compare(const Graph& snapshot, const Graph& wanted, const Node** culprit) {
  if (snapshot.nodes.size() != wanted.nodes.size()) {
    return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  }
  for (size_t i = 0; i < wanted.nodes.size(); ++i) {
    const CUgraphExecUpdateResult result = CompareNodes(*snapshot.nodes[i], *wanted.nodes[i]);
    if (result == CU_GRAPH_EXEC_UPDATE_SUCCESS) continue;
    *culprit = wanted.nodes[i];
    return result;
  }
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

CUresult ProvideEngine(const Operation& operation) {
  context::Context* context = context::Find(AsHandle<CUcontext>(operation.context));
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return context::AddEngine(context) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// All kernels, those of children and of conditions' bodies too.
CUresult ProvideKernels(const Graph& graph) {
  for (const Node* node : graph.nodes) {
    const Operation& operation = node->operation;
    CUresult result = CUDA_SUCCESS;
    if (operation.type == CU_GRAPH_NODE_TYPE_KERNEL) result = launch::Provide(operation);
    if (operation.type == CU_GRAPH_NODE_TYPE_EXTERNAL_ENGINE) result = ProvideEngine(operation);
    const Graph* child =
        operation.type == CU_GRAPH_NODE_TYPE_GRAPH ? FindByHandle(operation.graph) : nullptr;
    if (child != nullptr) result = ProvideKernels(*child);
    if (operation.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
      for (uint64_t body : operation.condition.bodies) {
        const Graph* inner = FindByHandle(body);
        if (inner != nullptr && result == CUDA_SUCCESS) result = ProvideKernels(*inner);
      }
    }
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace

Executable* FindExecutable(CUgraphExec handle) { return executables.Find(handle); }

CUresult Instantiate(CUgraph handle, uint64_t flags, Executable** created) {
  Graph* graph = Find(handle);
  if (graph == nullptr || (flags & ~kKnownFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (HasCycle(*graph)) return CUDA_ERROR_INVALID_VALUE;
  if (HasMemoryNodes(*graph) && HasExecutable(*graph)) return CUDA_ERROR_NOT_SUPPORTED;
  context::Context* context = nullptr;
  const CUresult result = context::Current(&context);
  if (result != CUDA_SUCCESS) return result;
  uint64_t executable_handle = 0;
  Executable* executable = executables.Create(&executable_handle);
  if (executable == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t snapshot = Clone(graph->handle);
  if (snapshot == 0) {
    executables.Destroy(executable_handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult provided = ProvideKernels(*FindByHandle(snapshot));
  if (provided != CUDA_SUCCESS) {
    Destroy(snapshot);
    executables.Destroy(executable_handle);
    return provided;
  }
  FindByHandle(snapshot)->is_executable = true;
  executable->handle = executable_handle;
  executable->graph = snapshot;
  executable->flags = flags;
  executable->device = context::PhysicalDevice(*context);
  *created = executable;
  return CUDA_SUCCESS;
}

void DestroyExecutable(Executable* executable) {
  Destroy(executable->graph);
  ReleaseWork(executable->last);
  executables.Destroy(executable->handle);
}

Node* FindSnapshot(const Executable& executable, CUgraphNode original) {
  for (Node* node : FindByHandle(executable.graph)->nodes) {
    if (node->origin == HandleValue(original)) return node;
  }
  return nullptr;
}

CUresult Update(Executable* executable, CUgraph handle, CUgraphExecUpdateResultInfo_v1* info) {
  *info = {CU_GRAPH_EXEC_UPDATE_ERROR, nullptr, nullptr};
  Graph* wanted = Find(handle);
  if (wanted == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Graph* snapshot = FindByHandle(executable->graph);
  const Node* culprit = nullptr;
  info->result = Compare(*snapshot, *wanted, &culprit);
  if (info->result != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
    if (culprit != nullptr) info->errorNode = AsHandle<CUgraphNode>(culprit->handle);
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
  const CUresult provided = ProvideKernels(*wanted);
  if (provided != CUDA_SUCCESS) return provided;
  for (size_t i = 0; i < wanted->nodes.size(); ++i) {
    Operation operation;
    if (!CloneOperation(wanted->nodes[i]->operation, &operation)) return CUDA_ERROR_OUT_OF_MEMORY;
    DisposeOperation(&snapshot->nodes[i]->operation);
    snapshot->nodes[i]->operation = operation;
  }
  return CUDA_SUCCESS;
}

CUresult Launch(bool per_thread, CUgraphExec handle, CUstream stream_handle) {
  launch::SpendOnLaunch();
  TimelineLock lock;
  Executable* executable = executables.Find(handle);
  if (executable == nullptr) return CUDA_ERROR_INVALID_VALUE;
  stream::Stream* stream = nullptr;
  CUresult result = stream::Resolve(stream_handle, per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;

  Operation operation = {};
  operation.type = CU_GRAPH_NODE_TYPE_GRAPH;
  operation.graph = executable->graph;
  if (stream->capture != nullptr) return capture::Record(*stream, operation);
  if (stream->is_legacy) result = capture::RefuseLegacy(stream->context);
  const Graph* snapshot = FindByHandle(executable->graph);
  if (result == CUDA_SUCCESS) result = CheckAllocations(*executable, *snapshot);
  if (result != CUDA_SUCCESS) return result;
  if (CountKernels(*snapshot) != 0) {
    lock.WaitForKernels(executable->device);
    executable = executables.Find(handle);
    if (executable == nullptr) return CUDA_ERROR_INVALID_VALUE;
    result = stream::Resolve(stream_handle, per_thread, &stream);
    if (result != CUDA_SUCCESS) return result;
  }

  Work* both[] = {stream::EndOf(lock, *stream), executable->last};
  Work* before = Join(lock, both, 2);
  ReleaseWork(both[0]);
  Work* end = Perform(lock, operation, {before, stream->priority}, &result);
  ReleaseWork(before);
  if (end == nullptr) return result;
  stream::Append(*stream, end);
  ReleaseWork(executable->last);
  executable->last = end;  // keeps the reference that Perform gave
  return result;
}

}  // namespace sim::graph

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
