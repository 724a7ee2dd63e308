// Memory of graphs: nothing when an allocation node is added or instantiated, its bytes at the
// first launch or upload, kept until cuDeviceGraphMemTrim. A launch reserves what its executable
// needs and then charges what the driver reports. Must not know streams.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "hooks/fence.h"
#include "hooks/graph_needs.h"

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

  // Before the driver's call. False: no room, and nothing has changed.
  bool Claim();

  // Between both: the executable that came of it, when it was not known before.
  void Name(CUgraphExec executable, const GraphNeeds& needs);

  // After it. Charges what the driver now holds. Returns the driver's code.
  CUresult Settle(CUresult rc);

 private:
  struct Share {
    Holding holding;
    LedgerMove move;
    bool newly_backed = false;
  };

  FencedDevice* DeviceOf(const Share& share) const {
    return &fence_->devices[share.holding.device];
  }
  void Add(const Holding& holding);
  bool ClaimShare(Share* share);
  bool Enter(Share* share, uint64_t in_hand, uint64_t* difference);
  void Leave(Share* share, bool succeeded);

  Fence* fence_;
  size_t count_ = 0;
  Share shares_[kMaxDevices];
};

// Remembers what an executable needs, anew after an update.
void RememberGraph(Fence* fence, CUgraphExec executable, const GraphNeeds& needs);

// True when the executable has allocation nodes.
bool IsMemoryGraph(Fence* fence, CUgraphExec executable);

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

// After the driver trimmed a device's graph memory.
void GraphsTrimmed(FencedDevice* device);

// After the end of a context, which may have ended graphs with it.
void SettleGraphs(FencedDevice* device);

// Asks it to: what no running graph needs goes back. For requests that would not fit otherwise.
void TrimGraphs(FencedDevice* device);

}  // namespace gpufence
