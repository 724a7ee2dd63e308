// Node parameters as the API spells them, to and from operations.
// Must not know graphs' structure, streams or captures.
#pragma once

#include "cuda/graphs/graph.h"
#include "cuda/streams/launch_operation.h"
#include "driver_abi.h"

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
