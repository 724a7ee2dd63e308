// Stream capture: turning what is put into streams into graph nodes, and refusing what cannot be.
//
// Owns the captures in progress and each thread's capture mode. Must not know what operations do.
#pragma once

#include <stdint.h>

#include "cuda/graphs/graph.h"
#include "cuda/streams/launch_operation.h"
#include "cuda/streams/stream.h"

namespace sim::capture {

struct Capture {
  uint64_t id;
  uint64_t graph;
  uint64_t origin;  // handle of the stream that began it
  uint64_t context;
  pthread_t thread;
  CUstreamCaptureMode mode;
  bool invalidated;
  bool keeps_graph;  // begun into a graph of the program's
  Capture* next;
};

// Begins a capture, into a new graph or one of the program's. 401 when the stream captures already,
// 900 for the legacy stream.
CUresult Begin(stream::Stream& stream, CUstreamCaptureMode mode, graph::Graph* into);

// Ends the capture that this stream began and gives its graph, or 0 with the reason: 401 none, 901
// invalidated, 903 not the stream that began it, 904 a fork was not joined, 908 another thread's.
CUresult End(stream::Stream& stream, uint64_t* graph);

// Adds to or replaces what the next captured operation will depend on.
CUresult UpdateFront(stream::Stream& stream, const uint64_t* nodes, size_t count, bool replace);

// The calling thread's mode; returns the one before.
CUstreamCaptureMode ExchangeThreadMode(CUstreamCaptureMode mode);

// Records an operation in the stream's capture: 901 when that is invalidated, else the new node
// depends on the stream's front and becomes it.
CUresult Record(stream::Stream& stream, const Operation& operation, uint64_t* node = nullptr);

// A call that could synchronise with a captured stream and is forbidden to this thread now: 900,
// and the capture that forbids it is invalidated. CUDA_SUCCESS otherwise.
CUresult RefuseUnsafe();

// Use of the legacy stream while a blocking stream of its context is being captured: 906, and the
// capture is invalidated.
CUresult RefuseLegacy(uint64_t context);

// Whether a blocking stream of the context is being captured.
bool HasBlocking(uint64_t context);

// A call that cannot be captured on a capturing stream: 900, and the capture is invalidated.
// CUDA_SUCCESS for a stream that does not capture.
CUresult RefuseCapturing(stream::Stream& stream);
// The same for every stream of a context.
CUresult RefuseContext(uint64_t context);

// Lets `stream` join the capture of an event's nodes (902 when it is in another one).
CUresult Join(stream::Stream& stream, Capture* capture, const Vec<uint64_t>& nodes);

// A dependency on work outside the capture: 905, and the capture is invalidated.
CUresult RefuseIsolated(stream::Stream& stream);

// The capture with this id that is still going on, or null.
Capture* Find(uint64_t id);

// The stream goes: its capture, if any, can no longer be completed.
void Abandon(stream::Stream& stream);

}  // namespace sim::capture
