// Functions of the program in a stream's order. Must not know when they run.
#include "cuda/graphs/capture.h"
#include "cuda/streams/stream.h"

namespace sim {

namespace {

CUresult IssueHost(CUstream handle, bool per_thread, const HostCall& call) {
  if (call.function == nullptr && call.callback == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TimelineLock lock;
  stream::Stream* stream = nullptr;
  CUresult result = stream::Resolve(handle, per_thread, &stream);
  // Callbacks are told the stream's status, which a graph does not have.
  if (result == CUDA_SUCCESS && call.callback != nullptr)
    result = capture::RefuseCapturing(*stream);
  if (result != CUDA_SUCCESS) return result;
  const context::Context* context = context::Find(AsHandle<CUcontext>(stream->context));
  if (context == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  Operation operation = MakeOperation(CU_GRAPH_NODE_TYPE_HOST, *context);
  operation.host = call;
  return stream::Issue(lock, handle, per_thread, operation);
}

CUresult LaunchHost(bool per_thread, CUstream stream, CUhostFn function, void* argument) {
  return IssueHost(stream, per_thread, {function, nullptr, stream, argument});
}

// How the waiting for the function is done (blocking or spinning) makes no difference here.
CUresult LaunchHostWithMode(bool per_thread, CUstream stream, CUhostFn function, void* argument,
                            unsigned) {
  return LaunchHost(per_thread, stream, function, argument);
}

CUresult AddCallback(bool per_thread, CUstream stream, CUstreamCallback callback, void* argument,
                     unsigned flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return IssueHost(stream, per_thread, {nullptr, callback, stream, argument});
}

}  // namespace

}  // namespace sim

// The exports are global, everything that they use is in sim.
using namespace sim;

SIM_TWINS(cuLaunchHostFunc, LaunchHost, (CUstream hStream, CUhostFn fn, void* userData), hStream,
          fn, userData);
SIM_TWINS(cuLaunchHostFunc_v2, LaunchHostWithMode,
          (CUstream hStream, CUhostFn fn, void* userData, unsigned int syncMode), hStream, fn,
          userData, syncMode);
SIM_TWINS(cuStreamAddCallback, AddCallback,
          (CUstream hStream, CUstreamCallback callback, void* userData, unsigned int flags),
          hStream, callback, userData, flags);
