// Performing graphs: every node behind those it depends on. Must not know streams or captures.
#include "cuda/graphs/graph.h"

namespace sim::graph {

namespace {

// The point behind everything that a node waits for: `head` when it depends on nothing.
Work* PointBefore(TimelineLock& lock, const Node& node, Work* head) {
  if (node.before.size() <= 1) {
    Work* only = node.before.empty() ? head : FindNodeByHandle(node.before[0])->done;
    RetainWork(only);
    return only;
  }
  Vec<Work*> before{};
  for (uint64_t handle : node.before) before.Push(FindNodeByHandle(handle)->done);
  Work* join = Join(lock, before.data(), before.size());
  before.Free();
  return join;
}

// A node that depends on none of its graph is behind `head` as the graph is.
Pause PauseBefore(const Node& node, const Behind& head) {
  if (node.before.empty()) return head.pause;
  for (const CUgraphEdgeData& edge : node.edges) {
    if (edge.type != CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC) return Pause::kStep;
  }
  return Pause::kNone;
}

CUresult PerformNode(TimelineLock& lock, Node* node, const Behind& head) {
  Work* before = PointBefore(lock, *node, head.work);
  const Behind behind = {before, head.priority, PauseBefore(*node, head)};
  if (before == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  if (node->disabled) {
    node->done = before;
    return CUDA_SUCCESS;
  }
  CUresult result = CUDA_SUCCESS;
  node->done = Perform(lock, node->operation, behind, &result);
  if (node->done == nullptr) {
    node->done = before;  // what was submitted stays; the launch reports the reason
  } else {
    ReleaseWork(before);
  }
  return result;
}

uint32_t DefaultValueOf(CUgraphConditionalHandle handle) {
  const Conditional* conditional = FindConditional(handle);
  return conditional != nullptr ? conditional->default_value : 0;
}

// The body that a condition's value selects, or 0.
uint64_t SelectBody(const Condition& condition) {
  const uint32_t value = DefaultValueOf(condition.handle);
  const Vec<uint64_t>& bodies = condition.bodies;
  if (condition.type == CU_GRAPH_COND_TYPE_SWITCH) {
    return value < bodies.size() ? bodies[value] : 0;
  }
  if (value != 0) return bodies.empty() ? 0 : bodies[0];
  const bool has_else = condition.type == CU_GRAPH_COND_TYPE_IF && bodies.size() > 1;
  return has_else ? bodies[1] : 0;
}

}  // namespace

Work* PerformNodes(TimelineLock& lock, uint64_t handle, const Behind& behind, CUresult* result) {
  *result = CUDA_ERROR_INVALID_VALUE;
  Graph* graph = FindByHandle(handle);
  Vec<Node*> order{};
  if (graph == nullptr || !Sort(*graph, &order)) {
    order.Free();
    return nullptr;
  }
  Work* head = Join(lock, &behind.work, 1);
  const Behind at_head = {head, behind.priority, behind.pause};
  Vec<Work*> ends{};
  ends.Push(head);
  *result = head != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  for (Node* node : order) {
    if (*result == CUDA_SUCCESS) *result = PerformNode(lock, node, at_head);
    if (node->done != nullptr) ends.Push(node->done);
  }
  Work* tail = head != nullptr ? Join(lock, ends.data(), ends.size()) : nullptr;
  for (Node* node : order) {
    ReleaseWork(node->done);
    node->done = nullptr;
  }
  ReleaseWork(head);
  ends.Free();
  order.Free();
  return tail;
}

Work* PerformCondition(TimelineLock& lock, const Condition& condition, const Behind& behind,
                       CUresult* result) {
  const uint64_t body = SelectBody(condition);
  if (body != 0) return PerformNodes(lock, body, behind, result);
  *result = CUDA_SUCCESS;
  return Join(lock, &behind.work, 1);
}

}  // namespace sim::graph
