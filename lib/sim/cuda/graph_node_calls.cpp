#include "cuda/graph.h"
namespace sim::graph {
const Conditional* FindConditional(CUgraphConditionalHandle) { return nullptr; }
}  // namespace sim::graph
