// link: cuda
// flags: -pthread -Wl,-z,lazy
// Facts: stream capture: what may be called meanwhile, what breaks it, and what it records.

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gpu.h"

namespace conformance {
namespace {

CUstreamCaptureStatus StatusOf(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuStreamIsCapturing(stream, &status);
  return status;
}

void Discard(CUstream stream) {
  CUgraph graph = nullptr;
  if (StatusOf(stream) == CU_STREAM_CAPTURE_STATUS_NONE) return;
  if (cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS) cuGraphDestroy(graph);
}

void Beginning(Facts& facts) {
  Stream stream;
  CUgraph graph = reinterpret_cast<CUgraph>(kPoison);
  facts.Code("begin.legacy_stream",
             cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL));
  facts.Code("begin.bad_mode",
             cuStreamBeginCapture_v2(stream.get(), static_cast<CUstreamCaptureMode>(9)));
  facts.Code("end.not_capturing", cuStreamEndCapture(stream.get(), &graph));
  facts.Is("end.refused_gives_null", graph == nullptr);
  facts.Number("status.idle", StatusOf(stream.get()));
  facts.Code("begin", cuStreamBeginCapture_v2(stream.get(), CU_STREAM_CAPTURE_MODE_GLOBAL));
  facts.Number("status.capturing", StatusOf(stream.get()));
  facts.Code("begin.again", cuStreamBeginCapture_v2(stream.get(), CU_STREAM_CAPTURE_MODE_GLOBAL));
  facts.Number("status.after_begin_again", StatusOf(stream.get()));
  Discard(stream.get());
  cuStreamBeginCapture_v2(stream.get(), CU_STREAM_CAPTURE_MODE_GLOBAL);
  facts.Code("end.empty", cuStreamEndCapture(stream.get(), &graph));
  size_t count = 77;
  cuGraphGetNodes(graph, nullptr, &count);
  facts.Number("end.empty_has_nodes", static_cast<long long>(count));
  cuGraphDestroy(graph);
  CUresult code = CUDA_SUCCESS;
  cuStreamBeginCapture_v2(stream.get(), CU_STREAM_CAPTURE_MODE_GLOBAL);
  std::thread([&] { code = cuStreamEndCapture(stream.get(), &graph); }).join();
  facts.Code("end.on_another_thread", code);
  facts.Number("status.after_end_on_another_thread", StatusOf(stream.get()));
  Discard(stream.get());
}

// One call during a capture: its code, and what became of the capture.
void During(Facts& facts, const std::string& name, CUstreamCaptureMode mode,
            const std::function<CUresult(CUstream)>& call) {
  Stream stream;
  cuStreamBeginCapture_v2(stream.get(), mode);
  facts.Code("during." + name, call(stream.get()));
  facts.Number("during." + name + ".status", StatusOf(stream.get()));
  CUgraph graph = nullptr;
  facts.Code("during." + name + ".end", cuStreamEndCapture(stream.get(), &graph));
  if (graph != nullptr) cuGraphDestroy(graph);
}

// What calls during a capture need around them.
struct Around {
  explicit Around(const Kernels& loaded) : kernels(loaded) {}

  Kernels kernels;
  Event event;
  Stream other;
  CUdeviceptr existing = 0;
  CUdeviceptr memory = 0;
  size_t bytes = 0;
  void* host = nullptr;
  CUmodule module = nullptr;
  unsigned char pageable[64] = {};

  CUresult Drop(CUresult code) const {
    if (code == CUDA_SUCCESS) cuMemFree_v2(memory);
    return code;
  }
};

struct Call {
  const char* name;
  std::function<CUresult(CUstream)> call;
  bool also_relaxed = false;
};

std::vector<Call> MemoryCalls(Around& o) {
  return {
      {"cuMemAlloc", [&](CUstream) { return o.Drop(cuMemAlloc_v2(&o.memory, kMib)); }, true},
      {"cuMemFree", [&](CUstream) { return cuMemFree_v2(0); }},
      {"cuMemAllocPitch",
       [&](CUstream) { return o.Drop(cuMemAllocPitch_v2(&o.memory, &o.bytes, 64, 4, 4)); }},
      {"cuMemAllocManaged",
       [&](CUstream) { return o.Drop(cuMemAllocManaged(&o.memory, kMib, CU_MEM_ATTACH_GLOBAL)); }},
      {"cuMemHostAlloc", [&](CUstream) { return cuMemHostAlloc(&o.host, 4096, 0); }},
      {"cuMemGetInfo", [&](CUstream) { return cuMemGetInfo_v2(&o.bytes, &o.bytes); }},
      {"cuMemcpyHtoD", [&](CUstream) { return cuMemcpyHtoD_v2(o.existing, o.pageable, 64); }},
      {"cuMemsetD8", [&](CUstream) { return cuMemsetD8_v2(o.existing, 0, 64); }},
      {"cuMemAllocAsync on another",
       [&](CUstream) { return cuMemAllocAsync(&o.memory, kMib, o.other.get()); }},
      {"cuMemAllocAsync on null",
       [&](CUstream) { return cuMemAllocAsync(&o.memory, kMib, nullptr); }},
      {"cuModuleLoadData", [&](CUstream) { return cuModuleLoadData(&o.module, kKernels); }},
  };
}

std::vector<Call> OrderCalls(Around& o) {
  return {
      {"cuCtxSynchronize", [](CUstream) { return cuCtxSynchronize(); }, true},
      {"cuStreamSynchronize of it", [](CUstream s) { return cuStreamSynchronize(s); }},
      {"cuStreamSynchronize of another",
       [&](CUstream) { return cuStreamSynchronize(o.other.get()); }},
      {"cuStreamQuery of it", [](CUstream s) { return cuStreamQuery(s); }},
      {"cuStreamQuery of null", [](CUstream) { return cuStreamQuery(nullptr); }},
      {"cuEventQuery of another", [&](CUstream) { return cuEventQuery(o.event.get()); }},
      {"cuEventSynchronize of another",
       [&](CUstream) { return cuEventSynchronize(o.event.get()); }},
      {"cuLaunchKernel on legacy", [&](CUstream) { return LaunchEmpty(o.kernels, nullptr); }, true},
      {"cuLaunchKernel on another",
       [&](CUstream) { return LaunchEmpty(o.kernels, o.other.get()); }},
      {"cuStreamAddCallback",
       [](CUstream s) {
         return cuStreamAddCallback(s, [](CUstream, CUresult, void*) {}, nullptr, 0);
       }},
      {"cuStreamWaitEvent outside",
       [&](CUstream s) { return cuStreamWaitEvent(s, o.event.get(), 0); }},
      {"cuCtxGetCurrent",
       [](CUstream) {
         CUcontext context = nullptr;
         return cuCtxGetCurrent(&context);
       }},
  };
}

void Forbidden(Facts& facts, const Kernels& kernels) {
  Around around(kernels);
  cuMemAlloc_v2(&around.existing, kMib);
  cuEventRecord(around.event.get(), around.other.get());
  cuCtxSynchronize();
  for (const auto& calls : {MemoryCalls(around), OrderCalls(around)}) {
    for (const Call& one : calls) {
      During(facts, std::string("global.") + one.name, CU_STREAM_CAPTURE_MODE_GLOBAL, one.call);
      cuCtxSynchronize();
      if (!one.also_relaxed) continue;
      During(facts, std::string("relaxed.") + one.name, CU_STREAM_CAPTURE_MODE_RELAXED, one.call);
      cuCtxSynchronize();
    }
  }
  cuMemFree_v2(around.existing);
}

// What other threads may do depends on the mode.
void OtherThreads(Facts& facts) {
  for (const auto mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                          CU_STREAM_CAPTURE_MODE_RELAXED}) {
    During(facts, "another_thread_allocates.mode_" + std::to_string(mode), mode, [](CUstream) {
      CUcontext context = nullptr;
      CUresult code = CUDA_SUCCESS;
      cuCtxGetCurrent(&context);
      std::thread([&] {
        CUdeviceptr memory = 0;
        cuCtxSetCurrent(context);
        code = cuMemAlloc_v2(&memory, kMib);
        if (code == CUDA_SUCCESS) cuMemFree_v2(memory);
      }).join();
      return code;
    });
  }
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  facts.Code("exchange_mode", cuThreadExchangeStreamCaptureMode(&mode));
  facts.Number("exchange_mode.was", mode);
  During(facts, "global.cuMemAlloc_in_relaxed_thread", CU_STREAM_CAPTURE_MODE_GLOBAL, [](CUstream) {
    CUdeviceptr memory = 0;
    const CUresult code = cuMemAlloc_v2(&memory, kMib);
    if (code == CUDA_SUCCESS) cuMemFree_v2(memory);
    return code;
  });
  cuThreadExchangeStreamCaptureMode(&mode);
}

// Records a kernel on `first`, forks `second` off it and records another there.
void Fork(const Kernels& kernels, const Event& fork, CUstream first, CUstream second) {
  cuStreamBeginCapture_v2(first, CU_STREAM_CAPTURE_MODE_GLOBAL);
  LaunchEmpty(kernels, first);
  cuEventRecord(fork.get(), first);
  cuStreamWaitEvent(second, fork.get(), 0);
  LaunchEmpty(kernels, second);
}

void WrongForks(Facts& facts, const Kernels& kernels) {
  Stream first;
  Stream second;
  Event fork;
  CUgraph graph = nullptr;
  cuStreamBeginCapture_v2(first.get(), CU_STREAM_CAPTURE_MODE_GLOBAL);
  LaunchEmpty(kernels, first.get());
  facts.Code("fork.record", cuEventRecord(fork.get(), first.get()));
  facts.Code("fork.query_captured_event", cuEventQuery(fork.get()));
  facts.Number("fork.status_after_query", StatusOf(first.get()));
  Discard(first.get());

  Fork(kernels, fork, first.get(), second.get());
  facts.Number("fork.second_status", StatusOf(second.get()));
  facts.Code("fork.end_unjoined", cuStreamEndCapture(first.get(), &graph));
  facts.Number("fork.second_status_afterwards", StatusOf(second.get()));
  Discard(second.get());

  Fork(kernels, fork, first.get(), second.get());
  facts.Code("fork.end_by_second", cuStreamEndCapture(second.get(), &graph));
  Discard(first.get());
}

void Joined(Facts& facts, const Kernels& kernels) {
  Stream first;
  Stream second;
  Event fork;
  Event join;
  CUgraph graph = nullptr;
  Fork(kernels, fork, first.get(), second.get());
  cuEventRecord(join.get(), second.get());
  facts.Code("join.wait", cuStreamWaitEvent(first.get(), join.get(), 0));
  facts.Code("join.end", cuStreamEndCapture(first.get(), &graph));
  size_t nodes = 0;
  size_t roots = 0;
  size_t edges = 0;
  cuGraphGetNodes(graph, nullptr, &nodes);
  cuGraphGetRootNodes(graph, nullptr, &roots);
  cuGraphGetEdges(graph, nullptr, nullptr, &edges);
  facts.Number("join.nodes", static_cast<long long>(nodes));
  facts.Number("join.roots", static_cast<long long>(roots));
  facts.Number("join.edges", static_cast<long long>(edges));
  CUgraphNode listed[8] = {};
  std::fill(listed, listed + 8, reinterpret_cast<CUgraphNode>(1));
  size_t one = 1;
  facts.Code("join.list_of_one", cuGraphGetNodes(graph, listed, &one));
  facts.Number("join.listed_where_one_fits", static_cast<long long>(one));
  facts.Is("join.list_of_one_ends_there", listed[1] == reinterpret_cast<CUgraphNode>(1));
  size_t eight = 8;
  facts.Code("join.list_of_eight", cuGraphGetNodes(graph, listed, &eight));
  facts.Number("join.listed_where_eight_fit", static_cast<long long>(eight));
  facts.Is("join.list_is_null_behind_the_last", listed[nodes] == nullptr);
  cuGraphDestroy(graph);
}

// Everything that capture records, as node types in the order of recording.
void Recorded(Facts& facts, const Kernels& kernels) {
  Stream stream;
  CUdeviceptr memory = 0;
  CUdeviceptr captured = 0;
  unsigned char host[64] = {};
  cuMemAlloc_v2(&memory, kMib);
  cuStreamBeginCapture_v2(stream.get(), CU_STREAM_CAPTURE_MODE_GLOBAL);
  LaunchEmpty(kernels, stream.get());
  cuMemsetD8Async(memory, 0, 64, stream.get());
  cuMemcpyHtoDAsync_v2(memory, host, 64, stream.get());
  cuLaunchHostFunc(stream.get(), [](void*) {}, nullptr);
  facts.Code("recorded.cuMemAllocAsync", cuMemAllocAsync(&captured, kMib, stream.get()));
  facts.Is("recorded.cuMemAllocAsync_gives_address", captured != 0);
  facts.Code("recorded.cuMemFreeAsync", cuMemFreeAsync(captured, stream.get()));
  CUgraph graph = nullptr;
  facts.Code("recorded.end", cuStreamEndCapture(stream.get(), &graph));
  CUgraphNode nodes[16] = {};
  size_t count = 16;
  cuGraphGetNodes(graph, nodes, &count);
  std::string types;
  for (size_t i = 0; i < count && i < 16; ++i) {
    CUgraphNodeType type{};
    cuGraphNodeGetType(nodes[i], &type);
    types += (i == 0 ? "" : " ") + std::to_string(static_cast<int>(type));
  }
  facts.Text("recorded.types", types);
  CUgraphExec exec = nullptr;
  facts.Code("recorded.instantiate", cuGraphInstantiateWithFlags(&exec, graph, 0));
  facts.Code("recorded.launch", cuGraphLaunch(exec, stream.get()));
  facts.Code("recorded.synchronize", cuStreamSynchronize(stream.get()));
  facts.Code("recorded.address_is_not_plain_memory", cuMemFree_v2(captured));
  cuGraphExecDestroy(exec);
  cuGraphDestroy(graph);
  cuMemFree_v2(memory);
}

}  // namespace
}  // namespace conformance

int main() {
  using namespace conformance;
  Facts facts("graphs_capture");
  UsePrimary(FirstDevice(facts));
  const Kernels kernels = LoadKernels();
  LaunchEmpty(kernels, nullptr);
  cuCtxSynchronize();
  Beginning(facts);
  Forbidden(facts, kernels);
  OtherThreads(facts);
  WrongForks(facts, kernels);
  Joined(facts, kernels);
  Recorded(facts, kernels);
  return 0;
}
