// The exports that make graphs, ask how they hang together, and change that.
// Must not know operations, streams or captures.
#include <stdio.h>

#include "cuda/graphs/graph.h"
#include "machine/calls.h"

namespace sim {

namespace graph {

namespace {

// The API's manner of returning lists: with a null array it tells the number; else it fills as many
// as fit, nulls the rest, and tells how many there were. `at(i)` gives element i.
template <typename Element, typename At>
CUresult GiveList(Element* out, size_t* count, size_t available, At at) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (out == nullptr) {
    *count = available;
    return CUDA_SUCCESS;
  }
  for (size_t i = 0; i < *count; ++i) out[i] = i < available ? at(i) : Element{};
  if (*count > available) *count = available;
  return CUDA_SUCCESS;
}

struct Edge {
  CUgraphNode from;
  CUgraphNode to;
  CUgraphEdgeData data;
};

CUresult GiveEdges(const Vec<Edge>& edges, CUgraphNode* from, CUgraphNode* to,
                   CUgraphEdgeData* data, size_t* count) {
  if (count == nullptr || (from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  const size_t asked = *count;
  CUresult result = GiveList(from, count, edges.size(), [&](size_t i) { return edges[i].from; });
  size_t again = asked;
  if (to != nullptr) GiveList(to, &again, edges.size(), [&](size_t i) { return edges[i].to; });
  again = asked;
  if (data != nullptr && from != nullptr) {
    GiveList(data, &again, edges.size(), [&](size_t i) { return edges[i].data; });
  }
  return result;
}

CUresult GetEdges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                  size_t* count) {
  DriverLock lock;
  const Graph* graph = Find(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Vec<Edge> edges{};
  for (const Node* node : graph->nodes) {
    for (size_t i = 0; i < node->before.size(); ++i) {
      edges.Push({AsHandle<CUgraphNode>(node->before[i]), AsHandle<CUgraphNode>(node->handle),
                  node->edges[i]});
    }
  }
  const CUresult result = GiveEdges(edges, from, to, data, count);
  edges.Free();
  return result;
}

CUresult GetDependencies(CUgraphNode handle, CUgraphNode* out, CUgraphEdgeData* data,
                         size_t* count) {
  DriverLock lock;
  const Node* node = FindNode(handle);
  if (node == nullptr || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  size_t again = *count;
  if (data != nullptr && out != nullptr) {
    GiveList(data, &again, node->before.size(), [&](size_t i) { return node->edges[i]; });
  }
  return GiveList(out, count, node->before.size(),
                  [&](size_t i) { return AsHandle<CUgraphNode>(node->before[i]); });
}

CUresult GetDependents(CUgraphNode handle, CUgraphNode* out, CUgraphEdgeData* data, size_t* count) {
  DriverLock lock;
  const Node* node = FindNode(handle);
  if (node == nullptr || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Vec<Edge> edges{};
  for (const Node* other : FindByHandle(node->graph)->nodes) {
    for (size_t i = 0; i < other->before.size(); ++i) {
      if (other->before[i] != node->handle) continue;
      edges.Push({handle, AsHandle<CUgraphNode>(other->handle), other->edges[i]});
    }
  }
  size_t again = *count;
  if (data != nullptr && out != nullptr) {
    GiveList(data, &again, edges.size(), [&](size_t i) { return edges[i].data; });
  }
  const CUresult result = GiveList(out, count, edges.size(), [&](size_t i) { return edges[i].to; });
  edges.Free();
  return result;
}

CUresult ChangeDependencies(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                            const CUgraphEdgeData* data, size_t count, bool add) {
  if (count != 0 && (from == nullptr || to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  const Graph* graph = Find(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const Node* before = FindNode(from[i]);
    Node* after = FindNode(to[i]);
    if (before == nullptr || after == nullptr || after->graph != graph->handle) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const bool done =
        add ? AddDependency(*before, *after, data != nullptr ? data[i] : CUgraphEdgeData{})
            : RemoveDependency(*before, *after);
    if (!done) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

// Reads something of a graph or a node under the lock; 1 when either is missing.
template <typename Value, typename Read>
CUresult AskGraph(CUgraph handle, Value* out, Read read) {
  DriverLock lock;
  const Graph* graph = Find(handle);
  if (graph == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = read(*graph);
  return CUDA_SUCCESS;
}

template <typename Value, typename Read>
CUresult AskNode(CUgraphNode handle, Value* out, Read read) {
  DriverLock lock;
  const Node* node = FindNode(handle);
  if (node == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = read(*node);
  return CUDA_SUCCESS;
}

// Graphviz text: one line per node and edge.
bool PrintDot(const Graph& graph, FILE* file) {
  fprintf(file, "digraph dot {\nsubgraph cluster_1 {\n");
  for (const Node* node : graph.nodes) {
    fprintf(file, "\"graph_%u_node_%u\" [label=\"type %u\"];\n", graph.id, node->local_id,
            static_cast<unsigned>(node->operation.type));
    for (uint64_t before : node->before) {
      fprintf(file, "\"graph_%u_node_%u\" -> \"graph_%u_node_%u\";\n", graph.id,
              FindNodeByHandle(before)->local_id, graph.id, node->local_id);
    }
  }
  fprintf(file, "}\n}\n");
  return ferror(file) == 0;
}

}  // namespace

}  // namespace graph

}  // namespace sim

// The exports are global, everything that they use is in sim.
using namespace sim;

extern "C" CUresult cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
  SIM_CALL(cuGraphCreate, phGraph, flags);
  if (phGraph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  const graph::Graph* graph = graph::Create();
  if (graph == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *phGraph = AsHandle<CUgraph>(graph->handle);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuGraphDestroy(CUgraph hGraph) {
  SIM_CALL(cuGraphDestroy, hGraph);
  DriverLock lock;
  const graph::Graph* graph = graph::Find(hGraph);
  if (graph == nullptr || graph->is_child) return CUDA_ERROR_INVALID_VALUE;
  graph::Destroy(graph->handle);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuGraphClone(CUgraph* phGraphClone, CUgraph originalGraph) {
  SIM_CALL(cuGraphClone, phGraphClone, originalGraph);
  DriverLock lock;
  const graph::Graph* original = graph::Find(originalGraph);
  if (phGraphClone == nullptr || original == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (graph::HasMemoryNodes(*original)) return CUDA_ERROR_NOT_SUPPORTED;
  const uint64_t clone = graph::Clone(HandleValue(originalGraph));
  if (clone == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *phGraphClone = AsHandle<CUgraph>(clone);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuGraphGetId(CUgraph hGraph, unsigned int* graphId) {
  SIM_CALL(cuGraphGetId, hGraph, graphId);
  return graph::AskGraph(hGraph, graphId, [](const graph::Graph& graph) { return graph.id; });
}

extern "C" CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
  SIM_CALL(cuGraphGetNodes, hGraph, nodes, numNodes);
  DriverLock lock;
  const graph::Graph* graph = graph::Find(hGraph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return graph::GiveList(nodes, numNodes, graph->nodes.size(),
                         [&](size_t i) { return AsHandle<CUgraphNode>(graph->nodes[i]->handle); });
}

extern "C" CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode* rootNodes,
                                        size_t* numRootNodes) {
  SIM_CALL(cuGraphGetRootNodes, hGraph, rootNodes, numRootNodes);
  DriverLock lock;
  const graph::Graph* graph = graph::Find(hGraph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Vec<uint64_t> roots{};
  for (const graph::Node* node : graph->nodes) {
    if (node->before.empty()) roots.Push(node->handle);
  }
  const CUresult result = graph::GiveList(rootNodes, numRootNodes, roots.size(), [&](size_t i) {
    return AsHandle<CUgraphNode>(roots[i]);
  });
  roots.Free();
  return result;
}

extern "C" CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to,
                                    size_t* numEdges) {
  SIM_CALL(cuGraphGetEdges, hGraph, from, to, numEdges);
  return graph::GetEdges(hGraph, from, to, nullptr, numEdges);
}

extern "C" CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to,
                                       CUgraphEdgeData* edgeData, size_t* numEdges) {
  SIM_CALL(cuGraphGetEdges_v2, hGraph, from, to, edgeData, numEdges);
  return graph::GetEdges(hGraph, from, to, edgeData, numEdges);
}

extern "C" CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode* from,
                                           const CUgraphNode* to, size_t numDependencies) {
  SIM_CALL(cuGraphAddDependencies, hGraph, from, to, numDependencies);
  return graph::ChangeDependencies(hGraph, from, to, nullptr, numDependencies, true);
}

extern "C" CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode* from,
                                              const CUgraphNode* to,
                                              const CUgraphEdgeData* edgeData,
                                              size_t numDependencies) {
  SIM_CALL(cuGraphAddDependencies_v2, hGraph, from, to, edgeData, numDependencies);
  return graph::ChangeDependencies(hGraph, from, to, edgeData, numDependencies, true);
}

extern "C" CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode* from,
                                              const CUgraphNode* to, size_t numDependencies) {
  SIM_CALL(cuGraphRemoveDependencies, hGraph, from, to, numDependencies);
  return graph::ChangeDependencies(hGraph, from, to, nullptr, numDependencies, false);
}

extern "C" CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode* from,
                                                 const CUgraphNode* to,
                                                 const CUgraphEdgeData* edgeData,
                                                 size_t numDependencies) {
  SIM_CALL(cuGraphRemoveDependencies_v2, hGraph, from, to, edgeData, numDependencies);
  return graph::ChangeDependencies(hGraph, from, to, edgeData, numDependencies, false);
}

extern "C" CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode* dependencies,
                                               size_t* numDependencies) {
  SIM_CALL(cuGraphNodeGetDependencies, hNode, dependencies, numDependencies);
  return graph::GetDependencies(hNode, dependencies, nullptr, numDependencies);
}

extern "C" CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode* dependencies,
                                                  CUgraphEdgeData* edgeData,
                                                  size_t* numDependencies) {
  SIM_CALL(cuGraphNodeGetDependencies_v2, hNode, dependencies, edgeData, numDependencies);
  return graph::GetDependencies(hNode, dependencies, edgeData, numDependencies);
}

extern "C" CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                                 size_t* numDependentNodes) {
  SIM_CALL(cuGraphNodeGetDependentNodes, hNode, dependentNodes, numDependentNodes);
  return graph::GetDependents(hNode, dependentNodes, nullptr, numDependentNodes);
}

extern "C" CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                                    CUgraphEdgeData* edgeData,
                                                    size_t* numDependentNodes) {
  SIM_CALL(cuGraphNodeGetDependentNodes_v2, hNode, dependentNodes, edgeData, numDependentNodes);
  return graph::GetDependents(hNode, dependentNodes, edgeData, numDependentNodes);
}

extern "C" CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType* type) {
  SIM_CALL(cuGraphNodeGetType, hNode, type);
  return graph::AskNode(hNode, type, [](const graph::Node& node) { return node.operation.type; });
}

extern "C" CUresult cuGraphNodeGetLocalId(CUgraphNode hNode, unsigned int* nodeId) {
  SIM_CALL(cuGraphNodeGetLocalId, hNode, nodeId);
  return graph::AskNode(hNode, nodeId, [](const graph::Node& node) { return node.local_id; });
}

extern "C" CUresult cuGraphNodeGetToolsId(CUgraphNode hNode, unsigned long long* toolsNodeId) {
  SIM_CALL(cuGraphNodeGetToolsId, hNode, toolsNodeId);
  return graph::AskNode(hNode, toolsNodeId, [](const graph::Node& node) {
    const graph::Graph* graph = graph::FindByHandle(node.graph);
    return static_cast<unsigned long long>(graph->id) << 32 | node.local_id;
  });
}

extern "C" CUresult cuGraphNodeGetContainingGraph(CUgraphNode hNode, CUgraph* phGraph) {
  SIM_CALL(cuGraphNodeGetContainingGraph, hNode, phGraph);
  return graph::AskNode(hNode, phGraph,
                        [](const graph::Node& node) { return AsHandle<CUgraph>(node.graph); });
}

extern "C" CUresult cuGraphNodeFindInClone(CUgraphNode* phNode, CUgraphNode hOriginalNode,
                                           CUgraph hClonedGraph) {
  SIM_CALL(cuGraphNodeFindInClone, phNode, hOriginalNode, hClonedGraph);
  DriverLock lock;
  const graph::Graph* clone = graph::Find(hClonedGraph);
  if (clone == nullptr || phNode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const graph::Node* node : clone->nodes) {
    if (node->origin != HandleValue(hOriginalNode)) continue;
    *phNode = AsHandle<CUgraphNode>(node->handle);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

// Memory nodes cannot be taken out again.
extern "C" CUresult cuGraphDestroyNode(CUgraphNode hNode) {
  SIM_CALL(cuGraphDestroyNode, hNode);
  DriverLock lock;
  graph::Node* node = graph::FindNode(hNode);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUgraphNodeType type = node->operation.type;
  if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  graph::RemoveNode(node);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char* path, unsigned int flags) {
  SIM_CALL(cuGraphDebugDotPrint, hGraph, path, flags);
  DriverLock lock;
  const graph::Graph* graph = graph::Find(hGraph);
  if (graph == nullptr || path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  FILE* file = fopen(path, "we");
  if (file == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
  const bool written = graph::PrintDot(*graph, file);
  return fclose(file) == 0 && written ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}
