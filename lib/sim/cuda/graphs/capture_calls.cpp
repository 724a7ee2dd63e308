// The exports about stream capture. Must not know what operations do.
#include "cuda/graphs/capture.h"
#include "cuda/graphs/graph.h"
#include "cuda/streams/stream.h"

namespace sim {

namespace {

using stream::Stream;

CUresult BeginCapture(bool per_thread, CUstream handle, CUstreamCaptureMode mode) {
  TimelineLock lock;
  Stream* stream = nullptr;
  const CUresult result = stream::Resolve(handle, per_thread, &stream);
  return result != CUDA_SUCCESS ? result : capture::Begin(*stream, mode, nullptr);
}

// The form of CUDA 10.0, before there were modes.
CUresult BeginGlobalCapture(bool per_thread, CUstream handle) {
  return BeginCapture(per_thread, handle, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult BeginCaptureInto(bool per_thread, CUstream handle, CUgraph graph_handle,
                          const CUgraphNode* dependencies, const CUgraphEdgeData*, size_t count,
                          CUstreamCaptureMode mode) {
  TimelineLock lock;
  graph::Graph* graph = graph::Find(graph_handle);
  if (graph == nullptr || (count != 0 && dependencies == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = nullptr;
  CUresult result = stream::Resolve(handle, per_thread, &stream);
  if (result == CUDA_SUCCESS) result = capture::Begin(*stream, mode, graph);
  if (result != CUDA_SUCCESS) return result;
  const auto* nodes = reinterpret_cast<const uint64_t*>(dependencies);
  result = capture::UpdateFront(*stream, nodes, count, true);
  if (result != CUDA_SUCCESS) capture::Abandon(*stream);
  return result;
}

CUresult EndCapture(bool per_thread, CUstream handle, CUgraph* graph) {
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TimelineLock lock;
  Stream* stream = nullptr;
  CUresult result = stream::Resolve(handle, per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  uint64_t captured = 0;
  result = capture::End(*stream, &captured);
  *graph = AsHandle<CUgraph>(captured);
  return result;
}

CUstreamCaptureStatus StatusOf(const Stream& stream) {
  if (stream.capture == nullptr) return CU_STREAM_CAPTURE_STATUS_NONE;
  return stream.capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                     : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

// Asking about the legacy stream while a blocking stream captures is an implicit use of it.
CUresult ResolveForStatus(bool per_thread, CUstream handle, Stream** stream) {
  const CUresult result = stream::Resolve(handle, per_thread, stream);
  if (result != CUDA_SUCCESS || !(*stream)->is_legacy) return result;
  return capture::HasBlocking((*stream)->context) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
                                                  : CUDA_SUCCESS;
}

CUresult IsCapturing(bool per_thread, CUstream handle, CUstreamCaptureStatus* status) {
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  Stream* stream = nullptr;
  const CUresult result = ResolveForStatus(per_thread, handle, &stream);
  if (result == CUDA_SUCCESS) *status = StatusOf(*stream);
  return result;
}

CUresult GetInfo(bool per_thread, CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                 CUgraph* graph, const CUgraphNode** dependencies, const CUgraphEdgeData** edges,
                 size_t* count) {
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  Stream* stream = nullptr;
  const CUresult result = ResolveForStatus(per_thread, handle, &stream);
  if (result != CUDA_SUCCESS) return result;
  *status = StatusOf(*stream);
  if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  if (id != nullptr) *id = stream->capture->id;
  if (graph != nullptr) *graph = AsHandle<CUgraph>(stream->capture->graph);
  if (edges != nullptr) *edges = nullptr;  // only plain dependencies are made here
  if (dependencies != nullptr) {
    *dependencies = reinterpret_cast<const CUgraphNode*>(stream->capture_front.data());
  }
  if (count != nullptr) *count = stream->capture_front.size();
  return CUDA_SUCCESS;
}

CUresult GetInfo1(bool per_thread, CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id) {
  return GetInfo(per_thread, stream, status, id, nullptr, nullptr, nullptr, nullptr);
}

CUresult GetInfo2(bool per_thread, CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                  CUgraph* graph, const CUgraphNode** dependencies, size_t* count) {
  return GetInfo(per_thread, stream, status, id, graph, dependencies, nullptr, count);
}

CUresult UpdateDependencies(bool per_thread, CUstream handle, CUgraphNode* dependencies,
                            const CUgraphEdgeData*, size_t count, unsigned flags) {
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (count != 0 && dependencies == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  DriverLock lock;
  Stream* stream = nullptr;
  const CUresult result = stream::Resolve(handle, per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  return capture::UpdateFront(*stream, reinterpret_cast<const uint64_t*>(dependencies), count,
                              flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES);
}

CUresult UpdateDependencies1(bool per_thread, CUstream stream, CUgraphNode* dependencies,
                             size_t count, unsigned flags) {
  return UpdateDependencies(per_thread, stream, dependencies, nullptr, count, flags);
}

}  // namespace

}  // namespace sim

// The exports are global, everything that they use is in sim.
using namespace sim;

SIM_TWINS(cuStreamBeginCapture, BeginGlobalCapture, (CUstream hStream), hStream);
SIM_TWINS(cuStreamBeginCapture_v2, BeginCapture, (CUstream hStream, CUstreamCaptureMode mode),
          hStream, mode);
SIM_TWINS(cuStreamBeginCaptureToGraph, BeginCaptureInto,
          (CUstream hStream, CUgraph hGraph, const CUgraphNode* dependencies,
           const CUgraphEdgeData* dependencyData, size_t numDependencies, CUstreamCaptureMode mode),
          hStream, hGraph, dependencies, dependencyData, numDependencies, mode);
SIM_TWINS(cuStreamEndCapture, EndCapture, (CUstream hStream, CUgraph* phGraph), hStream, phGraph);
SIM_TWINS(cuStreamIsCapturing, IsCapturing,
          (CUstream hStream, CUstreamCaptureStatus* captureStatus), hStream, captureStatus);
SIM_TWINS(cuStreamGetCaptureInfo, GetInfo1,
          (CUstream hStream, CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out), hStream,
          captureStatus_out, id_out);
SIM_TWINS(cuStreamGetCaptureInfo_v2, GetInfo2,
          (CUstream hStream, CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out,
           CUgraph* graph_out, const CUgraphNode** dependencies_out, size_t* numDependencies_out),
          hStream, captureStatus_out, id_out, graph_out, dependencies_out, numDependencies_out);
SIM_TWINS(cuStreamGetCaptureInfo_v3, GetInfo,
          (CUstream hStream, CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out,
           CUgraph* graph_out, const CUgraphNode** dependencies_out,
           const CUgraphEdgeData** edgeData_out, size_t* numDependencies_out),
          hStream, captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out,
          numDependencies_out);
SIM_TWINS(cuStreamUpdateCaptureDependencies, UpdateDependencies1,
          (CUstream hStream, CUgraphNode* dependencies, size_t numDependencies, unsigned int flags),
          hStream, dependencies, numDependencies, flags);
SIM_TWINS(cuStreamUpdateCaptureDependencies_v2, UpdateDependencies,
          (CUstream hStream, CUgraphNode* dependencies, const CUgraphEdgeData* dependencyData,
           size_t numDependencies, unsigned int flags),
          hStream, dependencies, dependencyData, numDependencies, flags);

extern "C" CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  SIM_CALL(cuThreadExchangeStreamCaptureMode, mode);
  if (mode == nullptr || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  *mode = capture::ExchangeThreadMode(*mode);
  return CUDA_SUCCESS;
}
