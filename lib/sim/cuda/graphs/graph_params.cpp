// Node parameters to operations and back. Must not know graphs' structure, streams or captures.
#include <stdlib.h>
#include <string.h>

#include "cuda/devices/device.h"
#include "cuda/graphs/graph.h"
#include "cuda/streams/event.h"
#include "cuda/streams/launch.h"
#include "machine/version.h"

namespace sim::graph {

namespace {

// The context a node names, or the current one.
CUresult ContextOf(CUcontext handle, context::Context** context) {
  if (handle == nullptr) return context::Current(context);
  *context = context::Find(handle);
  return *context != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult KernelOperation(const CUDA_KERNEL_NODE_PARAMS_v3& kernel, Operation* operation) {
  const CUfunction function =
      kernel.func != nullptr ? kernel.func : AsHandle<CUfunction>(HandleValue(kernel.kern));
  launch::ParameterRoom room;
  Operation described;
  const CUresult result = launch::Prepare({function,
                                           {kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ},
                                           {kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ},
                                           kernel.sharedMemBytes,
                                           kernel.kernelParams,
                                           kernel.extra,
                                           false},
                                          &room, &described);
  if (result != CUDA_SUCCESS) return result;
  return CloneOperation(described, operation) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult CopyOperation(const CUDA_MEMCPY_NODE_PARAMS& copy, const context::Context& context,
                       Operation* operation) {
  const CUresult result = ValidateCopy(copy.copyParams);
  if (result != CUDA_SUCCESS) return result;
  *operation = MakeOperation(CU_GRAPH_NODE_TYPE_MEMCPY, context);
  operation->copy = copy.copyParams;
  return CUDA_SUCCESS;
}

CUresult FillOperation(const CUDA_MEMSET_NODE_PARAMS_v2& fill, const context::Context& context,
                       Operation* operation) {
  const bool known = fill.elementSize == 1 || fill.elementSize == 2 || fill.elementSize == 4;
  if (!known || fill.dst == 0 || fill.width == 0 || fill.height == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *operation = MakeOperation(CU_GRAPH_NODE_TYPE_MEMSET, context);
  operation->fill = fill;
  return CUDA_SUCCESS;
}

CUresult EventOperation(CUgraphNodeType type, CUevent event, Operation* operation) {
  if (event::Find(HandleValue(event)) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *operation = {};
  operation->type = type;
  operation->event = HandleValue(event);
  return CUDA_SUCCESS;
}

CUresult AllocationOperation(CUDA_MEM_ALLOC_NODE_PARAMS_v2* allocation, Operation* operation) {
  int device = -1;
  const CUresult found = device::ResolveAllocation(allocation->poolProps.location, &device);
  if (found != CUDA_SUCCESS || device < 0) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = AllocateMemory(device, allocation->bytesize, &allocation->dptr);
  if (result != CUDA_SUCCESS) return result;
  *operation = {};
  operation->type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  operation->allocation = *allocation;
  operation->allocation.accessDescs = nullptr;
  operation->allocation.accessDescCount = 0;
  return CUDA_SUCCESS;
}

CUresult ChildOperation(const CUDA_CHILD_GRAPH_NODE_PARAMS& child, Operation* operation) {
  const uint64_t clone = Clone(HandleValue(child.graph));
  if (clone == 0) return CUDA_ERROR_INVALID_VALUE;
  FindByHandle(clone)->is_child = true;
  *operation = {};
  operation->type = CU_GRAPH_NODE_TYPE_GRAPH;
  operation->graph = clone;
  return CUDA_SUCCESS;
}

CUresult BatchOperation(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2& batch,
                        const context::Context& context, Operation* operation) {
  if (batch.count == 0 || batch.paramArray == nullptr || batch.flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *operation = MakeOperation(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, context);
  for (unsigned i = 0; i < batch.count; ++i) {
    if (!operation->memory_ops.Push(batch.paramArray[i])) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

CUresult ConditionOperation(CUDA_CONDITIONAL_NODE_PARAMS* condition, Operation* operation) {
  if (FindConditional(condition->handle) == nullptr || condition->size == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *operation = {};
  operation->type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  operation->context = HandleValue(condition->ctx);
  operation->condition.handle = condition->handle;
  operation->condition.type = condition->type;
  for (unsigned i = 0; i < condition->size; ++i) {
    Graph* body = Create();
    if (body == nullptr || !operation->condition.bodies.Push(body->handle)) {
      DisposeOperation(operation);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    body->is_child = true;
  }
  static_assert(sizeof(CUgraph) == sizeof(uint64_t));
  condition->phGraph_out = reinterpret_cast<CUgraph*>(operation->condition.bodies.data());
  return CUDA_SUCCESS;
}

// Of batches of copies it is only known that they are one, and of external engines that each holds
// memory of its context once it can run.
CUresult OpaqueOperation(CUgraphNodeType type, const context::Context& context,
                         Operation* operation) {
  if (ConfiguredDriver().cuda_version < 13040) return CUDA_ERROR_INVALID_VALUE;
  *operation = MakeOperation(type, context);
  return CUDA_SUCCESS;
}

CUcontext NamedContext(const CUgraphNodeParams& params) {
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return params.memcpy.copyCtx;
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return params.memset.ctx;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return params.memOp.ctx;
    default:
      return nullptr;
  }
}

// Types that run somewhere: they need a context of their own or the current one.
CUresult PlacedOperation(const CUgraphNodeParams& params, Operation* operation) {
  context::Context* context = nullptr;
  const CUresult result = ContextOf(NamedContext(params), &context);
  if (result != CUDA_SUCCESS) return result;
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return CopyOperation(params.memcpy, *context, operation);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return FillOperation(params.memset, *context, operation);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return BatchOperation(params.memOp, *context, operation);
    case CU_GRAPH_NODE_TYPE_MEMCPY_BATCH:
    case CU_GRAPH_NODE_TYPE_EXTERNAL_ENGINE:
      return OpaqueOperation(params.type, *context, operation);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUgraphNodeParams ParamsOfType(CUgraphNodeType type) {
  CUgraphNodeParams params;
  memset(&params, 0, sizeof(params));
  params.type = type;
  return params;
}

CUresult KernelParamsOf(Node& node, CUDA_KERNEL_NODE_PARAMS_v3* out) {
  const KernelLaunch& kernel = node.operation.kernel;
  module::Function* function = nullptr;
  const CUresult result = module::ResolveFunction(AsHandle<CUfunction>(kernel.function), &function);
  if (result != CUDA_SUCCESS) return result;
  node.parameter_pointers.Clear();
  for (const image::Parameter& parameter : function->entry->parameters) {
    if (!node.parameter_pointers.Push(kernel.parameters + parameter.offset)) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  out->func = AsHandle<CUfunction>(kernel.function);
  out->gridDimX = kernel.grid[0];
  out->gridDimY = kernel.grid[1];
  out->gridDimZ = kernel.grid[2];
  out->blockDimX = kernel.block[0];
  out->blockDimY = kernel.block[1];
  out->blockDimZ = kernel.block[2];
  out->sharedMemBytes = kernel.shared_bytes;
  out->kernelParams = node.parameter_pointers.empty() ? nullptr : node.parameter_pointers.data();
  out->ctx = AsHandle<CUcontext>(node.operation.context);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult OperationOf(CUgraphNodeParams* params, Operation* operation) {
  *operation = {};
  operation->type = params->type;
  switch (params->type) {
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return KernelOperation(params->kernel, operation);
    case CU_GRAPH_NODE_TYPE_HOST:
      operation->host.function = params->host.fn;
      operation->host.argument = params->host.userData;
      return params->host.fn != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return ChildOperation(params->graph, operation);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return EventOperation(params->type, params->eventWait.event, operation);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return EventOperation(params->type, params->eventRecord.event, operation);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return AllocationOperation(&params->alloc, operation);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      operation->freed = params->free.dptr;
      return IsNodeMemory(operation->freed) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return ConditionOperation(&params->conditional, operation);
    default:
      return PlacedOperation(*params, operation);
  }
}

CUresult ParamsOf(Node& node, CUgraphNodeParams* params) {
  const Operation& operation = node.operation;
  *params = ParamsOfType(operation.type);
  switch (operation.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return KernelParamsOf(node, &params->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      params->memcpy.copyParams = operation.copy;
      params->memcpy.copyCtx = AsHandle<CUcontext>(operation.context);
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEMSET:
      params->memset = operation.fill;
      params->memset.ctx = AsHandle<CUcontext>(operation.context);
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_HOST:
      params->host.fn = operation.host.function;
      params->host.userData = operation.host.argument;
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_GRAPH:
      params->graph.graph = AsHandle<CUgraph>(operation.graph);
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      params->eventWait.event = AsHandle<CUevent>(operation.event);
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      params->eventRecord.event = AsHandle<CUevent>(operation.event);
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      params->alloc = operation.allocation;
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      params->free.dptr = operation.freed;
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      params->memOp.ctx = AsHandle<CUcontext>(operation.context);
      params->memOp.count = static_cast<unsigned>(operation.memory_ops.size());
      params->memOp.paramArray = node.operation.memory_ops.data();
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      params->conditional.handle = operation.condition.handle;
      params->conditional.type = operation.condition.type;
      params->conditional.size = static_cast<unsigned>(operation.condition.bodies.size());
      params->conditional.phGraph_out =
          reinterpret_cast<CUgraph*>(node.operation.condition.bodies.data());
      params->conditional.ctx = AsHandle<CUcontext>(operation.context);
      return CUDA_SUCCESS;
    default:
      return CUDA_SUCCESS;
  }
}

CUgraphNodeParams KernelParams(const CUDA_KERNEL_NODE_PARAMS_v1& kernel) {
  CUgraphNodeParams params = ParamsOfType(CU_GRAPH_NODE_TYPE_KERNEL);
  params.kernel = {kernel.func,         kernel.gridDimX,  kernel.gridDimY,  kernel.gridDimZ,
                   kernel.blockDimX,    kernel.blockDimY, kernel.blockDimZ, kernel.sharedMemBytes,
                   kernel.kernelParams, kernel.extra,     nullptr,          nullptr};
  return params;
}

CUgraphNodeParams KernelParams(const CUDA_KERNEL_NODE_PARAMS_v2& kernel) {
  CUgraphNodeParams params = ParamsOfType(CU_GRAPH_NODE_TYPE_KERNEL);
  static_assert(sizeof(kernel) == sizeof(params.kernel));
  memcpy(&params.kernel, &kernel, sizeof(kernel));
  return params;
}

CUgraphNodeParams CopyParams(const CUDA_MEMCPY3D_v2& copy, CUcontext context) {
  CUgraphNodeParams params = ParamsOfType(CU_GRAPH_NODE_TYPE_MEMCPY);
  params.memcpy.copyParams = copy;
  params.memcpy.copyCtx = context;
  return params;
}

CUgraphNodeParams FillParams(const CUDA_MEMSET_NODE_PARAMS_v1& fill, CUcontext context) {
  CUgraphNodeParams params = ParamsOfType(CU_GRAPH_NODE_TYPE_MEMSET);
  params.memset = {fill.dst,   fill.pitch,  fill.value, fill.elementSize,
                   fill.width, fill.height, context};
  return params;
}

CUgraphNodeParams HostParams(const CUDA_HOST_NODE_PARAMS_v1& host) {
  CUgraphNodeParams params = ParamsOfType(CU_GRAPH_NODE_TYPE_HOST);
  params.host.fn = host.fn;
  params.host.userData = host.userData;
  return params;
}

CUgraphNodeParams EventParams(CUgraphNodeType type, CUevent event) {
  CUgraphNodeParams params = ParamsOfType(type);
  // Both kinds begin with the event.
  params.eventWait.event = event;
  return params;
}

CUgraphNodeParams ChildParams(CUgraph graph) {
  CUgraphNodeParams params = ParamsOfType(CU_GRAPH_NODE_TYPE_GRAPH);
  params.graph.graph = graph;
  return params;
}

CUgraphNodeParams BatchParams(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1& batch) {
  CUgraphNodeParams params = ParamsOfType(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
  params.memOp = {batch.ctx, batch.count, batch.paramArray, batch.flags};
  return params;
}

}  // namespace sim::graph
