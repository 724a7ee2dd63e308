#include "hooks/graphs/executables.h"

#include <atomic>

#include "base/log.h"
#include "device/context_scope.h"
#include "hooks/fence.h"
#include "real.h"

namespace gpufence {
namespace {

// A hint; reads too high in a forked child, which costs it a look into an empty table.
constinit std::atomic<bool> has_memory_graphs{false};

// Others' launches and trims can move what a claim needs while it asks for it.
constexpr int kAttempts = 8;

// Handles have 48 bits, so a handle and a device's index make one number.
uint64_t KeyOf(CUgraphExec executable, uint32_t device) {
  return reinterpret_cast<uint64_t>(executable) * kMaxDevices + device;
}

bool ReadReserved(const FencedDevice& device, uint64_t* bytes) {
  const CaptureRelaxed relaxed;
  cuuint64_t reserved = 0;
  if (real::cuDeviceGetGraphMemAttribute(device.ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
                                         &reserved) != CUDA_SUCCESS) {
    return false;
  }
  *bytes = reserved;
  return true;
}

// Charges what the driver holds, unless launches are under way: the last of them does it then.
void RechargeAccount(FencedDevice* device) {
  GraphAccount* account = &device->graph;
  uint32_t version = 0;
  {
    SpinGuard guard(&account->lock);
    if (account->flying != 0) return;
    version = account->version;
  }
  uint64_t reserved = 0;
  if (!ReadReserved(*device, &reserved)) return;
  SpinGuard guard(&account->lock);
  if (account->version != version) return;
  const uint64_t before = account->charged_bytes;
  if (reserved < before) device->account.Release(before - reserved);
  if (reserved > before) {
    device->account.Book(reserved - before);
    GPUFENCE_LOG(kInfo,
                 "device %d: CUDA graphs took %llu bytes more than was reserved for them; they are "
                 "charged now",
                 device->ordinal, static_cast<unsigned long long>(reserved - before));
  }
  account->charged_bytes = reserved;
}

// Something else than a launch happened. Lock held.
void ForgetLast(GraphAccount* account) {
  ++account->version;
  account->last_exec = 0;
}

void PutNeed(Fence* fence, CUgraphExec executable, uint32_t device, uint64_t bytes) {
  has_memory_graphs.store(true, std::memory_order_relaxed);
  fence->holdings.Put({.key = KeyOf(executable, device),
                       .bytes = bytes,
                       .device = static_cast<uint16_t>(device),
                       .kind = HoldingKind::kGraphExec,
                       .family = Family::kGraph});
}

}  // namespace

bool HasMemoryGraphs() { return has_memory_graphs.load(std::memory_order_relaxed); }

GraphRun::GraphRun(Fence* fence, CUgraphExec executable) : fence_(fence) {
  if (fence == nullptr || !HasMemoryGraphs()) return;
  for (uint32_t i = 0; i < fence->device_count; ++i) {
    Holding* holding = &parts_[count_].holding;
    if (fence->holdings.Get(HoldingKind::kGraphExec, KeyOf(executable, i), holding)) ++count_;
  }
}

GraphRun::GraphRun(Fence* fence, const GraphNeeds& needs) : fence_(fence) {
  if (!needs.takes_memory) return;
  for (uint32_t i = 0; i < fence->device_count; ++i) {
    if (needs.bytes[i] == 0) continue;
    parts_[count_++].holding = {.bytes = needs.bytes[i], .device = static_cast<uint16_t>(i)};
  }
}

FencedDevice* GraphRun::DeviceOf(const Part& part) const {
  return &fence_->devices[part.holding.device];
}

bool GraphRun::Claim() {
  for (size_t i = 0; i < count_; ++i) {
    if (ClaimPart(&parts_[i])) continue;
    while (i > 0) Leave(&parts_[--i], false);
    return false;
  }
  return true;
}

// What the launch could make the driver take. A launch that rode for nothing did so because nothing
// else was under way: whoever joins it pays for both.
uint64_t GraphRun::Missing(const GraphAccount& account, const Part& part) const {
  const bool rides = account.flying == 0 && stream_ != 0 && account.last_stream == stream_ &&
                     account.last_exec == part.holding.key;
  return rides ? 0 : part.holding.bytes + account.riding_bytes;
}

// With `in_hand` bytes reserved: true when that is enough, and the launch is then under way;
// `difference` is what is left over, or missing.
bool GraphRun::Enter(Part* part, uint64_t in_hand, uint64_t* difference) {
  GraphAccount* account = &DeviceOf(*part)->graph;
  SpinGuard guard(&account->lock);
  const uint64_t missing = Missing(*account, *part);
  if (missing > in_hand) {
    *difference = missing - in_hand;
    return false;
  }
  *difference = in_hand - missing;
  account->riding_bytes = missing == 0 ? part->holding.bytes : 0;
  account->charged_bytes += missing;
  account->last_exec = 0;
  ++account->flying;
  part->version = ++account->version;
  return true;
}

bool GraphRun::ClaimPart(Part* part) {
  FencedDevice* device = DeviceOf(*part);
  uint64_t in_hand = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    uint64_t difference = 0;
    if (Enter(part, in_hand, &difference)) {
      if (difference != 0) device->account.Release(difference);
      return true;
    }
    if (in_hand == 0) part->move.Begin(&device->moves);
    if (!device->account.Reserve(difference)) break;
    if (in_hand == 0) part->move.Granted();
    in_hand += difference;
  }
  if (in_hand != 0) device->account.Release(in_hand);
  part->move.End();
  device->account.CountRefusal();
  return false;
}

void GraphRun::Leave(Part* part, bool succeeded) {
  FencedDevice* device = DeviceOf(*part);
  GraphAccount* account = &device->graph;
  {
    SpinGuard guard(&account->lock);
    if (--account->flying == 0) account->riding_bytes = 0;
    const bool alone = account->version == part->version;
    if (succeeded && alone && stream_ != 0) {
      account->last_exec = part->holding.key;
      account->last_stream = stream_;
    }
  }
  RechargeAccount(device);
  part->move.End();
}

CUresult GraphRun::Settle(CUresult rc) {
  for (size_t i = 0; i < count_; ++i) Leave(&parts_[i], rc == CUDA_SUCCESS);
  return rc;
}

void RememberGraph(Fence* fence, CUgraphExec executable, const GraphNeeds& needs) {
  if (!needs.takes_memory && !HasMemoryGraphs()) return;
  for (uint32_t i = 0; i < fence->device_count; ++i) {
    Holding before;
    const uint64_t key = KeyOf(executable, i);
    const bool known = fence->holdings.Take(HoldingKind::kGraphExec, key, &before);
    if (needs.bytes[i] != 0) PutNeed(fence, executable, i, needs.bytes[i]);
    if (!known) continue;
    SpinGuard guard(&fence->devices[i].graph.lock);
    ForgetLast(&fence->devices[i].graph);
  }
}

void AddToGraph(Fence* fence, CUgraphExec executable, const GraphNeeds& more) {
  if (!more.takes_memory) return;
  GraphNeeds all = more;
  for (uint32_t i = 0; i < fence->device_count; ++i) {
    Holding before;
    if (fence->holdings.Get(HoldingKind::kGraphExec, KeyOf(executable, i), &before)) {
      all.bytes[i] += before.bytes;
    }
  }
  RememberGraph(fence, executable, all);
}

EndedGraph::EndedGraph(Fence* fence, CUgraphExec executable) : fence_(fence) {
  if (fence == nullptr || !HasMemoryGraphs()) return;
  for (uint32_t i = 0; i < fence->device_count; ++i) {
    if (fence->holdings.Take(HoldingKind::kGraphExec, KeyOf(executable, i), &parts_[count_])) {
      ++count_;
    }
  }
}

// Its memory stays with the driver, for the next graph or a trim.
CUresult EndedGraph::Settle(CUresult rc) {
  for (size_t i = 0; i < count_; ++i) {
    if (rc != CUDA_SUCCESS) {
      fence_->holdings.Put(parts_[i]);
      continue;
    }
    FencedDevice* device = &fence_->devices[parts_[i].device];
    SpinGuard guard(&device->graph.lock);
    ForgetLast(&device->graph);
  }
  return rc;
}

void RechargeGraphs(FencedDevice* device) {
  {
    SpinGuard guard(&device->graph.lock);
    if (device->graph.charged_bytes == 0) return;
    ForgetLast(&device->graph);
  }
  RechargeAccount(device);
}

void TrimGraphs(FencedDevice* device) {
  {
    SpinGuard guard(&device->graph.lock);
    if (device->graph.charged_bytes == 0) return;
  }
  CUresult rc = CUDA_SUCCESS;
  {
    const CaptureRelaxed relaxed;
    rc = real::cuDeviceGraphMemTrim(device->ordinal);
  }
  if (rc == CUDA_SUCCESS) RechargeGraphs(device);
}

// ---- steps: one table for the process, of fixed size; asking takes no lock ----

namespace {

constexpr uint32_t kSetBits = 11;
constexpr uint32_t kWays = 8;

// A handle is only asked about while it lives, so that its steps do not change meanwhile; who asks
// while another thread ends it is told of one or the other.
struct KnownRuns {
  std::atomic<uint64_t> handle;  // 0: free
  std::atomic<uint32_t> steps;
  std::atomic<uint64_t> ordinals;
  std::atomic<bool> has_collective;
};

// A forked child has no use for the driver where its parent had, and finds nothing where not.
constinit KnownRuns known_runs[(1u << kSetBits) * kWays];

KnownRuns* SetOf(uint64_t handle) {
  return &known_runs[(handle * 0x9e3779b97f4a7c15u >> (64 - kSetBits)) * kWays];
}

// Null when it is not there.
KnownRuns* FindRuns(CUgraphExec executable) {
  const auto handle = reinterpret_cast<uint64_t>(executable);
  if (handle == 0) return nullptr;
  KnownRuns* set = SetOf(handle);
  for (uint32_t way = 0; way < kWays; ++way) {
    if (set[way].handle.load(std::memory_order_relaxed) == handle) return &set[way];
  }
  return nullptr;
}

GraphRuns ReadRuns(const KnownRuns* found) {
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
  KnownRuns* set = SetOf(reinterpret_cast<uint64_t>(executable));
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

GraphRuns RunsOf(CUgraphExec executable) { return ReadRuns(FindRuns(executable)); }

GraphRuns ForgetRuns(CUgraphExec executable) {
  KnownRuns* found = FindRuns(executable);
  const GraphRuns runs = ReadRuns(found);
  if (found != nullptr) found->handle.store(0, std::memory_order_relaxed);
  return runs;
}

}  // namespace gpufence
