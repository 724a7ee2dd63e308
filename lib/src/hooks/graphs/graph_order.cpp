#include "hooks/graphs/graph_order.h"

#include <algorithm>

#include "base/room.h"
#include "real.h"

namespace gpufence {
namespace {

// Of larger graphs nobody asks for the order: it would take milliseconds and megabytes.
constexpr size_t kMostNodes = size_t{1} << 18;
constexpr size_t kMostEdges = size_t{1} << 20;
constexpr uint64_t kMostSteps = UINT32_MAX;

// What is known of the node at one place of the order.
struct Place {
  int32_t passing;  // edges that begin to pass over here, less those that no longer do
  bool has_before;
  bool has_behind;
  bool overlaps;  // begins before what it depends on has ended
};

// Handles to places: open addressing, at most half full, in memory that begins as zero.
class Places {
 public:
  bool Fill(const CUgraphNode* nodes, size_t count) {
    nodes_ = nodes;
    while (room_ < 2 * count) room_ *= 2;
    if (!slots_.Reserve(room_)) return false;
    for (size_t i = 0; i < count; ++i) *SlotOf(nodes[i]) = static_cast<uint32_t>(i + 1);
    return true;
  }

  // `*place` is the node's; false when it is none of the graph's.
  bool Find(CUgraphNode node, size_t* place) {
    const uint32_t found = *SlotOf(node);
    *place = found - 1;
    return found != 0;
  }

 private:
  uint32_t* SlotOf(CUgraphNode node) {
    const uint64_t mixed = reinterpret_cast<uint64_t>(node) * 0x9e3779b97f4a7c15u;
    size_t at = mixed >> 32 & (room_ - 1);
    for (;; at = (at + 1) & (room_ - 1)) {
      uint32_t* slot = &slots_.begin()[at];
      if (*slot == 0 || nodes_[*slot - 1] == node) return slot;
    }
  }

  const CUgraphNode* nodes_ = nullptr;
  Room<uint32_t> slots_;
  size_t room_ = 16;
};

// The graph's edges, by handles.
struct Edges {
  Room<CUgraphNode> from;
  Room<CUgraphNode> to;
  Room<CUgraphEdgeData> data;
  size_t count = 0;
};

// Drivers before 12.3 have the first form only, and edges without data.
bool Ask(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data, size_t* count) {
  CUresult rc = real::cuGraphGetEdges_v2(graph, from, to, data, count);
  if (rc == CUDA_ERROR_NOT_FOUND) rc = real::cuGraphGetEdges(graph, from, to, count);
  return rc == CUDA_SUCCESS;
}

bool Read(CUgraph graph, Edges* edges) {
  if (!Ask(graph, nullptr, nullptr, nullptr, &edges->count)) return false;
  if (edges->count == 0) return true;
  return edges->count <= kMostEdges && edges->from.Reserve(edges->count) &&
         edges->to.Reserve(edges->count) && edges->data.Reserve(edges->count) &&
         Ask(graph, edges->from.begin(), edges->to.begin(), edges->data.begin(), &edges->count);
}

// Where edges pass. False when one goes against the order.
bool Draw(Edges* edges, Places* places, Place* drawn, size_t count) {
  for (size_t i = 0; i < edges->count; ++i) {
    size_t from = 0;
    size_t to = 0;
    if (!places->Find(edges->from.begin()[i], &from) || !places->Find(edges->to.begin()[i], &to) ||
        from >= to) {
      return false;
    }
    ++drawn[from + 1].passing;
    --drawn[to].passing;
    drawn[from].has_behind = drawn[to].has_before = true;
    drawn[to].overlaps |= edges->data.begin()[i].type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  }
  // What waits for nothing can run beside all that comes before it, and what nothing waits for
  // beside all behind.
  for (size_t i = 0; i < count; ++i) {
    if (!drawn[i].has_before) {
      ++drawn[0].passing;
      --drawn[i].passing;
    }
    if (!drawn[i].has_behind) ++drawn[i + 1].passing;
  }
  return true;
}

// A node over which no edge passes has all others before or behind itself.
uint64_t Sum(const Place* drawn, const uint32_t* steps, size_t count) {
  uint64_t total = 0;
  int64_t passing = 0;
  bool beside = false;
  for (size_t i = 0; i < count; ++i) {
    passing += drawn[i].passing;
    if (steps[i] == 0) continue;
    if (passing == 0) {
      total += (beside ? 1 : 0) + (drawn[i].overlaps ? 0 : steps[i]);
    }
    beside = passing != 0;
  }
  return total + (beside ? 1 : 0);
}

}  // namespace

uint32_t CountSteps(CUgraph graph, const CUgraphNode* nodes, const uint32_t* steps, size_t count) {
  if (count > kMostNodes) return 1;
  Edges edges;
  Places places;
  Room<Place> drawn;
  if (!Read(graph, &edges) || !places.Fill(nodes, count) || !drawn.Reserve(count + 1) ||
      !Draw(&edges, &places, drawn.begin(), count)) {
    return 1;
  }
  const uint64_t total = Sum(drawn.begin(), steps, count);
  return static_cast<uint32_t>(std::clamp(total, uint64_t{1}, kMostSteps));
}

}  // namespace gpufence
