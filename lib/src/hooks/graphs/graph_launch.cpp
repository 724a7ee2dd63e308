// The calls that instantiate, launch, change and end executable graphs. What their kernels make the
// driver hold (stack, code and the executable's own commands) it takes when an executable is made
// or changed. In how many steps they run no change but switching nodes off can alter. Adding a node
// takes nothing yet and is the driver's alone.
#include <stdint.h>

#include "device/context_scope.h"
#include "hooks/contexts/context_cost.h"
#include "hooks/contexts/overhead.h"
#include "hooks/cores/cores.h"
#include "hooks/cores/streams.h"
#include "hooks/graphs/executables.h"
#include "hooks/graphs/graph_needs.h"
#include "policy/charge.h"
#include "real.h"

namespace gpufence {
namespace {

// What the commands of an executable take, at most: 2.5 KiB a node were seen for 5000 nodes, 160
// KiB for 20 of them. The driver keeps and reuses it when the executable ends.
constexpr uint64_t CommandBytes(uint64_t nodes) {
  return RoundUp((uint64_t{256} << 10) + nodes * 4096, kChunkBytes);
}

// Executables of fewer bring too little to be asked about each time.
constexpr uint64_t kManyNodes = 1024;

// Makes the call when what it may take fits. Away from the limit commands and code are not
// reserved: the next request that comes near it reads what they took. undo() is called, and
// CUDA_ERROR_OUT_OF_MEMORY returned, when the call took so much that it passed the limit.
template <typename Call, typename Undo>
CUresult CallWithKernels(const Hook& hook, const GraphNeeds& needs, Call call, Undo undo) {
  FencedDevice* device = hook.current_device();
  if (device == nullptr || needs.nodes == 0) return call();
  const uint64_t context = hook.context();
  const uint64_t growth_bytes = StackGrowthBytes(hook.fence(), device, context, needs.stack_bytes);
  const bool near_limit = device->account.IsNearLimit(growth_bytes + CommandBytes(needs.nodes));
  if (growth_bytes == 0 && !near_limit && !needs.has_unseen) {
    const CUresult rc = call();
    OverheadChanged(device);
    if (rc == CUDA_SUCCESS && needs.nodes >= kManyNodes) ReadIfGrownUnread(device);
    return rc;
  }
  const uint64_t foreseen_bytes = growth_bytes + (near_limit ? CommandBytes(needs.nodes) : 0);
  const CUresult rc = CallThatGrows(device, foreseen_bytes, call, undo);
  if (rc == CUDA_SUCCESS && growth_bytes > 0) {
    SetLaunchedStack(hook.fence(), device, context, needs.stack_bytes);
  }
  return rc;
}

constexpr uint64_t kUpload = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;

unsigned long long NoFlags() { return 0; }

unsigned long long FlagsOf(const CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  return params != nullptr ? params->flags : 0;
}

// `flags` tells the caller's flags; asked only where a limit holds.
template <typename Flags, typename Call>
CUresult Instantiate(CUgraphExec* out, CUgraph graph, Flags flags, Call call) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  Fence* fence = hook.fence();
  if (fence == nullptr || out == nullptr) return call(out);

  GraphNeeds needs;
  if (!MeasureGraph(fence, graph, &needs, Names::kAsk)) return CUDA_ERROR_OUT_OF_MEMORY;
  GraphNeeds at_once;  // what is taken here and not at a launch
  if ((flags() & kUpload) != 0) at_once = needs;
  GraphRun upload(fence, at_once);
  if (!upload.Claim()) return CUDA_ERROR_OUT_OF_MEMORY;
  CUgraphExec made = nullptr;
  const CUresult rc = upload.Settle(CallWithKernels(
      hook, needs, [&] { return call(&made); }, [&] { return real::cuGraphExecDestroy(made); }));
  if (rc != CUDA_SUCCESS) return rc;
  RememberGraph(fence, made, needs);
  RememberRuns(made, {needs.steps, needs.ordinals, needs.has_collective});
  *out = made;
  return rc;
}

// A number that no other stream ever has; 0 where the driver does not tell (before 12.0).
uint64_t NumberOf(CUstream stream) {
  unsigned long long number = 0;
  return real::cuStreamGetId(stream, &number) == CUDA_SUCCESS ? number : 0;
}

enum class Run : bool { kLaunch, kUpload };

// The memory side of a launch or an upload. In a capture nothing runs, so nothing is taken.
template <typename Call>
CUresult CallWithMemory(Fence* fence, CUgraphExec executable, CUstream stream, Run what,
                        Call call) {
  if (!HasMemoryGraphs()) return call();
  GraphRun run(fence, executable);
  if (run.empty() || MayBeCapturing(stream)) return call();
  if (what == Run::kLaunch) run.InStream(NumberOf(stream));
  if (!run.Claim()) return CUDA_ERROR_OUT_OF_MEMORY;
  return run.Settle(call());
}

// `stream` as PerThread has it.
template <typename Call>
CUresult Started(CUgraphExec executable, CUstream stream, Run what, Call call) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  Fence* fence = hook.fence();
  if (fence == nullptr) return call();
  if (what == Run::kUpload) return CallWithMemory(fence, executable, stream, what, call);
  CoreLaunch core_launch([&] { return stream; });
  CoreElsewhere elsewhere;
  if (fence->device_count > 1) [[unlikely]]
    elsewhere.Enter(RunsOf(executable).ordinals, stream);
  const CUresult rc = CallWithMemory(fence, executable, stream, what, call);
  if (rc == CUDA_SUCCESS) {
    core_launch.LaunchedGraph(executable, [=] { return RunsOf(executable); });
  }
  elsewhere.Launched();
  return rc;
}

CUresult NothingToUndo() { return CUDA_SUCCESS; }

// An update may bring other sizes of allocations, whose memory is taken at the next launch, and
// deeper kernels, whose stack is taken at once.
template <typename Call>
CUresult Update(CUgraphExec executable, CUgraph graph, Call call) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  Fence* fence = hook.fence();
  if (fence == nullptr) return call();
  GraphNeeds needs;
  if (!MeasureGraph(fence, graph, &needs)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult rc = CallWithKernels(hook, needs, call, NothingToUndo);
  if (rc == CUDA_SUCCESS) RememberGraph(fence, executable, needs);
  return rc;
}

// A node's child graph is exchanged, where a limit holds.
template <typename Call>
CUresult ExchangeChild(const Hook& hook, CUgraphExec executable, CUgraph child, Call call) {
  GraphNeeds needs;
  if (!MeasureGraph(hook.fence(), child, &needs)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult rc = CallWithKernels(hook, needs, call, NothingToUndo);
  if (rc == CUDA_SUCCESS) AddToGraph(hook.fence(), executable, needs);
  return rc;
}

// A node's kernel is exchanged, where a limit holds: as with a first launch, its stack is taken at
// once.
template <typename Call>
CUresult ExchangeKernel(const Hook& hook, CUfunction wanted, Call call) {
  if (wanted == nullptr || WasLaunched(wanted) != Launched::kNever) return call();
  GraphNeeds needs;
  needs.nodes = 1;
  needs.stack_bytes = StackOf(wanted);
  return CallWithKernels(hook, needs, call, NothingToUndo);
}

template <typename Call>
CUresult ChangeChild(CUgraphExec executable, CUgraph child, Call call) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  return hook.fence() == nullptr ? call() : ExchangeChild(hook, executable, child, call);
}

CUfunction FunctionOf(CUfunction function, CUkernel kernel) {
  return function != nullptr ? function : reinterpret_cast<CUfunction>(kernel);
}

// `function` tells which kernel; asked only where a limit holds.
template <typename Function, typename Call>
CUresult ChangeKernel(Function function, Call call) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  return hook.fence() == nullptr ? call() : ExchangeKernel(hook, function(), call);
}

template <typename Call>
CUresult ChangeNode(CUgraphExec executable, const CUgraphNodeParams* params, Call call) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  if (hook.fence() == nullptr || params == nullptr) return call();
  switch (params->type) {
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return ExchangeChild(hook, executable, params->graph.graph, call);
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return ExchangeKernel(hook, FunctionOf(params->kernel.func, params->kernel.kern), call);
    default:
      return call();
  }
}

}  // namespace
}  // namespace gpufence

using namespace gpufence;

extern "C" {

CUresult cuGraphInstantiate(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                            char* logBuffer, size_t bufferSize) {
  return Instantiate(phGraphExec, hGraph, NoFlags, [&](CUgraphExec* out) {
    return real::cuGraphInstantiate(out, hGraph, phErrorNode, logBuffer, bufferSize);
  });
}

CUresult cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                               char* logBuffer, size_t bufferSize) {
  return Instantiate(phGraphExec, hGraph, NoFlags, [&](CUgraphExec* out) {
    return real::cuGraphInstantiate_v2(out, hGraph, phErrorNode, logBuffer, bufferSize);
  });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph,
                                     unsigned long long flags) {
  return Instantiate(
      phGraphExec, hGraph, [=] { return flags; },
      [&](CUgraphExec* out) { return real::cuGraphInstantiateWithFlags(out, hGraph, flags); });
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  return Instantiate(
      phGraphExec, hGraph, [=] { return FlagsOf(instantiateParams); },
      [&](CUgraphExec* out) {
        return real::cuGraphInstantiateWithParams(out, hGraph, instantiateParams);
      });
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec* phGraphExec, CUgraph hGraph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  return Instantiate(
      phGraphExec, hGraph, [=] { return FlagsOf(instantiateParams); },
      [&](CUgraphExec* out) {
        return real::cuGraphInstantiateWithParams_ptsz(out, hGraph, instantiateParams);
      });
}

CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream) {
  return Started(hGraphExec, hStream, Run::kLaunch,
                 [&] { return real::cuGraphLaunch(hGraphExec, hStream); });
}

CUresult cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream) {
  return Started(hGraphExec, PerThread(hStream), Run::kLaunch,
                 [&] { return real::cuGraphLaunch_ptsz(hGraphExec, hStream); });
}

CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream) {
  return Started(hGraphExec, hStream, Run::kUpload,
                 [&] { return real::cuGraphUpload(hGraphExec, hStream); });
}

CUresult cuGraphUpload_ptsz(CUgraphExec hGraphExec, CUstream hStream) {
  return Started(hGraphExec, PerThread(hStream), Run::kUpload,
                 [&] { return real::cuGraphUpload_ptsz(hGraphExec, hStream); });
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode* hErrorNode_out,
                           CUgraphExecUpdateResult* updateResult_out) {
  return Update(hGraphExec, hGraph, [&] {
    return real::cuGraphExecUpdate(hGraphExec, hGraph, hErrorNode_out, updateResult_out);
  });
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                              CUgraphExecUpdateResultInfo* resultInfo) {
  return Update(hGraphExec, hGraph,
                [&] { return real::cuGraphExecUpdate_v2(hGraphExec, hGraph, resultInfo); });
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            CUgraph childGraph) {
  return ChangeChild(hGraphExec, childGraph, [&] {
    return real::cuGraphExecChildGraphNodeSetParams(hGraphExec, hNode, childGraph);
  });
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  return ChangeKernel(
      [=] { return nodeParams != nullptr ? nodeParams->func : nullptr; },
      [&] { return real::cuGraphExecKernelNodeSetParams(hGraphExec, hNode, nodeParams); });
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return ChangeKernel(
      [=]() -> CUfunction {
        return nodeParams != nullptr ? FunctionOf(nodeParams->func, nodeParams->kern) : nullptr;
      },
      [&] { return real::cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, nodeParams); });
}

CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                  CUgraphNodeParams* nodeParams) {
  return ChangeNode(hGraphExec, nodeParams,
                    [&] { return real::cuGraphExecNodeSetParams(hGraphExec, hNode, nodeParams); });
}

// Kernels that are switched off take no step, and nobody asks the driver which: it counts as one of
// which nothing is known.
CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled) {
  const Hook hook;
  const CUresult rc = real::cuGraphNodeSetEnabled(hGraphExec, hNode, isEnabled);
  if (rc == CUDA_SUCCESS && isEnabled == 0 && hook.fence() != nullptr) {
    const GraphRuns runs = RunsOf(hGraphExec);
    RememberRuns(hGraphExec, {kUnknownSteps, runs.ordinals, runs.has_collective});
  }
  return rc;
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
  const Hook hook;
  EndedGraph ended(hook.fence(), hGraphExec);
  const GraphRuns runs = ForgetRuns(hGraphExec);
  const CUresult rc = ended.Settle(real::cuGraphExecDestroy(hGraphExec));
  if (rc != CUDA_SUCCESS) RememberRuns(hGraphExec, runs);
  return rc;
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
  const Hook hook;
  const CUresult rc = real::cuDeviceGraphMemTrim(device);
  if (rc != CUDA_SUCCESS || hook.fence() == nullptr) return rc;
  FencedDevice* fenced = FencedOrdinal(hook.fence(), static_cast<uint32_t>(device));
  if (fenced != nullptr) RechargeGraphs(fenced);
  return rc;
}

}  // extern "C"
