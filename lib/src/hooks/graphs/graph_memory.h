// Memory of graphs: nothing when an allocation node is added or instantiated, blocks at a launch or
// upload, kept until cuDeviceGraphMemTrim. A launch reserves what its executable needs and then
// charges what the driver reports. Must not know how streams are asked, nor kernels.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "hooks/fence.h"
#include "hooks/graphs/graph_needs.h"

namespace gpufence {

// Whether any executable with allocation nodes was ever made: one load, all that other graphs cost.
bool HasMemoryGraphs();

// One launch or upload of an executable, or an instantiation that uploads.
class GraphRun {
 public:
  // What a known executable needs. Empty when it has no allocation nodes.
  GraphRun(Fence* fence, CUgraphExec executable);
  // What a graph that is being instantiated will need.
  GraphRun(Fence* fence, const GraphNeeds& needs);
  GraphRun(const GraphRun&) = delete;
  GraphRun& operator=(const GraphRun&) = delete;

  bool empty() const { return count_ == 0; }

  // It is a launch into this stream, by a number that no other stream ever has (0: unknown), and
  // not an upload.
  void InStream(uint64_t stream) { stream_ = stream; }

  // Before the driver's call. False: no room, and nothing has changed.
  bool Claim();

  // After it. Charges what the driver now holds. Returns the driver's code.
  CUresult Settle(CUresult rc);

 private:
  struct Share {
    Holding holding;
    LedgerMove move;
    uint32_t version;
  };

  FencedDevice* DeviceOf(const Share& share) const {
    return &fence_->devices[share.holding.device];
  }
  bool ClaimShare(Share* share);
  uint64_t Missing(const GraphAccount& account, const Share& share) const;
  bool Enter(Share* share, uint64_t in_hand, uint64_t* difference);
  void Leave(Share* share, bool succeeded);

  Fence* fence_;
  uint64_t stream_ = 0;
  size_t count_ = 0;
  Share shares_[kMaxDevices];
};

// Remembers what an executable needs, anew after an update.
void RememberGraph(Fence* fence, CUgraphExec executable, const GraphNeeds& needs);

// A part of an executable was exchanged: it may need this much more than was known.
void AddToGraph(Fence* fence, CUgraphExec executable, const GraphNeeds& more);

// An executable ends: taken out before the driver's call, put back when the driver refuses.
class EndedGraph {
 public:
  EndedGraph(Fence* fence, CUgraphExec executable);
  CUresult Settle(CUresult rc);

 private:
  Fence* fence_;
  size_t count_ = 0;
  Holding shares_[kMaxDevices];
};

// After the driver trimmed a device's graph memory, or ended a context and with it graphs.
void SettleGraphs(FencedDevice* device);

// Asks the driver to trim: what no running graph needs goes back. For requests that would not fit
// otherwise.
void TrimGraphs(FencedDevice* device);

}  // namespace gpufence
