// The exports that make, ask, wait for and end streams, and that put functions of the program into
// their order. Must not know what operations do, nor when.
#include "cuda/graphs/capture.h"
#include "cuda/memory/memory.h"
#include "cuda/streams/event.h"
#include "cuda/streams/stream.h"
#include "machine/config.h"
#include "machine/machine.h"

namespace sim {

bool stream::IsInHostFunction() { return TimelineLock::in_host_function(); }

namespace {

using stream::Stream;

// What a context holds for the streams that live in it, as measured on an H200 up to 250 of them:
// two sums that grow in granules.
uint64_t ChannelBytes(uint64_t streams) {
  const uint64_t bytes = GetConfig()->stream_bytes;
  if (bytes == 0) return 0;
  constexpr uint64_t kGranule = machine::kGranuleBytes;
  constexpr uint64_t kKiB = 1024;
  return (streams * bytes + kGranule / 2) / kGranule * kGranule +
         (streams * 48 * kKiB + 320 * kKiB) / kGranule * kGranule;
}

// Kept when streams end, until the context does.
bool MakeChannel(context::Context* context) {
  const uint64_t needed = ChannelBytes(context->streams + 1);
  if (needed > context->channel_bytes) {
    if (!memory::ChargeHidden(context->device, needed - context->channel_bytes)) return false;
    context->channel_bytes = needed;
  }
  ++context->streams;
  return true;
}

CUresult CreateIn(context::Context* context, CUstream* out, unsigned flags, int priority) {
  uint64_t handle = 0;
  Stream* stream = stream::Streams().Create(&handle);
  if (stream == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!MakeChannel(context)) {
    stream::Streams().Destroy(handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  stream->handle = handle;
  stream->has_channel = true;
  stream->context = context->handle;
  stream->device = context->device;
  stream->flags = flags;
  // Out of range is clamped, not refused.
  stream->priority = priority > 0 ? 0 : priority;
  if (stream->priority < stream::kGreatestPriority) stream->priority = stream::kGreatestPriority;
  stream->id = stream::NextId();
  *out = AsHandle<CUstream>(handle);
  return CUDA_SUCCESS;
}

CUresult CreateStream(CUstream* out, unsigned flags, int priority) {
  if (out == nullptr || (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  DriverLock lock;
  context::Context* context = nullptr;
  const CUresult result = context::Current(&context);
  return result != CUDA_SUCCESS ? result : CreateIn(context, out, flags, priority);
}

// The context that stands for a green context; null when that is none.
context::Context* ViewOf(CUgreenCtx green) {
  struct Search {
    uint64_t green;
    context::Context* found;
  } search = {HandleValue(green), nullptr};
  context::ForEach(
      [](context::Context* context, void* argument) {
        auto* wanted = static_cast<Search*>(argument);
        if (wanted->green != 0 && context->green == wanted->green) wanted->found = context;
      },
      &search);
  return search.found;
}

CUresult DestroyStream(CUstream handle) {
  if (HandleValue(handle) <= 2) return CUDA_ERROR_INVALID_HANDLE;
  TimelineLock lock;
  Stream* stream = nullptr;
  const CUresult result = stream::Resolve(handle, false, &stream);
  if (result != CUDA_SUCCESS) return result;
  stream::Forget(lock, *stream);
  return CUDA_SUCCESS;
}

CUresult QueryStream(bool per_thread, CUstream handle) {
  TimelineLock lock;
  stream::AwaitRoom(lock, handle, per_thread);
  Stream* stream = nullptr;
  CUresult result = stream::Resolve(handle, per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  result = capture::RefuseCapturing(*stream);
  if (result == CUDA_SUCCESS && stream->is_legacy) result = capture::RefuseLegacy(stream->context);
  if (result == CUDA_SUCCESS) result = capture::RefuseUnsafe();
  if (result != CUDA_SUCCESS) return result;
  Work* end = stream::AskedEndOf(lock, *stream);
  if (end == nullptr) return CUDA_SUCCESS;
  const bool done = end->state == WorkState::kDone;
  ReleaseWork(end);
  if (!done) lock.NoteUnfinished();
  return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult SynchronizeStream(bool per_thread, CUstream handle) {
  TimelineLock lock;
  Stream* stream = nullptr;
  CUresult result = stream::Resolve(handle, per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  result = capture::RefuseCapturing(*stream);
  if (result == CUDA_SUCCESS && stream->is_legacy) result = capture::RefuseLegacy(stream->context);
  if (result == CUDA_SUCCESS) result = capture::RefuseUnsafe();
  if (result != CUDA_SUCCESS) return result;
  const int device = stream->device;
  Work* end = stream::AskedEndOf(lock, *stream);
  lock.Wait(end);
  ReleaseWork(end);
  memory::AfterSynchronize(device);
  return CUDA_SUCCESS;
}

CUresult SynchronizeContext(TimelineLock& lock, const context::Context& context) {
  const CUresult result = capture::RefuseContext(context.handle);
  if (result != CUDA_SUCCESS) return result;
  const int device = context.device;
  Work* end = stream::EndOfContext(lock, context.handle);
  lock.Wait(end);
  ReleaseWork(end);
  memory::AfterSynchronize(device);
  return CUDA_SUCCESS;
}

enum class InCapture : bool { kAllowed, kRefused };  // refused: the capture ends by it as well

// Reads one field of a stream; `read` gets the resolved stream.
template <typename Value, typename Read>
CUresult Ask(bool per_thread, CUstream handle, Value* out, Read read,
             InCapture in_capture = InCapture::kAllowed) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  Stream* stream = nullptr;
  CUresult result = stream::Resolve(handle, per_thread, &stream);
  if (result == CUDA_SUCCESS && in_capture == InCapture::kRefused) {
    result = capture::RefuseCapturing(*stream);
  }
  if (result == CUDA_SUCCESS) *out = read(*stream);
  return result;
}

CUresult GetPriority(bool per_thread, CUstream handle, int* priority) {
  return Ask(per_thread, handle, priority, [](const Stream& stream) { return stream.priority; });
}

// These two are refused in every mode of a capture (H200).
CUresult GetFlags(bool per_thread, CUstream handle, unsigned* flags) {
  return Ask(
      per_thread, handle, flags, [](const Stream& stream) { return stream.flags; },
      InCapture::kRefused);
}

CUresult GetId(bool per_thread, CUstream handle, unsigned long long* id) {
  return Ask(
      per_thread, handle, id, [](const Stream& stream) { return stream.id; }, InCapture::kRefused);
}

CUresult GetDevice(bool per_thread, CUstream handle, CUdevice* device) {
  return Ask(per_thread, handle, device, [](const Stream& stream) { return stream.device; });
}

CUresult GetContext(bool per_thread, CUstream handle, CUcontext* context) {
  return Ask(per_thread, handle, context,
             [](const Stream& stream) { return AsHandle<CUcontext>(stream.context); });
}

// A stream of a green context reports that one, and the context it stands for.
CUresult GetContexts(bool per_thread, CUstream handle, CUcontext* context, CUgreenCtx* green) {
  const CUresult result = GetContext(per_thread, handle, context);
  if (result != CUDA_SUCCESS || green == nullptr) return result;
  DriverLock lock;
  const context::Context* found = context::Find(*context);
  *green = AsHandle<CUgreenCtx>(found != nullptr ? found->green : 0);
  return CUDA_SUCCESS;
}

CUresult AttachMemory(bool per_thread, CUstream handle, CUdeviceptr address, size_t, unsigned) {
  DriverLock lock;
  Stream* stream = nullptr;
  const CUresult result = stream::Resolve(handle, per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  const memory::Range* range = memory::FindRange(address);
  const bool managed = range != nullptr && range->family == memory::Family::kManaged;
  return managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Attributes have no effect on simulated time; they are accepted and read back as zero, except for
// the one that also has a getter of its own.
CUresult GetAttribute(bool per_thread, CUstream handle, CUlaunchAttributeID attribute,
                      CUlaunchAttributeValue* value) {
  return Ask(per_thread, handle, value, [&](const Stream& stream) {
    CUlaunchAttributeValue answer = {};
    if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY) answer.priority = stream.priority;
    return answer;
  });
}

CUresult SetAttribute(bool per_thread, CUstream handle, CUlaunchAttributeID,
                      const CUlaunchAttributeValue* value) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  Stream* stream = nullptr;
  return stream::Resolve(handle, per_thread, &stream);
}

CUresult CopyAttributes(bool per_thread, CUstream to, CUstream from) {
  DriverLock lock;
  Stream* stream = nullptr;
  const CUresult result = stream::Resolve(to, per_thread, &stream);
  return result != CUDA_SUCCESS ? result : stream::Resolve(from, per_thread, &stream);
}

}  // namespace

}  // namespace sim

// The exports are global, everything that they use is in sim.
using namespace sim;

extern "C" CUresult cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  SIM_CALL(cuStreamCreate, phStream, Flags);
  return CreateStream(phStream, Flags, 0);
}

extern "C" CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags,
                                               int priority) {
  SIM_CALL(cuStreamCreateWithPriority, phStream, flags, priority);
  return CreateStream(phStream, flags, priority);
}

extern "C" CUresult cuStreamDestroy(CUstream hStream) {
  SIM_CALL(cuStreamDestroy, hStream);
  return DestroyStream(hStream);
}

extern "C" CUresult cuStreamDestroy_v2(CUstream hStream) {
  SIM_CALL(cuStreamDestroy_v2, hStream);
  return DestroyStream(hStream);
}

extern "C" CUresult cuCtxSynchronize() {
  SIM_CALL(cuCtxSynchronize);
  TimelineLock lock;
  context::Context* context = nullptr;
  const CUresult result = context::Current(&context);
  return result != CUDA_SUCCESS ? result : SynchronizeContext(lock, *context);
}

extern "C" CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  SIM_CALL(cuCtxSynchronize_v2, ctx);
  TimelineLock lock;
  const context::Context* context = context::Find(ctx);
  return context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : SynchronizeContext(lock, *context);
}

SIM_TWINS(cuStreamQuery, QueryStream, (CUstream hStream), hStream);
SIM_TWINS(cuStreamSynchronize, SynchronizeStream, (CUstream hStream), hStream);
SIM_TWINS(cuStreamGetPriority, GetPriority, (CUstream hStream, int* priority), hStream, priority);
SIM_TWINS(cuStreamGetFlags, GetFlags, (CUstream hStream, unsigned int* flags), hStream, flags);
SIM_TWINS(cuStreamGetId, GetId, (CUstream hStream, unsigned long long* streamId), hStream,
          streamId);
SIM_TWINS(cuStreamGetDevice, GetDevice, (CUstream hStream, CUdevice* device), hStream, device);
SIM_TWINS(cuStreamGetCtx, GetContext, (CUstream hStream, CUcontext* pctx), hStream, pctx);
SIM_TWINS(cuStreamGetCtx_v2, GetContexts,
          (CUstream hStream, CUcontext* pCtx, CUgreenCtx* pGreenCtx), hStream, pCtx, pGreenCtx);
SIM_TWINS(cuStreamAttachMemAsync, AttachMemory,
          (CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags), hStream, dptr,
          length, flags);
SIM_TWINS(cuStreamGetAttribute, GetAttribute,
          (CUstream hStream, CUlaunchAttributeID attr, CUlaunchAttributeValue* value_out), hStream,
          attr, value_out);
SIM_TWINS(cuStreamSetAttribute, SetAttribute,
          (CUstream hStream, CUlaunchAttributeID attr, const CUlaunchAttributeValue* value),
          hStream, attr, value);
SIM_TWINS(cuStreamCopyAttributes, CopyAttributes, (CUstream dst, CUstream src), dst, src);

extern "C" CUresult cuGreenCtxStreamCreate(CUstream* phStream, CUgreenCtx greenCtx,
                                           unsigned int flags, int priority) {
  SIM_CALL(cuGreenCtxStreamCreate, phStream, greenCtx, flags, priority);
  // Streams of green contexts do not take part in the legacy stream's rule.
  if (phStream == nullptr || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  context::Context* view = ViewOf(greenCtx);
  if (view == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return CreateIn(view, phStream, flags, priority);
}

extern "C" CUresult cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent) {
  SIM_CALL(cuGreenCtxRecordEvent, hCtx, hEvent);
  DriverLock lock;
  const context::Context* view = ViewOf(hCtx);
  if (view == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return event::RecordContext(AsHandle<CUcontext>(view->handle), hEvent);
}

extern "C" CUresult cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent) {
  SIM_CALL(cuGreenCtxWaitEvent, hCtx, hEvent);
  DriverLock lock;
  const context::Context* view = ViewOf(hCtx);
  if (view == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return event::AwaitInContext(AsHandle<CUcontext>(view->handle), hEvent);
}

extern "C" CUresult cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx* phCtx) {
  SIM_CALL(cuStreamGetGreenCtx, hStream, phCtx);
  CUcontext context = nullptr;
  return phCtx == nullptr ? CUDA_ERROR_INVALID_VALUE : GetContexts(false, hStream, &context, phCtx);
}

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
