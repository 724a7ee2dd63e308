#include "hooks/graph_memory.h"

#include <algorithm>

#include "hooks/capture_mode.h"
#include "real.h"

namespace gpufence {
namespace {

// A hint; reads too high in a forked child, which costs it a look into an empty table.
constinit std::atomic<bool> has_memory_graphs{false};

// In a holding's `owner`.
constexpr uint64_t kScattered = 1;
constexpr uint64_t kKeeps = 2;

// Others' launches and trims can move what a claim needs while it asks for it.
constexpr int kAttempts = 8;

// Handles have 48 bits, so a handle and a device's index make one number.
uint64_t KeyOf(CUgraphExec executable, uint32_t device) {
  return reinterpret_cast<uint64_t>(executable) * kMaxDevices + device;
}

// A holding counts as backed when it bears the number of the last trim, plus one.
bool IsBacked(const GraphAccount& account, const Holding& holding) {
  return holding.count == account.trims + 1;
}

// What the driver could come to hold beyond the charge when this executable is launched: no more
// than it needs itself, and nothing when the charge covers all that may run.
uint64_t MissingBytes(const GraphAccount& account, const Holding& holding) {
  uint64_t own = holding.bytes;
  uint64_t worst = account.backed_bytes;
  if (!IsBacked(account, holding)) {
    if ((holding.owner & kScattered) != 0) own += kGraphBlockBytes;
    worst += own;
  }
  return worst > account.charged_bytes ? std::min(worst - account.charged_bytes, own) : 0;
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
void SettleAccount(FencedDevice* device) {
  GraphAccount* account = &device->graph;
  uint32_t version = 0;
  {
    SpinGuard guard(&account->lock);
    if (!account->unsettled || account->flying != 0) return;
    version = account->version;
  }
  uint64_t reserved = 0;
  if (!ReadReserved(*device, &reserved)) return;
  SpinGuard guard(&account->lock);
  if (account->version != version) return;
  const uint64_t before = account->charged_bytes;
  if (reserved > before) device->account.Book(reserved - before);
  if (reserved < before) device->account.Release(before - reserved);
  account->charged_bytes = reserved;
  account->unsettled = false;
}

// `holding` no longer counts among what may run. Lock held.
void Unback(GraphAccount* account, const Holding& holding) {
  if (!IsBacked(*account, holding)) return;
  account->backed_bytes -= std::min(account->backed_bytes, holding.bytes);
  account->unsettled = true;
}

}  // namespace

bool HasMemoryGraphs() { return has_memory_graphs.load(std::memory_order_relaxed); }

GraphRun::GraphRun(Fence* fence, CUgraphExec executable) : fence_(fence) {
  if (fence == nullptr || !HasMemoryGraphs()) return;
  for (uint32_t i = 0; i < fence->device_count; ++i) {
    Holding holding;
    if (fence->holdings.Get(HoldingKind::kGraphExec, KeyOf(executable, i), &holding)) Add(holding);
  }
}

GraphRun::GraphRun(Fence* fence, const GraphNeeds& needs) : fence_(fence) {
  for (uint32_t i = 0; needs.any && i < fence->device_count; ++i) {
    if (needs.devices[i].bytes == 0) continue;
    Add({.bytes = needs.devices[i].bytes,
         .owner = needs.devices[i].scattered ? kScattered : 0,
         .device = static_cast<uint16_t>(i)});
  }
}

void GraphRun::Add(const Holding& holding) { shares_[count_++].holding = holding; }

bool GraphRun::Claim() {
  for (size_t i = 0; i < count_; ++i) {
    if (ClaimShare(&shares_[i])) continue;
    while (i > 0) Leave(&shares_[--i], false);
    return false;
  }
  return true;
}

// With `in_hand` bytes reserved: true when that is enough, and the launch is then under way;
// `difference` is what is left over, or missing.
bool GraphRun::Enter(Share* share, uint64_t in_hand, uint64_t* difference) {
  GraphAccount* account = &DeviceOf(*share)->graph;
  SpinGuard guard(&account->lock);
  Holding* holding = &share->holding;
  if (holding->key != 0) fence_->holdings.Get(HoldingKind::kGraphExec, holding->key, holding);
  const uint64_t missing = MissingBytes(*account, *holding);
  if (missing > in_hand) {
    *difference = missing - in_hand;
    return false;
  }
  *difference = in_hand - missing;
  share->newly_backed = !IsBacked(*account, *holding);
  if (share->newly_backed) {
    account->backed_bytes += holding->bytes;
    holding->count = account->trims + 1;
    if (holding->key != 0) fence_->holdings.Put(*holding);
  }
  account->charged_bytes += missing;
  account->unsettled = account->unsettled || share->newly_backed || missing != 0;
  ++account->flying;
  ++account->version;
  return true;
}

bool GraphRun::ClaimShare(Share* share) {
  FencedDevice* device = DeviceOf(*share);
  uint64_t in_hand = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    uint64_t difference = 0;
    if (Enter(share, in_hand, &difference)) {
      if (difference != 0) device->account.Release(difference);
      return true;
    }
    if (in_hand == 0) share->move.Begin(&device->moves);
    if (!device->account.Reserve(difference)) break;
    if (in_hand == 0) share->move.Granted();
    in_hand += difference;
  }
  if (in_hand != 0) device->account.Release(in_hand);
  share->move.End();
  return false;
}

void GraphRun::Leave(Share* share, bool succeeded) {
  FencedDevice* device = DeviceOf(*share);
  GraphAccount* account = &device->graph;
  {
    SpinGuard guard(&account->lock);
    --account->flying;
    if (!succeeded && share->newly_backed) {
      Unback(account, share->holding);
      share->holding.count = 0;
      if (share->holding.key != 0) fence_->holdings.Put(share->holding);
    }
  }
  SettleAccount(device);
  share->move.End();
}

void GraphRun::Name(CUgraphExec executable, const GraphNeeds& needs) {
  RememberGraph(fence_, executable, needs);
  for (size_t i = 0; i < count_; ++i) {
    GraphAccount* account = &DeviceOf(shares_[i])->graph;
    const uint64_t key = KeyOf(executable, shares_[i].holding.device);
    SpinGuard guard(&account->lock);
    Holding known;
    if (!fence_->holdings.Get(HoldingKind::kGraphExec, key, &known)) continue;
    known.count = shares_[i].holding.count;
    fence_->holdings.Put(known);
  }
}

CUresult GraphRun::Settle(CUresult rc) {
  for (size_t i = 0; i < count_; ++i) Leave(&shares_[i], rc == CUDA_SUCCESS);
  return rc;
}

void RememberGraph(Fence* fence, CUgraphExec executable, const GraphNeeds& needs) {
  for (uint32_t i = 0; i < fence->device_count; ++i) {
    const GraphNeed& need = needs.devices[i];
    GraphAccount* account = &fence->devices[i].graph;
    const uint64_t key = KeyOf(executable, i);
    SpinGuard guard(&account->lock);
    Holding before;
    if (fence->holdings.Take(HoldingKind::kGraphExec, key, &before)) Unback(account, before);
    if (need.bytes == 0) continue;
    has_memory_graphs.store(true, std::memory_order_relaxed);
    fence->holdings.Put({.key = key,
                         .bytes = need.bytes,
                         .owner = (need.scattered ? kScattered : 0) | (need.keeps ? kKeeps : 0),
                         .device = static_cast<uint16_t>(i),
                         .kind = HoldingKind::kGraphExec,
                         .family = Family::kGraph});
  }
}

bool IsMemoryGraph(Fence* fence, CUgraphExec executable) {
  return !GraphRun(fence, executable).empty();
}

EndedGraph::EndedGraph(Fence* fence, CUgraphExec executable) : fence_(fence) {
  if (fence == nullptr || !HasMemoryGraphs()) return;
  for (uint32_t i = 0; i < fence->device_count; ++i) {
    if (fence->holdings.Take(HoldingKind::kGraphExec, KeyOf(executable, i), &shares_[count_])) {
      ++count_;
    }
  }
}

// Its memory stays with the driver, for the next graph or a trim.
CUresult EndedGraph::Settle(CUresult rc) {
  for (size_t i = 0; i < count_; ++i) {
    const Holding& share = shares_[i];
    FencedDevice* device = &fence_->devices[share.device];
    if (rc != CUDA_SUCCESS) {
      fence_->holdings.Put(share);
      continue;
    }
    // What a launch left allocated outlives the executable, and only a trim tells when it is gone.
    if ((share.owner & kKeeps) == 0) {
      SpinGuard guard(&device->graph.lock);
      Unback(&device->graph, share);
    }
    SettleAccount(device);
  }
  return rc;
}

void GraphsTrimmed(FencedDevice* device) {
  {
    SpinGuard guard(&device->graph.lock);
    ++device->graph.trims;
    ++device->graph.version;
    device->graph.backed_bytes = 0;
    device->graph.unsettled = true;
  }
  SettleAccount(device);
}

void SettleGraphs(FencedDevice* device) {
  {
    SpinGuard guard(&device->graph.lock);
    if (device->graph.charged_bytes == 0) return;
    device->graph.unsettled = true;
  }
  SettleAccount(device);
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
  if (rc == CUDA_SUCCESS) GraphsTrimmed(device);
}

}  // namespace gpufence
