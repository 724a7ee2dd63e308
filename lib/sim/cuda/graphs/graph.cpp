// Graphs and their nodes: making, copying, ordering, ending. Must not know streams or captures.
#include "cuda/graphs/graph.h"

#include <string.h>

namespace sim::graph {

namespace {

constinit Table<Graph, Kind::kGraph> graphs;
constinit Table<Node, Kind::kGraphNode> nodes;
constinit uint32_t next_graph_id = 1;

bool Contains(const Vec<uint64_t>& list, uint64_t value) {
  for (uint64_t candidate : list) {
    if (candidate == value) return true;
  }
  return false;
}

Node* NewNode(Graph& graph, const Operation& operation) {
  uint64_t handle = 0;
  Node* node = nodes.Create(&handle);
  if (node == nullptr) return nullptr;
  if (!graph.nodes.Push(node)) {
    nodes.Destroy(handle);
    return nullptr;
  }
  node->handle = handle;
  node->graph = graph.handle;
  node->local_id = graph.next_local_id++;
  node->operation = operation;
  return node;
}

void FreeNode(Node* node) {
  DisposeOperation(&node->operation);
  node->before.Free();
  node->parameter_pointers.Free();
  node->edges.Free();
  nodes.Destroy(node->handle);
}

// The copies of the nodes that a node depends on; every node was copied before.
bool CloneEdges(const Node& from, Node* to) {
  for (size_t i = 0; i < from.before.size(); ++i) {
    const Node* before = nodes.Find(from.before[i]);
    if (before == nullptr || !to->before.Push(before->clone) || !to->edges.Push(from.edges[i])) {
      return false;
    }
  }
  return true;
}

bool CloneNodes(const Graph& from, Graph* to) {
  for (Node* node : from.nodes) {
    Operation operation;
    if (!CloneOperation(node->operation, &operation)) return false;
    Node* copy = NewNode(*to, operation);
    if (copy == nullptr) {
      DisposeOperation(&operation);
      return false;
    }
    copy->origin = node->handle;
    copy->local_id = node->local_id;
    copy->disabled = node->disabled;
    node->clone = copy->handle;
  }
  for (size_t i = 0; i < from.nodes.size(); ++i) {
    if (!CloneEdges(*from.nodes[i], to->nodes[i])) return false;
  }
  return true;
}

}  // namespace

Graph* Find(CUgraph handle) { return graphs.Find(handle); }
Graph* FindByHandle(uint64_t handle) { return graphs.Find(handle); }
Node* FindNode(CUgraphNode handle) { return nodes.Find(handle); }
Node* FindNodeByHandle(uint64_t handle) { return nodes.Find(handle); }

Graph* Create() {
  uint64_t handle = 0;
  Graph* graph = graphs.Create(&handle);
  if (graph == nullptr) return nullptr;
  graph->handle = handle;
  graph->id = next_graph_id++;
  return graph;
}

void Destroy(uint64_t handle) {
  Graph* graph = graphs.Find(handle);
  if (graph == nullptr) return;
  for (Node* node : graph->nodes) FreeNode(node);
  graph->nodes.Free();
  ReleaseUserObjects(*graph);
  graphs.Destroy(handle);
}

uint64_t Clone(uint64_t handle) {
  const Graph* from = graphs.Find(handle);
  if (from == nullptr) return 0;
  Graph* to = Create();
  if (to == nullptr) return 0;
  to->origin = handle;
  to->next_local_id = from->next_local_id;
  if (!CloneNodes(*from, to) || !CloneUserObjects(*from, to)) {
    Destroy(to->handle);
    return 0;
  }
  return to->handle;
}

CUresult AddNode(Graph& graph, const Operation& operation, const CUgraphNode* dependencies,
                 const CUgraphEdgeData* edges, size_t count, Node** added) {
  if (count != 0 && dependencies == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const Node* before = nodes.Find(dependencies[i]);
    if (before == nullptr || before->graph != graph.handle) return CUDA_ERROR_INVALID_VALUE;
    for (size_t j = 0; j < i; ++j) {
      if (dependencies[j] == dependencies[i]) return CUDA_ERROR_INVALID_VALUE;
    }
  }
  Node* node = NewNode(graph, operation);
  if (node == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  for (size_t i = 0; i < count; ++i) {
    const CUgraphEdgeData edge = edges != nullptr ? edges[i] : CUgraphEdgeData{};
    if (!node->before.Push(HandleValue(dependencies[i])) || !node->edges.Push(edge)) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  *added = node;
  return CUDA_SUCCESS;
}

void RemoveNode(Node* node) {
  Graph* graph = graphs.Find(node->graph);
  for (Node* other : graph->nodes) RemoveDependency(*node, *other);
  for (size_t i = 0; i < graph->nodes.size(); ++i) {
    if (graph->nodes[i] != node) continue;
    graph->nodes.Erase(i);
    break;
  }
  FreeNode(node);
}

bool AddDependency(const Node& from, Node& to, const CUgraphEdgeData& edge) {
  if (from.graph != to.graph || &from == &to || Contains(to.before, from.handle)) return false;
  return to.before.Push(from.handle) && to.edges.Push(edge);
}

bool RemoveDependency(const Node& from, Node& to) {
  for (size_t i = 0; i < to.before.size(); ++i) {
    if (to.before[i] != from.handle) continue;
    to.before.Erase(i);
    to.edges.Erase(i);
    return true;
  }
  return false;
}

bool IsBehind(uint64_t node, const Vec<uint64_t>& front) {
  Vec<uint64_t> open{};
  Vec<uint64_t> seen{};
  for (uint64_t start : front) open.Push(start);
  bool found = false;
  while (!found && !open.empty()) {
    const uint64_t at = open.back();
    open.Pop();
    if (Contains(seen, at)) continue;
    seen.Push(at);
    found = at == node;
    const Node* here = nodes.Find(at);
    if (here == nullptr) continue;
    for (uint64_t before : here->before) open.Push(before);
  }
  open.Free();
  seen.Free();
  return found;
}

bool Sort(const Graph& graph, Vec<Node*>* order) {
  for (Node* node : graph.nodes) {
    node->unplaced = static_cast<uint32_t>(node->before.size());
    if (node->unplaced == 0 && !order->Push(node)) return false;
  }
  for (size_t at = 0; at < order->size(); ++at) {
    const uint64_t placed = (*order)[at]->handle;
    for (Node* node : graph.nodes) {
      if (node->unplaced == 0 || !Contains(node->before, placed)) continue;
      if (--node->unplaced == 0 && !order->Push(node)) return false;
    }
  }
  return order->size() == graph.nodes.size();
}

bool HasMemoryNodes(const Graph& graph) {
  for (const Node* node : graph.nodes) {
    const CUgraphNodeType type = node->operation.type;
    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE) return true;
  }
  return false;
}

uint32_t CountKernels(const Graph& graph) {
  uint32_t count = 0;
  for (const Node* node : graph.nodes) {
    if (node->operation.type == CU_GRAPH_NODE_TYPE_KERNEL) ++count;
    if (node->operation.type != CU_GRAPH_NODE_TYPE_GRAPH) continue;
    const Graph* child = graphs.Find(node->operation.graph);
    if (child != nullptr) count += CountKernels(*child);
  }
  return count;
}

}  // namespace sim::graph
