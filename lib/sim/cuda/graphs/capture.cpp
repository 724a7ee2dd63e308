// Captures in progress: what they record, what they forbid meanwhile, and the exports about them.
// Must not know what operations do.
#include "cuda/graphs/capture.h"

#include <pthread.h>
#include <stdlib.h>

#include "cuda/graphs/graph.h"
#include "cuda/memory/memory.h"
#include "cuda/streams/stream.h"

namespace sim {

namespace capture {

namespace {

constinit Capture* captures = nullptr;
constinit uint64_t next_id = 1;
// How careful the calling thread wants to be (cuThreadExchangeStreamCaptureMode).
constinit thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

bool IsOwn(const Capture& capture) { return pthread_equal(capture.thread, pthread_self()) != 0; }

// Whether this capture forbids the calling thread what could synchronise with it.
bool Forbids(const Capture& capture) {
  if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (IsOwn(capture)) return capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
  return thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
         capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult SetFront(stream::Stream& stream, const uint64_t* nodes, size_t count) {
  stream.capture_front.Clear();
  for (size_t i = 0; i < count; ++i) {
    if (!stream.capture_front.Push(nodes[i])) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

void Leave(stream::Stream& stream) {
  stream.capture = nullptr;
  stream.capture_front.Clear();
}

// True when every node of the capture is behind the origin's front: all forks were joined.
bool IsJoined(const Capture& capture, const stream::Stream& origin) {
  bool joined = true;
  stream::ForEach([&](stream::Stream* stream) {
    if (stream->capture != &capture || stream == &origin) return;
    for (uint64_t node : stream->capture_front) {
      joined = joined && graph::IsBehind(node, origin.capture_front);
    }
  });
  return joined;
}

}  // namespace

CUresult Begin(stream::Stream& stream, CUstreamCaptureMode mode, graph::Graph* into) {
  if (stream.is_legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream.capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  auto* capture = static_cast<Capture*>(calloc(1, sizeof(Capture)));
  graph::Graph* graph = into != nullptr ? into : graph::Create();
  if (capture == nullptr || graph == nullptr) {
    free(capture);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  capture->id = next_id++;
  capture->graph = graph->handle;
  capture->origin = stream.handle;
  capture->context = stream.context;
  capture->thread = pthread_self();
  capture->mode = mode;
  capture->keeps_graph = into != nullptr;
  capture->next = captures;
  captures = capture;
  stream.capture = capture;
  stream.capture_front.Clear();
  return CUDA_SUCCESS;
}

CUresult End(stream::Stream& stream, uint64_t* graph) {
  *graph = 0;
  Capture* capture = stream.capture;
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream.handle) {
    capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  const bool relaxed = capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED;

  CUresult result = CUDA_SUCCESS;
  if (capture->invalidated) {
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (!relaxed && !IsOwn(*capture)) {
    result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;  // and it ends nevertheless
  } else if (!IsJoined(*capture, stream)) {
    result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  if (result == CUDA_SUCCESS) {
    *graph = capture->graph;
  } else if (!capture->keeps_graph) {
    graph::Destroy(capture->graph);
  }
  stream::ForEach([&](stream::Stream* other) {
    if (other->capture == capture) Leave(*other);
  });
  Capture** link = &captures;
  while (*link != capture) link = &(*link)->next;
  *link = capture->next;
  free(capture);
  return result;
}

CUresult Record(stream::Stream& stream, const Operation& operation, uint64_t* node) {
  Capture* capture = stream.capture;
  if (capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  graph::Graph* graph = graph::FindByHandle(capture->graph);
  if (graph == nullptr) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  Operation kept;
  if (!CloneOperation(operation, &kept)) return CUDA_ERROR_OUT_OF_MEMORY;

  static_assert(sizeof(CUgraphNode) == sizeof(uint64_t));
  graph::Node* added = nullptr;
  const CUresult result =
      graph::AddNode(*graph, kept, reinterpret_cast<CUgraphNode*>(stream.capture_front.data()),
                     nullptr, stream.capture_front.size(), &added);
  if (result != CUDA_SUCCESS) {
    DisposeOperation(&kept);
    return result;
  }
  if (node != nullptr) *node = added->handle;
  return SetFront(stream, &added->handle, 1);
}

CUresult RefuseUnsafe() {
  CUresult result = CUDA_SUCCESS;
  for (Capture* capture = captures; capture != nullptr; capture = capture->next) {
    if (!Forbids(*capture)) continue;
    capture->invalidated = true;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

CUresult RefuseLegacy(uint64_t context) {
  CUresult result = CUDA_SUCCESS;
  if (captures == nullptr) return result;
  stream::ForEach([&](stream::Stream* stream) {
    const bool blocking = (stream->flags & CU_STREAM_NON_BLOCKING) == 0;
    if (stream->capture == nullptr || stream->context != context || !blocking) return;
    stream->capture->invalidated = true;
    result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  });
  return result;
}

bool HasBlocking(uint64_t context) {
  bool found = false;
  if (captures == nullptr) return found;
  stream::ForEach([&](stream::Stream* stream) {
    const bool blocking = (stream->flags & CU_STREAM_NON_BLOCKING) == 0;
    found = found || (stream->capture != nullptr && stream->context == context && blocking);
  });
  return found;
}

CUresult RefuseCapturing(stream::Stream& stream) {
  if (stream.capture == nullptr) return CUDA_SUCCESS;
  if (stream.capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  stream.capture->invalidated = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult RefuseContext(uint64_t context) {
  CUresult result = CUDA_SUCCESS;
  for (Capture* capture = captures; capture != nullptr; capture = capture->next) {
    if (capture->context != context) continue;
    capture->invalidated = true;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

CUresult RefuseIsolated(stream::Stream& stream) {
  if (stream.capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  stream.capture->invalidated = true;
  return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
}

CUresult Join(stream::Stream& stream, Capture* capture, const Vec<uint64_t>& nodes) {
  if (stream.is_legacy) {
    capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  if (stream.capture != nullptr && stream.capture != capture) {
    stream.capture->invalidated = true;
    capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream.capture == nullptr) {
    stream.capture = capture;
    stream.capture_front.Clear();
  }
  for (uint64_t node : nodes) {
    bool known = false;
    for (uint64_t front : stream.capture_front) known = known || front == node;
    if (!known && !stream.capture_front.Push(node)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

Capture* Find(uint64_t id) {
  Capture* capture = captures;
  while (capture != nullptr && capture->id != id) capture = capture->next;
  return capture;
}

void Abandon(stream::Stream& stream) {
  Capture* capture = stream.capture;
  if (capture == nullptr) return;
  capture->invalidated = true;
  uint64_t ignored = 0;
  if (capture->origin == stream.handle) {
    capture->thread = pthread_self();
    End(stream, &ignored);
  } else {
    Leave(stream);
  }
}

CUresult UpdateFront(stream::Stream& stream, const uint64_t* nodes, size_t count, bool replace) {
  if (stream.capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  for (size_t i = 0; i < count; ++i) {
    const graph::Node* node = graph::FindNodeByHandle(nodes[i]);
    if (node == nullptr || node->graph != stream.capture->graph) return CUDA_ERROR_INVALID_VALUE;
  }
  if (replace) return SetFront(stream, nodes, count);
  for (size_t i = 0; i < count; ++i) {
    bool known = false;
    for (uint64_t front : stream.capture_front) known = known || front == nodes[i];
    if (!known && !stream.capture_front.Push(nodes[i])) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

CUstreamCaptureMode ExchangeThreadMode(CUstreamCaptureMode mode) {
  const CUstreamCaptureMode before = thread_mode;
  thread_mode = mode;
  return before;
}

}  // namespace capture

// What the memory family asks of streams (declared in memory.h).
namespace stream {

CUresult RefuseIfCapturing() {
  DriverLock lock;
  return capture::RefuseUnsafe();
}

CUresult CaptureAllocate(CUstream handle, bool per_thread, int device, size_t bytes,
                         CUdeviceptr* address, bool* captured) {
  DriverLock lock;
  Stream* stream = nullptr;
  CUresult result = Resolve(handle, per_thread, &stream);
  if (result == CUDA_SUCCESS && stream->capture == nullptr) {
    // Allocating elsewhere may synchronise. A refusal is the answer, as if it had been captured.
    result = capture::RefuseUnsafe();
    *captured = result != CUDA_SUCCESS;
    return result;
  }
  *captured = result == CUDA_SUCCESS;
  if (!*captured) return result;
  if (stream->capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  const context::Context* context = context::Find(AsHandle<CUcontext>(stream->context));
  if (context == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  Operation operation = MakeOperation(CU_GRAPH_NODE_TYPE_MEM_ALLOC, *context);
  operation.allocation.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  operation.allocation.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  operation.allocation.bytesize = bytes;
  result = graph::AllocateMemory(device, bytes, &operation.allocation.dptr);
  if (result != CUDA_SUCCESS) return result;
  result = capture::Record(*stream, operation);
  // The node has its own hold on the memory now, or there is no node.
  graph::ReleaseMemory(operation.allocation.dptr);
  if (result == CUDA_SUCCESS) *address = operation.allocation.dptr;
  return result;
}

CUresult CaptureFree(CUstream handle, bool per_thread, CUdeviceptr address, bool* captured) {
  DriverLock lock;
  Stream* stream = nullptr;
  const CUresult result = Resolve(handle, per_thread, &stream);
  *captured = result == CUDA_SUCCESS && stream->capture != nullptr;
  if (!*captured) return result;
  // A graph frees memory of graphs alone (H200).
  const memory::Range* range = memory::FindRange(address);
  if (range == nullptr || range->base != address || range->family != memory::Family::kGraph) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Operation operation = {};
  operation.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
  operation.context = stream->context;
  operation.freed = address;
  return capture::Record(*stream, operation);
}

}  // namespace stream

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
