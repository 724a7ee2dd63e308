#include "hooks/graphs/graph_steps.h"

#include <atomic>

namespace gpufence {
namespace {

constexpr uint32_t kSetBits = 11;
constexpr uint32_t kWays = 8;

// A handle is only asked about while it lives, so that its steps do not change meanwhile; who asks
// while another thread ends it is told of one or the other.
struct Entry {
  std::atomic<uint64_t> handle;  // 0: free
  std::atomic<uint32_t> steps;
  std::atomic<uint64_t> ordinals;
  std::atomic<bool> has_collective;
};

// A forked child has no use for the driver where its parent had, and finds nothing where not.
constinit Entry entries[(1u << kSetBits) * kWays];

Entry* SetOf(uint64_t handle) {
  return &entries[(handle * 0x9e3779b97f4a7c15u >> (64 - kSetBits)) * kWays];
}

// Null when it is not there.
Entry* Find(CUgraphExec executable) {
  const auto handle = reinterpret_cast<uint64_t>(executable);
  if (handle == 0) return nullptr;
  Entry* set = SetOf(handle);
  for (uint32_t way = 0; way < kWays; ++way) {
    if (set[way].handle.load(std::memory_order_relaxed) == handle) return &set[way];
  }
  return nullptr;
}

GraphRuns Read(const Entry* found) {
  if (found == nullptr) return {};
  return {found->steps.load(std::memory_order_relaxed),
          found->ordinals.load(std::memory_order_relaxed),
          found->has_collective.load(std::memory_order_relaxed)};
}

}  // namespace

// Whoever had the handle before has ended unseen.
void RememberRuns(CUgraphExec executable, GraphRuns runs) {
  ForgetRuns(executable);
  if (runs.steps <= kUnknownSteps && runs.ordinals == 0 && !runs.has_collective) return;
  Entry* set = SetOf(reinterpret_cast<uint64_t>(executable));
  for (uint32_t way = 0; way < kWays; ++way) {
    uint64_t nobody = 0;
    if (!set[way].handle.compare_exchange_strong(nobody, reinterpret_cast<uint64_t>(executable),
                                                 std::memory_order_relaxed)) {
      continue;
    }
    set[way].steps.store(runs.steps, std::memory_order_relaxed);
    set[way].ordinals.store(runs.ordinals, std::memory_order_relaxed);
    set[way].has_collective.store(runs.has_collective, std::memory_order_relaxed);
    return;
  }
}

GraphRuns RunsOf(CUgraphExec executable) { return Read(Find(executable)); }

GraphRuns ForgetRuns(CUgraphExec executable) {
  Entry* found = Find(executable);
  const GraphRuns runs = Read(found);
  if (found != nullptr) found->handle.store(0, std::memory_order_relaxed);
  return runs;
}

}  // namespace gpufence
