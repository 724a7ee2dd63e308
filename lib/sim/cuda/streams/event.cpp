// Events, in this process. Must not know what leads up to them.
#include "cuda/streams/event.h"

#include "cuda/graphs/capture.h"
#include "cuda/memory/memory.h"
#include "cuda/streams/stream.h"
#include "machine/config.h"
#include "machine/objects.h"

namespace sim {

namespace event {

namespace {

constinit Table<Event, Kind::kEvent> events;

constexpr unsigned kKnownFlags =
    CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

void Dispose(Event& event) {
  ReleaseWork(event.record);
  event.capture_nodes.Free();
  CloseShared(event);
  events.Destroy(event.handle);
}

CUresult FindOrRefuse(CUevent handle, Event** found) {
  *found = events.Find(handle);
  return *found != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

bool IsCaptured(const Event& event) { return event.capture_id != 0; }

bool IsDone(const Event& event) {
  if (event.imported) return IsSharedDone(event);
  return event.record == nullptr || event.record->state == WorkState::kDone;
}

// While a stream captures, an event stands for the nodes that its stream has come to.
CUresult RecordCaptured(stream::Stream& stream, Event& event, bool external) {
  if (external) {
    Operation operation = {};
    operation.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    operation.context = stream.context;
    operation.event = event.handle;
    return capture::Record(stream, operation);
  }
  if (stream.capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  event.capture_id = stream.capture->id;
  event.capture_nodes.Clear();
  for (uint64_t node : stream.capture_front) event.capture_nodes.Push(node);
  return CUDA_SUCCESS;
}

CUresult PutRecord(bool per_thread, CUevent event_handle, CUstream handle, unsigned flags) {
  TimelineLock lock;
  Event* event = nullptr;
  CUresult result = FindOrRefuse(event_handle, &event);
  if (result != CUDA_SUCCESS) return result;
  stream::Stream* stream = nullptr;
  result = stream::Resolve(handle, per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (stream->device != event->device) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture != nullptr) {
    return RecordCaptured(*stream, *event, (flags & CU_EVENT_RECORD_EXTERNAL) != 0);
  }
  Operation operation = {};
  operation.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
  operation.event = event->handle;
  return stream::Issue(lock, handle, per_thread, operation);
}

// A quarter of what recording takes the host comes behind the moment when the GPU has it (H200).
CUresult RecordIn(bool per_thread, CUevent event_handle, CUstream handle, unsigned flags) {
  if ((flags & ~unsigned{CU_EVENT_RECORD_EXTERNAL}) != 0) return CUDA_ERROR_INVALID_VALUE;
  const Config* config = GetConfig();
  const uint64_t record_ns = config != nullptr ? config->record_ns : 0;
  if (record_ns != 0) BeBusy(record_ns - record_ns / 4);
  const CUresult result = PutRecord(per_thread, event_handle, handle, flags);
  if (record_ns != 0) BeBusy(record_ns / 4);
  return result;
}

CUresult WaitIn(bool per_thread, CUstream handle, CUevent event_handle, unsigned flags) {
  if ((flags & ~unsigned{CU_EVENT_WAIT_EXTERNAL}) != 0) return CUDA_ERROR_INVALID_VALUE;
  TimelineLock lock;
  Event* event = nullptr;
  CUresult result = FindOrRefuse(event_handle, &event);
  if (result != CUDA_SUCCESS) return result;
  stream::Stream* stream = nullptr;
  result = stream::Resolve(handle, per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;

  const bool external = (flags & CU_EVENT_WAIT_EXTERNAL) != 0;
  if (IsCaptured(*event) && !external) {
    capture::Capture* captured = capture::Find(event->capture_id);
    if (captured == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return capture::Join(*stream, captured, event->capture_nodes);
  }
  if (stream->capture != nullptr && !external) return capture::RefuseIsolated(*stream);
  Operation operation = {};
  operation.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT;
  operation.context = stream->context;
  operation.event = event->handle;
  return stream::Issue(lock, handle, per_thread, operation);
}

// The program cannot look at an event that stands for nodes; trying spoils their capture. Nor may
// it look at any other while a capture forbids this thread to synchronise.
CUresult RefuseHostUse(const Event& event) {
  if (!IsCaptured(event)) return capture::RefuseUnsafe();
  capture::Capture* captured = capture::Find(event.capture_id);
  if (captured != nullptr) captured->invalidated = true;
  return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult QueryEvent(CUevent handle) {
  TimelineLock lock;
  Event* event = nullptr;
  CUresult result = FindOrRefuse(handle, &event);
  if (result == CUDA_SUCCESS) result = RefuseHostUse(*event);
  if (result != CUDA_SUCCESS || IsDone(*event)) return result;
  lock.NoteUnfinished();
  return CUDA_ERROR_NOT_READY;
}

CUresult SynchronizeEvent(CUevent handle) {
  TimelineLock lock;
  Event* event = nullptr;
  CUresult result = FindOrRefuse(handle, &event);
  if (result == CUDA_SUCCESS) result = RefuseHostUse(*event);
  if (result != CUDA_SUCCESS) return result;
  if (!event->imported) {
    const int device = event->device;
    lock.Wait(event->record);
    memory::AfterSynchronize(device);
    return CUDA_SUCCESS;
  }
  Work* wait = NewSharedWait(*event);
  if (wait == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  lock.Submit(wait);
  lock.Wait(wait);
  ReleaseWork(wait);
  return CUDA_SUCCESS;
}

CUresult Elapsed(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  TimelineLock lock;
  Event* start = events.Find(start_handle);
  Event* end = events.Find(end_handle);
  if (start == nullptr || end == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (IsCaptured(*start) || IsCaptured(*end)) return CUDA_ERROR_CAPTURED_EVENT;
  const bool timed = ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) == 0;
  if (!timed || start->record == nullptr || end->record == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (start->context != end->context) return CUDA_ERROR_INVALID_HANDLE;
  if (!IsDone(*start) || !IsDone(*end)) {
    lock.NoteUnfinished();
    return CUDA_ERROR_NOT_READY;
  }
  const uint64_t step_ns = GetConfig()->event_step_ns;
  const double ns = static_cast<double>(AtResolution(end->record->end_ns, step_ns)) -
                    static_cast<double>(AtResolution(start->record->end_ns, step_ns));
  *milliseconds = static_cast<float>(ns / 1e6);
  return CUDA_SUCCESS;
}

CUresult DestroyEvent(CUevent handle) {
  TimelineLock lock;
  Event* event = nullptr;
  const CUresult result = FindOrRefuse(handle, &event);
  if (result == CUDA_SUCCESS) Dispose(*event);
  return result;
}

}  // namespace

Event* Find(uint64_t handle) { return events.Find(handle); }

int PhysicalDeviceOf(uint64_t handle) {
  const Event* event = events.Find(handle);
  const context::Context* context =
      event != nullptr ? context::Find(AsHandle<CUcontext>(event->context)) : nullptr;
  return context != nullptr ? context::PhysicalDevice(*context) : 0;
}

CUresult Create(unsigned flags, const context::Context& context, Event** created) {
  const bool interprocess = (flags & CU_EVENT_INTERPROCESS) != 0;
  if ((flags & ~kKnownFlags) != 0 || (interprocess && (flags & CU_EVENT_DISABLE_TIMING) == 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t handle = 0;
  Event* event = events.Create(&handle);
  if (event == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  event->handle = handle;
  event->context = context.handle;
  event->device = context.device;
  event->flags = flags;
  *created = event;
  return CUDA_SUCCESS;
}

void Await(TimelineLock& lock, Work* work, uint64_t handle) {
  Event* event = events.Find(handle);
  if (event == nullptr) return;
  if (!event->imported) {
    Scheduler::After(work, event->record);
    return;
  }
  Work* wait = NewSharedWait(*event);
  if (wait == nullptr) return;
  lock.Submit(wait);
  Scheduler::After(work, wait);
  ReleaseWork(wait);
}

void NoteRecord(TimelineLock& lock, uint64_t handle, Work* work) {
  Event* event = events.Find(handle);
  if (event == nullptr) return;
  RetainWork(work);
  ReleaseWork(event->record);
  event->record = work;
  event->capture_id = 0;
  if (event->shared != nullptr) PublishRecord(lock, *event, work);
}

CUresult RecordContext(CUcontext context_handle, CUevent event_handle) {
  TimelineLock lock;
  const context::Context* context = context::Find(context_handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Event* event = nullptr;
  CUresult result = FindOrRefuse(event_handle, &event);
  if (result == CUDA_SUCCESS) result = capture::RefuseContext(context->handle);
  if (result != CUDA_SUCCESS) return result;
  Work* before = stream::EndOfContext(lock, context->handle);
  Work* record = sim::Join(lock, &before, 1);
  ReleaseWork(before);
  if (record == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  NoteRecord(lock, event->handle, record);
  ReleaseWork(record);
  return CUDA_SUCCESS;
}

CUresult AwaitInContext(CUcontext context_handle, CUevent event_handle) {
  TimelineLock lock;
  const context::Context* context = context::Find(context_handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Event* event = nullptr;
  CUresult result = FindOrRefuse(event_handle, &event);
  if (result == CUDA_SUCCESS) result = capture::RefuseContext(context->handle);
  if (result != CUDA_SUCCESS || event->record == nullptr) return result;
  stream::ForEach([&](stream::Stream* stream) {
    if (stream->context != context->handle) return;
    Work* const both[] = {stream->tail, event->record};
    Work* wait = sim::Join(lock, both, 2);
    if (wait == nullptr) return;
    stream::Append(*stream, wait);
    ReleaseWork(wait);
  });
  return CUDA_SUCCESS;
}

void ForgetContext(uint64_t context) {
  events.ForEach([&](uint64_t, Event* event) {
    if (event->context == context) Dispose(*event);
  });
}

}  // namespace event

}  // namespace sim

// The exports are global, everything that they use is in sim.
using namespace sim;

extern "C" CUresult cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  SIM_CALL(cuEventCreate, phEvent, Flags);
  if (phEvent == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  context::Context* context = nullptr;
  CUresult result = context::Current(&context);
  if (result != CUDA_SUCCESS) return result;
  event::Event* event = nullptr;
  result = event::Create(Flags, *context, &event);
  if (result == CUDA_SUCCESS) *phEvent = AsHandle<CUevent>(event->handle);
  return result;
}

extern "C" CUresult cuEventDestroy(CUevent hEvent) {
  SIM_CALL(cuEventDestroy, hEvent);
  return event::DestroyEvent(hEvent);
}

extern "C" CUresult cuEventDestroy_v2(CUevent hEvent) {
  SIM_CALL(cuEventDestroy_v2, hEvent);
  return event::DestroyEvent(hEvent);
}

extern "C" CUresult cuEventQuery(CUevent hEvent) {
  SIM_CALL(cuEventQuery, hEvent);
  return event::QueryEvent(hEvent);
}

extern "C" CUresult cuEventSynchronize(CUevent hEvent) {
  SIM_CALL(cuEventSynchronize, hEvent);
  return event::SynchronizeEvent(hEvent);
}

extern "C" CUresult cuEventElapsedTime(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  SIM_CALL(cuEventElapsedTime, pMilliseconds, hStart, hEnd);
  return event::Elapsed(pMilliseconds, hStart, hEnd);
}

extern "C" CUresult cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  SIM_CALL(cuEventElapsedTime_v2, pMilliseconds, hStart, hEnd);
  return event::Elapsed(pMilliseconds, hStart, hEnd);
}

extern "C" CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent) {
  SIM_CALL(cuCtxRecordEvent, hCtx, hEvent);
  return event::RecordContext(hCtx, hEvent);
}

extern "C" CUresult cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent) {
  SIM_CALL(cuCtxWaitEvent, hCtx, hEvent);
  return event::AwaitInContext(hCtx, hEvent);
}

namespace {

CUresult RecordPlain(bool per_thread, CUevent event, CUstream stream) {
  return event::RecordIn(per_thread, event, stream, 0);
}

}  // namespace

SIM_TWINS(cuEventRecord, RecordPlain, (CUevent hEvent, CUstream hStream), hEvent, hStream);
SIM_TWINS(cuEventRecordWithFlags, event::RecordIn,
          (CUevent hEvent, CUstream hStream, unsigned int flags), hEvent, hStream, flags);
SIM_TWINS(cuStreamWaitEvent, event::WaitIn, (CUstream hStream, CUevent hEvent, unsigned int Flags),
          hStream, hEvent, Flags);
