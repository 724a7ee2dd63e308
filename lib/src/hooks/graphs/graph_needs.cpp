#include "hooks/graphs/graph_needs.h"

#include <algorithm>

#include "base/forked.h"
#include "base/log.h"
#include "hooks/contexts/overhead.h"
#include "hooks/fence.h"
#include "hooks/graphs/executables.h"
#include "policy/charge.h"
#include "real.h"

namespace gpufence {
namespace {

// ---- steps: by the edges alone, whatever the nodes are ----

// Of larger graphs nobody asks for the order: it would take milliseconds and megabytes.
constexpr size_t kMostNodes = size_t{1} << 18;
constexpr size_t kMostEdges = size_t{1} << 20;
constexpr uint64_t kMostSteps = UINT32_MAX;

// What is known of the node at one place of the order.
struct NodePlace {
  int32_t passing;  // edges that begin to pass over here, less those that no longer do
  bool has_before;
  bool has_behind;
  bool overlaps;  // begins before what it depends on has ended
};

// Handles to places: open addressing, at most half full, in memory that begins as zero.
class NodePlaces {
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
bool AskEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
              size_t* count) {
  CUresult rc = real::cuGraphGetEdges_v2(graph, from, to, data, count);
  if (rc == CUDA_ERROR_NOT_FOUND) rc = real::cuGraphGetEdges(graph, from, to, count);
  return rc == CUDA_SUCCESS;
}

bool ReadEdges(CUgraph graph, Edges* edges) {
  if (!AskEdges(graph, nullptr, nullptr, nullptr, &edges->count)) return false;
  if (edges->count == 0) return true;
  return edges->count <= kMostEdges && edges->from.Reserve(edges->count) &&
         edges->to.Reserve(edges->count) && edges->data.Reserve(edges->count) &&
         AskEdges(graph, edges->from.begin(), edges->to.begin(), edges->data.begin(),
                  &edges->count);
}

// Where edges pass. False when one goes against the order.
bool DrawEdges(Edges* edges, NodePlaces* places, NodePlace* drawn, size_t count) {
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
uint64_t SumSteps(const NodePlace* drawn, const uint32_t* steps, size_t count) {
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

// `nodes` are the graph's, in the order in which they were added, `steps` how many each of them
// takes (0: nothing waits for the GPU). At least 1. Where it cannot be told, 1: an edge against the
// order in which the nodes were added, a huge graph, no memory.
uint32_t CountSteps(CUgraph graph, const CUgraphNode* nodes, const uint32_t* steps, size_t count) {
  if (count > kMostNodes) return 1;
  Edges edges;
  NodePlaces places;
  Room<NodePlace> drawn;
  if (!ReadEdges(graph, &edges) || !places.Fill(nodes, count) || !drawn.Reserve(count + 1) ||
      !DrawEdges(&edges, &places, drawn.begin(), count)) {
    return 1;
  }
  const uint64_t total = SumSteps(drawn.begin(), steps, count);
  return static_cast<uint32_t>(std::clamp(total, uint64_t{1}, kMostSteps));
}

// ---- the walk ----

constexpr auto kUnknownType = static_cast<CUgraphNodeType>(0x7fffffff);  // no header has it

// How deep child graphs are walked on the stack; those beyond come after the others.
constexpr int kMostDepth = 16;

// Addresses that blocks cover.
struct Span {
  uint64_t from;
  uint64_t end;
};
using Spans = Room<Span>;

// One walk. A child graph has blocks of its own: its addresses are covered from `first` on.
struct Walk {
  Fence* fence;
  GraphNeeds* needs;
  Spans spans;
  size_t first = 0;
  int depth = 0;
  Room<CUgraph> deeper;
  CUcontext context = nullptr;  // of the last kernel
  Names names = Names::kSkip;
};

bool VisitAll(CUgraph graph, Walk* walk, uint32_t* steps);

// How the driver covers addresses with memory, in the order in which the nodes were added: one that
// blocks cover already takes nothing, any other takes its own size in whole blocks, where the last
// ones end. Measured: 200 of 200 graphs of random sizes, orders and frees, to the byte.
bool Cover(uint64_t address, uint64_t bytes, Spans* spans, size_t first, uint64_t* taken) {
  const uint64_t blocks = RoundUp(bytes, kGraphBlockBytes);
  for (Span* span = spans->begin() + first; span != spans->end(); ++span) {
    if (address < span->from || address > span->end) continue;
    if (address + bytes <= span->end) return true;
    span->end += blocks;
    *taken += blocks;
    return true;
  }
  *taken += blocks;
  return spans->Push({address, address + blocks});
}

bool VisitAllocation(CUgraphNode node, Walk* walk) {
  CUDA_MEM_ALLOC_NODE_PARAMS allocation = {};
  if (real::cuGraphMemAllocNodeGetParams(node, &allocation) != CUDA_SUCCESS) {
    GPUFENCE_LOG(
        kWarn,
        "a CUDA graph is refused: the driver does not report the size of the memory that the graph "
        "allocates, so the memory limit cannot count it. Allocate outside of the graph");
    return false;
  }
  const Location where = LocationOf(allocation.poolProps.location);
  if (where.place != Place::kDevice && where.place != Place::kHost) {
    RefuseUnknownPlace("a graph", allocation.poolProps.location);
    return false;
  }
  const FencedDevice* device =
      where.place == Place::kHost ? nullptr : FencedOrdinal(walk->fence, where.ordinal);
  if (device == nullptr) return true;
  uint64_t* bytes = &walk->needs->bytes[device - walk->fence->devices];
  // A child graph was seen to take one block more than its nodes, whatever their sizes.
  if (walk->depth > 0 && walk->spans.size() == walk->first) *bytes += kGraphBlockBytes;
  walk->needs->takes_memory = true;
  return Cover(allocation.dptr, allocation.bytesize, &walk->spans, walk->first, bytes);
}

// Drivers before 12 have the first form only, which the second one begins with.
bool KernelOf(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2* kernel) {
  CUresult rc = real::cuGraphKernelNodeGetParams_v2(node, kernel);
  if (rc == CUDA_ERROR_NOT_FOUND) {
    rc = real::cuGraphKernelNodeGetParams(node,
                                          reinterpret_cast<CUDA_KERNEL_NODE_PARAMS_v1*>(kernel));
  }
  return rc == CUDA_SUCCESS;
}

// A graph may have kernels on other devices than the one of the stream it is launched into.
void NoteContext(CUcontext context, Walk* walk) {
  if (walk->fence->device_count == 1 || context == nullptr || context == walk->context) return;
  walk->context = context;
  const uint32_t ordinal = DeviceOfContext(context);
  if (ordinal < kMaxDevices) walk->needs->ordinals |= uint64_t{1} << ordinal;
}

void VisitKernel(CUgraphNode node, Walk* walk) {
  CUDA_KERNEL_NODE_PARAMS_v2 kernel = {};
  if (!KernelOf(node, &kernel)) return;
  NoteContext(kernel.ctx, walk);
  const CUfunction function =
      kernel.func != nullptr ? kernel.func : reinterpret_cast<CUfunction>(kernel.kern);
  if (function == nullptr) return;
  const Launched known = WasLaunched(function);
  if (known == Launched::kBefore) return;
  walk->needs->has_collective |=
      known == Launched::kCollective || (walk->names == Names::kAsk && IsCollective(function));
  if (known != Launched::kNever) return;
  walk->needs->stack_bytes = std::max(walk->needs->stack_bytes, StackOf(function));
}

bool VisitWithin(CUgraph child, Walk* walk, uint32_t* steps) {
  const size_t first = walk->first;
  walk->first = walk->spans.size();
  ++walk->depth;
  const bool went = VisitAll(child, walk, steps);
  --walk->depth;
  walk->spans.Shorten(walk->first);
  walk->first = first;
  return went;
}

bool VisitChild(CUgraphNode node, Walk* walk, uint32_t* steps) {
  CUgraph child = nullptr;
  if (real::cuGraphChildGraphNodeGetGraph(node, &child) != CUDA_SUCCESS) return true;
  if (walk->depth < kMostDepth) return VisitWithin(child, walk, steps);
  *steps = 1;
  return walk->deeper.Push(child);
}

// Their steps count as if each came by itself.
bool VisitDeeper(Walk* walk) {
  for (size_t i = 0; i < walk->deeper.size(); ++i) {
    uint32_t steps = 0;
    if (!VisitWithin(walk->deeper.begin()[i], walk, &steps)) return false;
    if (steps > 1) walk->needs->steps += steps - 1;
  }
  return true;
}

// All kernels of the bodies are of the node's own context, which drivers tell since CUDA 13.2.
void VisitCondition(CUgraphNode node, Walk* walk) {
  walk->needs->has_unseen = true;
  CUgraphNodeParams params = {};
  if (walk->fence->device_count == 1 || real::cuGraphNodeGetParams(node, &params) != CUDA_SUCCESS) {
    return;
  }
  NoteContext(params.conditional.ctx, walk);
}

// `*steps`: how many the node takes, 0 as it comes. A conditional node has the one
// that can be seen.
bool Visit(CUgraphNode node, Walk* walk, uint32_t* steps) {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  if (real::cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) type = kUnknownType;
  switch (type) {
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return VisitAllocation(node, walk);
    case CU_GRAPH_NODE_TYPE_KERNEL:
      VisitKernel(node, walk);
      *steps = 1;
      return true;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_MEMCPY_BATCH:
    case CU_GRAPH_NODE_TYPE_FABRIC_CPY_BATCH:
      *steps = 1;  // no kernel, and a pause between two that is longer by one at least
      return true;
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return VisitChild(node, walk, steps);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      VisitCondition(node, walk);
      *steps = 1;
      return true;
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return true;
    case CU_GRAPH_NODE_TYPE_EXTERNAL_ENGINE:
    default:  // of later drivers: what such a node holds and runs is measured, and taken for a step
      walk->needs->has_unseen = true;
      *steps = 1;
      return true;
  }
}

// Nodes come in the order in which they were added. `*steps`: of all of them; `taken`: of each, for
// the time of the visit.
bool VisitNodes(CUgraph graph, const CUgraphNode* nodes, uint32_t* taken, size_t count, Walk* walk,
                uint32_t* steps) {
  walk->needs->nodes += count;
  size_t with_steps = 0;
  for (size_t i = 0; i < count; ++i) {
    if (!Visit(nodes[i], walk, &taken[i])) return false;
    *steps = std::max(*steps, taken[i]);
    with_steps += taken[i] != 0 ? 1 : 0;
  }
  if (with_steps > 1) *steps = CountSteps(graph, nodes, taken, count);
  return true;
}

bool VisitMany(CUgraph graph, Walk* walk, uint32_t* steps) {
  size_t count = 0;
  if (real::cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS) return true;
  Room<CUgraphNode> nodes;
  Room<uint32_t> taken;
  if (!nodes.Reserve(count) || !taken.Reserve(count)) return false;
  if (real::cuGraphGetNodes(graph, nodes.begin(), &count) != CUDA_SUCCESS) return true;
  return VisitNodes(graph, nodes.begin(), taken.begin(), count, walk, steps);
}

// JAX exchanges fifteen child graphs of a node or two before each launch: one question, and no
// memory from the kernel, for such.
bool VisitAll(CUgraph graph, Walk* walk, uint32_t* steps) {
  constexpr size_t kFewNodes = 32;
  CUgraphNode nodes[kFewNodes];
  uint32_t taken[kFewNodes] = {};
  size_t count = kFewNodes;
  if (real::cuGraphGetNodes(graph, nodes, &count) != CUDA_SUCCESS) return true;
  if (count >= kFewNodes) return VisitMany(graph, walk, steps);
  return VisitNodes(graph, nodes, taken, count, walk, steps);
}

}  // namespace

bool MeasureGraph(Fence* fence, CUgraph graph, GraphNeeds* needs, Names names) {
  Walk walk = {.fence = fence, .needs = needs, .spans = {}, .deeper = {}, .names = names};
  return VisitAll(graph, &walk, &needs->steps) && VisitDeeper(&walk);
}

}  // namespace gpufence
