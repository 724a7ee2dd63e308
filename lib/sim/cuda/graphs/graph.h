// Graphs: operations with their order, kept to be performed later, any number of times; and node
// parameters as the API spells them, to and from operations.
//
// Owns the tables of graphs, nodes and executables. Must not know streams or captures.
#pragma once

#include <stdint.h>

#include "cuda/streams/launch_operation.h"
#include "cuda/streams/timeline.h"
#include "driver_abi.h"
#include "machine/objects.h"
#include "machine/vec.h"

namespace sim::graph {

struct Node {
  uint64_t handle;
  uint64_t graph;   // handle
  uint64_t origin;  // the node that it was cloned from, or 0
  uint64_t clone;   // while cloning: its copy
  uint32_t local_id;
  bool disabled;
  Operation operation;
  Vec<uint64_t> before;           // handles of the nodes that it depends on
  Vec<CUgraphEdgeData> edges;     // one per `before`
  uint32_t unplaced;              // while sorting: predecessors that are not in order yet
  Work* done;                     // while launching: its last work
  Vec<void*> parameter_pointers;  // what a query of a kernel node hands out
};

struct Graph {
  uint64_t handle;
  uint64_t origin;     // the graph that it was cloned from, or 0
  bool is_child;       // belongs to a node: the program may not destroy it
  bool is_executable;  // belongs to an executable
  uint32_t id;
  uint32_t next_local_id;
  Vec<Node*> nodes;  // in order of creation
  Vec<uint64_t> user_objects;
};

Graph* Find(CUgraph handle);
Graph* FindByHandle(uint64_t handle);
Node* FindNode(CUgraphNode handle);
Node* FindNodeByHandle(uint64_t handle);

// An empty graph; null when memory is exhausted.
Graph* Create();

// Destroys a graph with its nodes; what its allocation nodes hold goes back to the device's cache.
void Destroy(uint64_t graph);

// A deep copy; 0 when memory is exhausted or there is no such graph.
uint64_t Clone(uint64_t graph);

// Adds a node that takes over what `operation` owns. CUDA_ERROR_INVALID_VALUE when a dependency is
// not of this graph or named twice.
CUresult AddNode(Graph& graph, const Operation& operation, const CUgraphNode* dependencies,
                 const CUgraphEdgeData* edges, size_t count, Node** added);

// Takes a node out of its graph, with its edges.
void RemoveNode(Node* node);

// Edges one by one; false when the edge is there already, is not there, or cannot be.
bool AddDependency(const Node& from, Node& to, const CUgraphEdgeData& edge);
bool RemoveDependency(const Node& from, Node& to);

// Objects of the program's that live as long as a graph does (graph_user_object.cpp).
bool CloneUserObjects(const Graph& from, Graph* to);
void ReleaseUserObjects(Graph& graph);

// What a conditional node asks (graph_node_calls.cpp).
struct Conditional {
  uint32_t default_value;
};
const Conditional* FindConditional(CUgraphConditionalHandle handle);

// Whether `node` is one of `front` or comes before one of them.
bool IsBehind(uint64_t node, const Vec<uint64_t>& front);

// Nodes so that each comes after those it depends on; false when there is a cycle.
bool Sort(const Graph& graph, Vec<Node*>* order);

// Submits all nodes behind others, in their order; returns a point behind all of them.
Work* PerformNodes(TimelineLock& lock, uint64_t graph, const Behind& behind, CUresult* result);

// A conditional node: the body that the handle's default value selects, once. Kernels compute
// nothing here, so no value ever changes and no loop goes round twice.
Work* PerformCondition(TimelineLock& lock, const Condition& condition, const Behind& behind,
                       CUresult* result);

// Whether nodes allocate or free memory. Such a graph has one executable at a time and no clones.
bool HasMemoryNodes(const Graph& graph);

// Kernels in a graph, children included, for the launch queue.
uint32_t CountKernels(const Graph& graph);

// Memory of allocation nodes (graph_perform.cpp). Addresses are fixed when the node is made and
// counted by the graphs that hold the node.
CUresult AllocateMemory(int device, size_t bytes, CUdeviceptr* address);
void RetainMemory(CUdeviceptr address);
void ReleaseMemory(CUdeviceptr address);
bool NoteAllocated(CUdeviceptr address);  // a launch passes the allocation node; false: no room
void NoteFreed(CUdeviceptr address);      // ... the free node
bool IsNodeMemory(CUdeviceptr address);   // of any allocation node
bool IsAllocated(CUdeviceptr address);    // passed by the former, not yet by the latter

}  // namespace sim::graph

namespace sim {

// A batch of waits and writes, one after the other (stream_memops.cpp).
Work* PerformMemoryOps(TimelineLock& lock, const Operation& operation, Work* after,
                       CUresult* result);

}  // namespace sim

namespace sim::graph {

// Describes a node; on success the operation owns what it needs. Writes what the API returns in the
// parameters: an allocation's address, a condition's bodies (valid as long as the node is).
// 1 for parameters that make no node, 801 for types that the simulator lacks.
CUresult OperationOf(CUgraphNodeParams* params, Operation* operation);

// The reverse. Pointers in it stay valid until the node changes or goes.
CUresult ParamsOf(Node& node, CUgraphNodeParams* params);

// The parameters of one type inside the general form.
CUgraphNodeParams KernelParams(const CUDA_KERNEL_NODE_PARAMS_v1& kernel);
CUgraphNodeParams KernelParams(const CUDA_KERNEL_NODE_PARAMS_v2& kernel);
CUgraphNodeParams CopyParams(const CUDA_MEMCPY3D_v2& copy, CUcontext context);
CUgraphNodeParams FillParams(const CUDA_MEMSET_NODE_PARAMS_v1& fill, CUcontext context);
CUgraphNodeParams HostParams(const CUDA_HOST_NODE_PARAMS_v1& host);
CUgraphNodeParams EventParams(CUgraphNodeType type, CUevent event);
CUgraphNodeParams ChildParams(CUgraph graph);
CUgraphNodeParams BatchParams(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1& batch);

}  // namespace sim::graph
