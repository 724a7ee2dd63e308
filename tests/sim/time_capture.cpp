// Stream capture: what it records, how streams fork and join, and what it forbids.
// link: cuda
// flags: -pthread
#include <pthread.h>

#include "support/time_program.h"

using namespace timing;

namespace {

CUstream BeginCapture(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL,
                      unsigned flags = CU_STREAM_NON_BLOCKING) {
  CUstream stream = NewStream(flags);
  MUST(cuStreamBeginCapture_v2(stream, mode));
  return stream;
}

CUresult EndCapture(CUstream stream, CUgraph* graph = nullptr) {
  CUgraph ignored = nullptr;
  return cuStreamEndCapture(stream, graph != nullptr ? graph : &ignored);
}

double NodeCount(CUgraph graph) {
  size_t count = 0;
  MUST(cuGraphGetNodes(graph, nullptr, &count));
  return static_cast<double>(count);
}

void ForkAndJoin(const Gpu& gpu, Facts& facts) {
  CUstream stream = BeginCapture();
  CUstream other = NewStream();
  MUST(gpu.Spin(stream, 100 * kUs));
  CUevent fork = NewEvent();
  CUevent join = NewEvent();
  MUST(cuEventRecord(fork, stream));
  MUST(cuStreamWaitEvent(other, fork, 0));
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  MUST(cuStreamIsCapturing(other, &status));
  facts.Say("forked stream captures", static_cast<double>(status));
  MUST(gpu.Spin(other, 400 * kUs));
  MUST(gpu.Spin(stream, 300 * kUs));
  MUST(cuEventRecord(join, other));
  MUST(cuStreamWaitEvent(stream, join, 0));
  MUST(gpu.Spin(stream, 100 * kUs));
  CUgraph graph = nullptr;
  facts.Code("end", EndCapture(stream, &graph));
  facts.Say("captured nodes", NodeCount(graph));
  MUST(cuStreamIsCapturing(other, &status));
  facts.Say("forked stream after the end", static_cast<double>(status));
  CUgraphExec executable = nullptr;
  MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
  CUstream run = NewStream();
  MUST(gpu.Spin(run, 5 * kMs));
  CUevent start = Mark(run);
  MUST(cuGraphLaunch(executable, run));
  facts.Say("fork and join", ElapsedUs(start, Mark(run)));
}

void Unjoined(const Gpu& gpu, Facts& facts) {
  CUstream stream = BeginCapture();
  CUstream other = NewStream();
  CUevent fork = NewEvent();
  MUST(gpu.Spin(stream, kUs));
  MUST(cuEventRecord(fork, stream));
  MUST(cuStreamWaitEvent(other, fork, 0));
  MUST(gpu.Spin(other, kUs));
  facts.Code("unjoined", EndCapture(stream));
  facts.Code("event of an ended capture", cuStreamWaitEvent(other, fork, 0));

  stream = BeginCapture();
  MUST(cuEventRecord(fork, stream));
  MUST(cuStreamWaitEvent(other, fork, 0));
  facts.Code("end in the forked stream", EndCapture(other));
  facts.Code("end after that attempt", EndCapture(stream));
}

// Each of these is refused and spoils the capture.
void Forbidden(const Gpu& gpu, Facts& facts) {
  CUstream stream = BeginCapture();
  facts.Code("synchronise", cuStreamSynchronize(stream));
  facts.Code("launch afterwards", gpu.Spin(stream, kUs));
  facts.Code("end after synchronise", EndCapture(stream));
  facts.Code("the stream again", gpu.Spin(stream, kUs));

  CUevent captured = NewEvent();
  stream = BeginCapture();
  MUST(cuEventRecord(captured, stream));
  facts.Code("query of a captured event", cuEventQuery(captured));
  facts.Code("end after that query", EndCapture(stream));

  stream = BeginCapture();
  facts.Code("query", cuStreamQuery(stream));
  facts.Code("end after query", EndCapture(stream));

  stream = BeginCapture();
  facts.Code("synchronise the context", cuCtxSynchronize());
  facts.Code("end after that", EndCapture(stream));

  stream = BeginCapture(CU_STREAM_CAPTURE_MODE_GLOBAL, 0);
  facts.Code("legacy launch beside a blocking stream", gpu.Spin(nullptr, kUs));
  facts.Code("end after legacy", EndCapture(stream));
  stream = BeginCapture();
  facts.Code("legacy launch beside a non-blocking one", gpu.Spin(nullptr, kUs));
  facts.Code("end after harmless legacy", EndCapture(stream));

  facts.Code("capture the legacy stream",
             cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL));
  stream = BeginCapture();
  facts.Code("begin twice", cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUevent outside = NewEvent();
  MUST(cuEventRecord(outside, NewStream()));
  facts.Code("wait for outside", cuStreamWaitEvent(stream, outside, 0));
  facts.Code("end after outside", EndCapture(stream));
  facts.Code("end without begin", EndCapture(stream));
}

void Merge(const Gpu& gpu, Facts& facts) {
  CUstream left = BeginCapture();
  CUstream right = BeginCapture();
  CUevent event = NewEvent();
  MUST(gpu.Spin(left, kUs));
  MUST(cuEventRecord(event, left));
  facts.Code("merge two captures", cuStreamWaitEvent(right, event, 0));
  facts.Code("left after merge", EndCapture(left));
  facts.Code("right after merge", EndCapture(right));
}

// What a call that might synchronise is answered, by the capture's and the thread's mode.
CUresult Unsafe(CUstreamCaptureMode capture, CUstreamCaptureMode thread) {
  CUevent event = NewEvent();
  CUstream stream = BeginCapture(capture);
  MUST(cuThreadExchangeStreamCaptureMode(&thread));
  const CUresult result = cuEventQuery(event);
  MUST(cuThreadExchangeStreamCaptureMode(&thread));
  EndCapture(stream);
  return result;
}

struct Other {
  CUcontext context;
  CUevent event;
  CUstream stream;
  CUresult query;
  CUresult end;
};

void* QueryElsewhere(void* argument) {
  auto* other = static_cast<Other*>(argument);
  MUST(cuCtxSetCurrent(other->context));
  other->query = cuEventQuery(other->event);
  other->end = EndCapture(other->stream);
  return nullptr;
}

Other FromAnotherThread(const Gpu& gpu, CUstreamCaptureMode mode) {
  Other other = {gpu.context, NewEvent(), BeginCapture(mode), CUDA_SUCCESS, CUDA_SUCCESS};
  pthread_t thread;
  pthread_create(&thread, nullptr, QueryElsewhere, &other);
  pthread_join(thread, nullptr);
  EndCapture(other.stream);
  return other;
}

void Modes(const Gpu& gpu, Facts& facts) {
  facts.Code("own global capture",
             Unsafe(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL));
  facts.Code("own relaxed capture",
             Unsafe(CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_GLOBAL));
  facts.Code("relaxed thread",
             Unsafe(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED));
  const Other global = FromAnotherThread(gpu, CU_STREAM_CAPTURE_MODE_GLOBAL);
  facts.Code("another thread's global capture", global.query);
  facts.Code("end of a spoilt one by another thread", global.end);
  const Other local = FromAnotherThread(gpu, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  facts.Code("another thread's local capture", local.query);
  facts.Code("end by another thread", local.end);
}

// Copies, fills and stream-ordered memory become nodes; nothing happens before the launch.
void Everything(const Gpu& gpu, Facts& facts) {
  unsigned host = 0;
  CUdeviceptr kept = 0;
  MUST(cuMemAlloc_v2(&kept, 4));
  CUstream stream = BeginCapture(CU_STREAM_CAPTURE_MODE_RELAXED);
  CUdeviceptr scratch = 0;
  MUST(cuMemAllocAsync(&scratch, 1 << 20, stream));
  MUST(cuMemsetD32Async(scratch, 77, 1, stream));
  MUST(cuMemcpyDtoDAsync_v2(kept, scratch, 4, stream));
  MUST(cuMemFreeAsync(scratch, stream));
  MUST(cuMemcpyDtoHAsync_v2(&host, kept, 4, stream));
  CUgraph graph = nullptr;
  MUST(EndCapture(stream, &graph));
  facts.Say("nodes of everything", NodeCount(graph));
  CUgraphNode nodes[8] = {};
  size_t count = 8;
  MUST(cuGraphGetNodes(graph, nodes, &count));
  CUgraphNodeType first = CU_GRAPH_NODE_TYPE_EMPTY;
  MUST(cuGraphNodeGetType(nodes[0], &first));
  facts.Say("first node", static_cast<double>(first));
  facts.Say("before the launch", host);
  CUgraphExec executable = nullptr;
  MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
  MUST(cuGraphLaunch(executable, nullptr));
  MUST(cuGraphLaunch(executable, nullptr));
  MUST(cuCtxSynchronize());
  facts.Say("after the launch", host);
  (void)gpu;
}

}  // namespace

int main() {
  const Gpu gpu;
  Facts facts;
  ForkAndJoin(gpu, facts);
  Unjoined(gpu, facts);
  Forbidden(gpu, facts);
  Merge(gpu, facts);
  Modes(gpu, facts);
  Everything(gpu, facts);
  return 0;
}
