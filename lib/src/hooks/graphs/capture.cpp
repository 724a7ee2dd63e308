// Captures are counted: only while one is open must a launch or an allocation ask whether the
// capture takes it. Must not know what is captured.
#include "hooks/graphs/capture.h"

#include "hooks/cores/cores.h"
#include "hooks/cores/streams.h"
#include "real.h"

namespace gpufence {

constinit std::atomic<uint32_t> open_captures{0};

namespace {

// Only where the driver says so: what it does not tell was not counted either.
bool IsCapturing(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return real::cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// Counted before the driver is asked, so that nothing that goes into the capture finds none open.
template <typename Call>
CUresult Begin(CUstream stream, Call call) {
  if (ActiveCores() != nullptr) LeaveKernels(stream);
  open_captures.fetch_add(1, std::memory_order_acq_rel);
  const CUresult rc = call();
  if (rc != CUDA_SUCCESS) open_captures.fetch_sub(1, std::memory_order_release);
  return rc;
}

// A capture ends by this call even where it fails. One that ends otherwise, with its stream, stays
// counted, which costs launches and allocations a question and nothing else.
template <typename Call>
CUresult End(CUstream stream, Call call) {
  if (!MayCapture()) return call();
  const bool captured = IsCapturing(stream);
  const CUresult rc = call();
  if (captured && !IsCapturing(stream)) open_captures.fetch_sub(1, std::memory_order_release);
  return rc;
}

}  // namespace
}  // namespace gpufence

using namespace gpufence;

extern "C" {

CUresult cuStreamBeginCapture(CUstream hStream) {
  return Begin(hStream, [&] { return real::cuStreamBeginCapture(hStream); });
}

CUresult cuStreamBeginCapture_ptsz(CUstream hStream) {
  return Begin(PerThread(hStream), [&] { return real::cuStreamBeginCapture_ptsz(hStream); });
}

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  return Begin(hStream, [&] { return real::cuStreamBeginCapture_v2(hStream, mode); });
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode) {
  return Begin(PerThread(hStream),
               [&] { return real::cuStreamBeginCapture_v2_ptsz(hStream, mode); });
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                     const CUgraphNode* dependencies,
                                     const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode) {
  return Begin(hStream, [&] {
    return real::cuStreamBeginCaptureToGraph(hStream, hGraph, dependencies, dependencyData,
                                             numDependencies, mode);
  });
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph,
                                          const CUgraphNode* dependencies,
                                          const CUgraphEdgeData* dependencyData,
                                          size_t numDependencies, CUstreamCaptureMode mode) {
  return Begin(PerThread(hStream), [&] {
    return real::cuStreamBeginCaptureToGraph_ptsz(hStream, hGraph, dependencies, dependencyData,
                                                  numDependencies, mode);
  });
}

CUresult cuStreamBeginRecaptureToGraph(CUstream hStream, CUstreamCaptureMode mode, CUgraph hGraph,
                                       CUgraphRecaptureCallback callbackFunc, void* userData) {
  return Begin(hStream, [&] {
    return real::cuStreamBeginRecaptureToGraph(hStream, mode, hGraph, callbackFunc, userData);
  });
}

CUresult cuStreamBeginRecaptureToGraph_ptsz(CUstream hStream, CUstreamCaptureMode mode,
                                            CUgraph hGraph, CUgraphRecaptureCallback callbackFunc,
                                            void* userData) {
  return Begin(PerThread(hStream), [&] {
    return real::cuStreamBeginRecaptureToGraph_ptsz(hStream, mode, hGraph, callbackFunc, userData);
  });
}

CUresult cuStreamBeginCaptureToCig(CUstream hStream,
                                   CUstreamCigCaptureParams* streamCigCaptureParams) {
  return Begin(hStream,
               [&] { return real::cuStreamBeginCaptureToCig(hStream, streamCigCaptureParams); });
}

CUresult cuStreamBeginCaptureToCig_ptsz(CUstream hStream,
                                        CUstreamCigCaptureParams* streamCigCaptureParams) {
  return Begin(PerThread(hStream), [&] {
    return real::cuStreamBeginCaptureToCig_ptsz(hStream, streamCigCaptureParams);
  });
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
  return End(hStream, [&] { return real::cuStreamEndCapture(hStream, phGraph); });
}

CUresult cuStreamEndCapture_ptsz(CUstream hStream, CUgraph* phGraph) {
  return End(PerThread(hStream), [&] { return real::cuStreamEndCapture_ptsz(hStream, phGraph); });
}

CUresult cuStreamEndCaptureToCig(CUstream hStream) {
  return End(hStream, [&] { return real::cuStreamEndCaptureToCig(hStream); });
}

CUresult cuStreamEndCaptureToCig_ptsz(CUstream hStream) {
  return End(PerThread(hStream), [&] { return real::cuStreamEndCaptureToCig_ptsz(hStream); });
}

}  // extern "C"
