// The calls that instantiate, launch, change and end executable graphs: their memory, and in how
// many steps their kernels run, which no change but switching nodes off can alter. Adding a node
// takes nothing yet and is the driver's alone.
#include "device/capture_mode.h"
#include "hooks/cores/cores.h"
#include "hooks/cores/streams.h"
#include "hooks/graphs/graph_kernels.h"
#include "hooks/graphs/graph_memory.h"
#include "hooks/graphs/graph_steps.h"
#include "real.h"

namespace gpufence {
namespace {

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
  if (rc == CUDA_SUCCESS) core_launch.LaunchedGraph([=] { return RunsOf(executable); });
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
  if (fenced != nullptr) SettleGraphs(fenced);
  return rc;
}

}  // extern "C"
