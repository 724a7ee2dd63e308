// Executable graphs: a snapshot of a graph, launched any number of times.
// Must not know captures, nor what operations do.
#pragma once

#include <stdint.h>

#include "cuda/graphs/graph.h"
#include "cuda/streams/stream.h"
#include "driver_abi.h"

namespace sim::graph {

struct Executable {
  uint64_t handle;
  uint64_t graph;  // handle of the snapshot; its nodes know their origins
  uint64_t flags;
  int device;  // the machine's index, for the launch queue
  Work* last;  // end of the latest launch: launches of one executable never overlap
};

Executable* FindExecutable(CUgraphExec handle);

// Snapshots a graph. 1 for cycles and empty arguments; *error_node, if wanted, is then null.
CUresult Instantiate(CUgraph graph, uint64_t flags, Executable** created);

void DestroyExecutable(Executable* executable);

// The snapshot's copy of a node of the graph it was made from, or null.
Node* FindSnapshot(const Executable& executable, CUgraphNode original);

// Takes over the parameters of an equal graph. 910 with the reason, and the node of `graph` that
// differs, when it is not equal.
CUresult Update(Executable* executable, CUgraph graph, CUgraphExecUpdateResultInfo_v1* info);

// Puts one launch into a stream.
CUresult Launch(bool per_thread, CUgraphExec executable, CUstream stream);

}  // namespace sim::graph
