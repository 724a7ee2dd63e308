#include "hooks/graph_needs.h"

#include <string.h>

#include <algorithm>

#include "core/forked.h"
#include "hooks/fence.h"
#include "hooks/graph_account.h"
#include "policy/charge.h"
#include "real.h"

namespace gpufence {
namespace {

// Deeper than any program nests child graphs; a bound on the stack.
constexpr int kMostDepth = 16;

// Room for elements that grows by doubling, in memory of its own: graphs have any number of nodes.
template <typename Element>
class Room {
 public:
  Room() = default;
  ~Room() {
    if (elements_ != nullptr) UnmapWipedOnFork(elements_, room_ * sizeof(Element));
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  bool Reserve(size_t wanted) {
    if (wanted <= room_) return true;
    const size_t room = std::max(wanted, std::max(room_ * 2, size_t{4096} / sizeof(Element)));
    void* memory = MapWipedOnFork(room * sizeof(Element));
    if (memory == nullptr) return false;
    if (elements_ != nullptr) {
      memcpy(memory, elements_, used_ * sizeof(Element));
      UnmapWipedOnFork(elements_, room_ * sizeof(Element));
    }
    elements_ = static_cast<Element*>(memory);
    room_ = room;
    return true;
  }

  bool Push(const Element& element) {
    if (!Reserve(used_ + 1)) return false;
    elements_[used_++] = element;
    return true;
  }

  Element* begin() { return elements_; }
  Element* end() { return elements_ + used_; }
  bool empty() const { return used_ == 0; }

 private:
  Element* elements_ = nullptr;
  size_t room_ = 0;
  size_t used_ = 0;
};

// An allocation, or (without bytes) a free.
struct Event {
  uint64_t address;
  uint64_t bytes;
  uint32_t ordinal;
};
using Events = Room<Event>;

bool Walk(CUgraph graph, int depth, Events* events);

bool Visit(CUgraphNode node, int depth, Events* events) {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  if (real::cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) return true;
  if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
    CUDA_MEM_ALLOC_NODE_PARAMS allocation = {};
    if (real::cuGraphMemAllocNodeGetParams(node, &allocation) != CUDA_SUCCESS) return true;
    const uint32_t ordinal = DeviceOfLocation(allocation.poolProps.location);
    return ordinal == kNoDevice || events->Push({allocation.dptr, allocation.bytesize, ordinal});
  }
  if (type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
    CUdeviceptr address = 0;
    if (real::cuGraphMemFreeNodeGetParams(node, &address) != CUDA_SUCCESS) return true;
    return events->Push({address, 0, kNoDevice});
  }
  CUgraph child = nullptr;
  if (type != CU_GRAPH_NODE_TYPE_GRAPH ||
      real::cuGraphChildGraphNodeGetGraph(node, &child) != CUDA_SUCCESS) {
    return true;
  }
  return Walk(child, depth + 1, events);
}

bool Walk(CUgraph graph, int depth, Events* events) {
  size_t count = 0;
  if (depth > kMostDepth || real::cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS) {
    return true;
  }
  Room<CUgraphNode> nodes;
  if (!nodes.Reserve(count)) return false;
  if (real::cuGraphGetNodes(graph, nodes.begin(), &count) != CUDA_SUCCESS) return true;
  for (size_t i = 0; i < count; ++i) {
    if (!Visit(nodes.begin()[i], depth, events)) return false;
  }
  return true;
}

// Blocks of one device, counted once each: a graph's addresses begin with a block, and fill it
// before the next. `events` by address.
void Add(uint32_t ordinal, Events* events, GraphNeed* need) {
  uint64_t covered = 0;  // end of the last block
  uint64_t count = 0;
  for (const Event& event : *events) {
    if (event.bytes == 0 || event.ordinal != ordinal) continue;
    ++count;
    const uint64_t from = std::max(event.address, covered);
    const uint64_t end = event.address + event.bytes;
    if (end <= from) continue;
    const uint64_t more = RoundUp(end - from, kGraphBlockBytes);
    need->bytes += more;
    covered = from + more;
  }
  need->scattered = count > 1 && need->bytes > kGraphBlockBytes;
}

// Whether some address is allocated more often than freed.
bool KeepsMemory(Events* events) {
  int64_t open = 0;
  uint64_t address = 0;
  for (const Event& event : *events) {
    if (event.address != address && open > 0) return true;
    if (event.address != address) open = 0;
    address = event.address;
    open += event.bytes != 0 ? 1 : -1;
  }
  return open > 0;
}

}  // namespace

bool MeasureGraph(Fence* fence, CUgraph graph, GraphNeeds* needs) {
  Events events;
  if (!Walk(graph, 0, &events)) return false;
  if (events.empty()) return true;
  std::sort(events.begin(), events.end(),
            [](const Event& one, const Event& other) { return one.address < other.address; });
  const bool keeps = KeepsMemory(&events);
  for (uint32_t i = 0; i < fence->device_count; ++i) {
    const auto ordinal = static_cast<uint32_t>(fence->devices[i].ordinal);
    if (FencedOrdinal(fence, ordinal) == nullptr) continue;
    Add(ordinal, &events, &needs->devices[i]);
    needs->devices[i].keeps = keeps;
    needs->any = needs->any || needs->devices[i].bytes != 0;
  }
  return true;
}

}  // namespace gpufence
