// Executable graphs. Their memory: the driver takes nothing when an allocation node is added or
// instantiated, and blocks at a launch or upload, which it keeps until cuDeviceGraphMemTrim. So a
// launch reserves what its executable needs and then charges what the driver reports. And in how
// many steps the kernels of each run, on which devices: noted when it is made, asked at a launch.
//
// Must not know how streams are asked, how a graph's needs are found, nor what its kernels take.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/locks.h"
#include "driver_abi.h"
#include "hooks/graphs/graph_needs.h"
#include "hooks/ledger_move.h"
#include "shared_layouts.h"
#include "state/holdings.h"

namespace gpufence {

struct Fence;
struct FencedDevice;

// ---- memory ----

// The driver takes graph memory in blocks of this size, at a launch or an upload, and keeps it
// until a trim.
inline constexpr uint64_t kGraphBlockBytes = uint64_t{32} << 20;

// The charge is what the driver says that it holds, plus, during a launch, all that the launch
// could make it take: its executable's whole need, since nobody can tell from outside which idle
// blocks it would take again. (Measured: of two executables that need 600 MiB each, the second may
// take nothing, a part, or everything, after failed launches even beside idle blocks that would
// do.)
//
// One kind of launch takes nothing for certain: the same executable in the same stream, with no
// other launch, upload or trim since. That keeps a graph that runs again and again from asking for
// twice its memory.
struct GraphAccount {
  SpinLock lock;
  uint32_t flying;   // launches under way
  uint32_t version;  // changes with every one, and with every trim
  uint64_t charged_bytes;
  uint64_t riding_bytes;  // need of the launch under way that asked for nothing
  uint64_t last_exec;     // of the last launch, when nothing else happened since; or 0
  uint64_t last_stream;
};

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
  struct Part {
    Holding holding;
    LedgerMove move;
    uint32_t version;
  };

  FencedDevice* DeviceOf(const Part& part) const;
  bool ClaimPart(Part* part);
  uint64_t Missing(const GraphAccount& account, const Part& part) const;
  bool Enter(Part* part, uint64_t in_hand, uint64_t* difference);
  void Leave(Part* part, bool succeeded);

  Fence* fence_;
  uint64_t stream_ = 0;
  size_t count_ = 0;
  Part parts_[kMaxDevices];
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
  Holding parts_[kMaxDevices];
};

// After the driver trimmed a device's graph memory, or ended a context and with it graphs.
void RechargeGraphs(FencedDevice* device);

// Asks the driver to trim: what no running graph needs goes back. For requests that would not fit
// otherwise.
void TrimGraphs(FencedDevice* device);

// ---- steps ----

// What an executable that is not known, or for which there was no room, counts for.
inline constexpr uint32_t kUnknownSteps = 1;

struct GraphRuns {
  uint32_t steps = kUnknownSteps;
  uint64_t ordinals = 0;  // of devices, a bit each; 0: there is one alone, or they are not known
  bool has_collective = false;  // a kernel that meets others on other devices
};

void RememberRuns(CUgraphExec executable, GraphRuns runs);
GraphRuns RunsOf(CUgraphExec executable);
GraphRuns ForgetRuns(CUgraphExec executable);  // returns them

}  // namespace gpufence
