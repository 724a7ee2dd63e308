// Executable graphs. Must not know captures, nor what operations do.
#include "cuda/graphs/graph_exec.h"

#include <string.h>

#include "cuda/devices/context.h"
#include "cuda/graphs/capture.h"
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
