// The calls that instantiate, launch, update and end executable graphs, as far as memory goes.
// Adding an allocation node takes nothing yet and is the driver's alone.
#include "hooks/cores.h"
#include "hooks/graph_memory.h"
#include "hooks/streams.h"
#include "real.h"

namespace gpufence {
namespace {

template <typename Call>
CUresult Instantiate(CUgraphExec* out, CUgraph graph, bool uploads, Call call) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  Fence* fence = hook.fence();
  if (fence == nullptr || out == nullptr) return call();

  GraphNeeds needs;
  if (!MeasureGraph(fence, graph, &needs)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!needs.any) return call();
  if (!uploads) {
    const CUresult rc = call();
    if (rc == CUDA_SUCCESS) RememberGraph(fence, *out, needs);
    return rc;
  }
  GraphRun upload(fence, needs);
  if (!upload.Claim()) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult rc = call();
  if (rc == CUDA_SUCCESS) upload.Name(*out, needs);
  return upload.Settle(rc);
}

bool IsCapturing(CUstream stream, bool per_thread) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult rc = per_thread ? real::cuStreamIsCapturing_ptsz(stream, &status)
                                 : real::cuStreamIsCapturing(stream, &status);
  return rc != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// The memory side of a launch or an upload. In a capture nothing runs, so nothing is taken.
template <typename Call>
CUresult CallWithMemory(Fence* fence, CUgraphExec executable, CUstream stream, bool per_thread,
                        Call call) {
  if (fence == nullptr || !HasMemoryGraphs()) return call();
  GraphRun run(fence, executable);
  if (run.empty() || IsCapturing(stream, per_thread)) return call();
  if (!run.Claim()) return CUDA_ERROR_OUT_OF_MEMORY;
  return run.Settle(call());
}

template <typename Call>
CUresult Upload(CUgraphExec executable, CUstream stream, bool per_thread, Call call) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  return CallWithMemory(hook.fence(), executable, stream, per_thread, call);
}

template <typename Call>
CUresult Run(CUgraphExec executable, CUstream stream, bool per_thread, Call call) {
  const Hook hook;
  if (hook.fence() == nullptr) return hook.refused() ? kRefusalCode : call();
  const CoreLaunch core_launch(per_thread ? PerThread(stream) : stream);
  return CallWithMemory(hook.fence(), executable, stream, per_thread, call);
}

// An update keeps the kinds of nodes, so only an executable that has allocation nodes can change.
template <typename Call>
CUresult Update(CUgraphExec executable, CUgraph graph, Call call) {
  const Hook hook;
  const CUresult rc = call();
  Fence* fence = hook.fence();
  if (rc != CUDA_SUCCESS || fence == nullptr || !HasMemoryGraphs()) return rc;
  GraphNeeds needs;
  if (IsMemoryGraph(fence, executable) && MeasureGraph(fence, graph, &needs)) {
    RememberGraph(fence, executable, needs);
  }
  return rc;
}

bool Uploads(uint64_t flags) { return (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0; }

}  // namespace
}  // namespace gpufence

using namespace gpufence;

extern "C" {

CUresult cuGraphInstantiate(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                            char* logBuffer, size_t bufferSize) {
  return Instantiate(phGraphExec, hGraph, /*uploads=*/false, [&] {
    return real::cuGraphInstantiate(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
  });
}

CUresult cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                               char* logBuffer, size_t bufferSize) {
  return Instantiate(phGraphExec, hGraph, /*uploads=*/false, [&] {
    return real::cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
  });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph,
                                     unsigned long long flags) {
  return Instantiate(phGraphExec, hGraph, Uploads(flags),
                     [&] { return real::cuGraphInstantiateWithFlags(phGraphExec, hGraph, flags); });
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  const bool uploads = instantiateParams != nullptr && Uploads(instantiateParams->flags);
  return Instantiate(phGraphExec, hGraph, uploads, [&] {
    return real::cuGraphInstantiateWithParams(phGraphExec, hGraph, instantiateParams);
  });
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec* phGraphExec, CUgraph hGraph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  const bool uploads = instantiateParams != nullptr && Uploads(instantiateParams->flags);
  return Instantiate(phGraphExec, hGraph, uploads, [&] {
    return real::cuGraphInstantiateWithParams_ptsz(phGraphExec, hGraph, instantiateParams);
  });
}

CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream) {
  return Run(hGraphExec, hStream, /*per_thread=*/false,
             [&] { return real::cuGraphLaunch(hGraphExec, hStream); });
}

CUresult cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream) {
  return Run(hGraphExec, hStream, /*per_thread=*/true,
             [&] { return real::cuGraphLaunch_ptsz(hGraphExec, hStream); });
}

CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream) {
  return Upload(hGraphExec, hStream, /*per_thread=*/false,
                [&] { return real::cuGraphUpload(hGraphExec, hStream); });
}

CUresult cuGraphUpload_ptsz(CUgraphExec hGraphExec, CUstream hStream) {
  return Upload(hGraphExec, hStream, /*per_thread=*/true,
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

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
  const Hook hook;
  EndedGraph ended(hook.fence(), hGraphExec);
  return ended.Settle(real::cuGraphExecDestroy(hGraphExec));
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
  const Hook hook;
  const CUresult rc = real::cuDeviceGraphMemTrim(device);
  if (rc != CUDA_SUCCESS || hook.fence() == nullptr) return rc;
  FencedDevice* fenced = FencedOrdinal(hook.fence(), static_cast<uint32_t>(device));
  if (fenced != nullptr) GraphsTrimmed(fenced);
  return rc;
}

}  // extern "C"
