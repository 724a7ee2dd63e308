// The stream table and the door into streams. Must not know what operations do.
#include "cuda/streams/stream.h"

#include <pthread.h>
#include <stdlib.h>

#include "cuda/graphs/capture.h"
#include "cuda/memory/memory.h"
#include "cuda/streams/event.h"

namespace sim {

namespace stream {

namespace {

constinit StreamTable streams;
constinit uint64_t next_id = 1;
constinit uint32_t threads_waiting = 0;  // for room in any stream

// What a context's streams have in common.
struct Defaults {
  uint64_t context;
  Stream* legacy;
  Work* orphans;  // end of what destroyed streams still do
};
constinit Vec<Defaults> all_defaults{};

// The calling thread's default stream of the context it used last. Handles are never reused for
// another context or stream soon, so a stale entry does not match.
struct ThreadStream {
  uint64_t context;
  uint64_t stream;
};
constinit thread_local ThreadStream thread_stream{};

Defaults* DefaultsOf(uint64_t context) {
  for (Defaults& defaults : all_defaults) {
    if (defaults.context == context) return &defaults;
  }
  return all_defaults.Push({context, nullptr, nullptr}) ? &all_defaults.back() : nullptr;
}

Stream* NewDefault(const context::Context& context) {
  uint64_t handle = 0;
  Stream* stream = streams.Create(&handle);
  if (stream == nullptr) return nullptr;
  stream->handle = handle;
  stream->context = context.handle;
  stream->device = context.device;
  stream->id = NextId();
  return stream;
}

Stream* LegacyOf(const context::Context& context) {
  Defaults* defaults = DefaultsOf(context.handle);
  if (defaults == nullptr) return nullptr;
  if (defaults->legacy == nullptr) {
    defaults->legacy = NewDefault(context);
    if (defaults->legacy != nullptr) defaults->legacy->is_legacy = true;
  }
  return defaults->legacy;
}

Stream* PerThreadOf(const context::Context& context) {
  if (thread_stream.context == context.handle) {
    Stream* known = streams.Find(thread_stream.stream);
    if (known != nullptr) return known;
  }
  Stream* mine = nullptr;
  ForEach([&](Stream* stream) {
    const bool matches = stream->is_per_thread && stream->context == context.handle;
    if (matches && pthread_equal(stream->thread, pthread_self()) != 0) mine = stream;
  });
  if (mine == nullptr) {
    mine = NewDefault(context);
    if (mine == nullptr) return nullptr;
    mine->is_per_thread = true;
    mine->thread = pthread_self();
  }
  thread_stream = {context.handle, mine->handle};
  return mine;
}

bool IsBlocking(const Stream& stream) {
  return !stream.is_legacy && (stream.flags & CU_STREAM_NON_BLOCKING) == 0;
}

bool IsPending(const Work* work) { return work != nullptr && work->state != WorkState::kDone; }

// Collects what is pending and makes one point of it, without new work where one will do.
class Gathering {
 public:
  ~Gathering() { pending_.Free(); }

  void Add(Work* work) {
    if (IsPending(work)) pending_.Push(work);
  }

  Work* End(TimelineLock& lock) {
    if (pending_.empty()) return nullptr;
    if (pending_.size() > 1) return sim::Join(lock, pending_.data(), pending_.size());
    RetainWork(pending_[0]);
    return pending_[0];
  }

 private:
  Vec<Work*> pending_{};
};

// What must be done before the stream's queue has room for one operation more; null: it has.
Work* ObstacleIn(const StreamQueue& queue) {
  Work* oldest = queue.works != nullptr ? queue.works[queue.next] : nullptr;
  return IsPending(oldest) ? oldest : nullptr;
}

// What keeps a thread waiting that has a full stream of the context before it; null: none has.
Work* ObstacleOfOthers(uint64_t context) {
  Work* obstacle = nullptr;
  if (threads_waiting == 0) return obstacle;
  ForEach([&](Stream* stream) {
    const bool is_waited_for = stream->context == context && stream->queue.waiting != 0;
    if (is_waited_for && obstacle == nullptr) obstacle = ObstacleIn(stream->queue);
  });
  return obstacle;
}

bool WaitsForOthers(CUgraphNodeType type) {
  return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_EVENT_RECORD;
}

// Until the obstacle is done, among those who wait for room; the stream may be gone afterwards.
void WaitForRoom(TimelineLock& lock, Stream* stream, Work* obstacle) {
  const uint64_t handle = stream->handle;
  ++stream->queue.waiting;
  ++threads_waiting;
  lock.SpinUntil(obstacle);
  --threads_waiting;
  stream = streams.Find(handle);
  if (stream != nullptr) --stream->queue.waiting;
}

// Until there may be room for one operation more; the stream may be gone then. False: there is.
bool AwaitRoomFor(TimelineLock& lock, Stream* stream, CUgraphNodeType type) {
  if (Work* obstacle = ObstacleIn(stream->queue)) {
    WaitForRoom(lock, stream, obstacle);
    return true;
  }
  Work* obstacle = WaitsForOthers(type) ? ObstacleOfOthers(stream->context) : nullptr;
  if (obstacle == nullptr) return false;
  lock.SpinUntil(obstacle);
  return true;
}

void NoteQueued(StreamQueue* queue, Work* work) {
  if (queue->works == nullptr) {
    queue->works = static_cast<Work**>(calloc(StreamQueue::kDepth, sizeof(Work*)));
    if (queue->works == nullptr) return;  // then it has no end
  }
  RetainWork(work);
  ReleaseWork(queue->works[queue->next]);
  queue->works[queue->next] = work;
  queue->next = (queue->next + 1) % StreamQueue::kDepth;
}

void FreeQueue(StreamQueue* queue) {
  for (uint32_t i = 0; queue->works != nullptr && i < StreamQueue::kDepth; ++i) {
    ReleaseWork(queue->works[i]);
  }
  free(queue->works);
}

}  // namespace

StreamTable& Streams() { return streams; }

uint64_t NextId() { return next_id++; }

Stream* FindByHandle(uint64_t handle) { return streams.Find(handle); }

CUresult CurrentContext(context::Context** current) { return context::Current(current); }

CUresult Resolve(CUstream handle, bool per_thread, Stream** found) {
  const uint64_t value = HandleValue(handle);
  if (value > 2) {
    *found = streams.Find(value);
    return *found != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  }
  context::Context* context = nullptr;
  const CUresult result = context::Current(&context);
  if (result != CUDA_SUCCESS) return result;
  const bool own = value == 2 || (value == 0 && per_thread);
  *found = own ? PerThreadOf(*context) : LegacyOf(*context);
  return *found != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

Work* EndOf(TimelineLock& lock, const Stream& stream) {
  Gathering end;
  end.Add(stream.tail);
  Defaults* defaults = DefaultsOf(stream.context);
  if (stream.is_legacy) {
    ForEach([&](Stream* other) {
      if (other->context == stream.context && IsBlocking(*other)) end.Add(other->tail);
    });
    if (defaults != nullptr) end.Add(defaults->orphans);
  } else if (IsBlocking(stream) && defaults != nullptr && defaults->legacy != nullptr) {
    end.Add(defaults->legacy->tail);
  }
  Work* pending = end.End(lock);
  if (pending != nullptr || stream.tail == nullptr) return pending;
  RetainWork(stream.tail);
  return stream.tail;
}

void AwaitRoom(TimelineLock& lock, CUstream handle, bool per_thread) {
  Stream* stream = nullptr;
  while (Resolve(handle, per_thread, &stream) == CUDA_SUCCESS && stream->queue.waiting != 0) {
    Work* obstacle = ObstacleIn(stream->queue);
    if (obstacle == nullptr) return;
    lock.SpinUntil(obstacle);
  }
}

Work* AskedEndOf(TimelineLock& lock, const Stream& stream) {
  if (stream.is_legacy) return EndOf(lock, stream);
  if (stream.tail != nullptr) RetainWork(stream.tail);
  return stream.tail;
}

Work* EndOfContext(TimelineLock& lock, uint64_t context) {
  Gathering end;
  ForEach([&](Stream* stream) {
    if (stream->context == context) end.Add(stream->tail);
  });
  Defaults* defaults = DefaultsOf(context);
  if (defaults != nullptr) end.Add(defaults->orphans);
  return end.End(lock);
}

void Append(Stream& stream, Work* work) {
  NoteQueued(&stream.queue, work);
  RetainWork(work);
  ReleaseWork(stream.tail);
  stream.tail = work;
}

CUresult Issue(TimelineLock& lock, CUstream handle, bool per_thread, const Operation& operation,
               Work** done) {
  if (done != nullptr) *done = nullptr;
  Stream* stream = nullptr;
  CUresult result = Resolve(handle, per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (stream->capture != nullptr) return capture::Record(*stream, operation);
  if (AwaitRoomFor(lock, stream, operation.type)) {
    return Issue(lock, handle, per_thread, operation, done);
  }
  if (stream->is_legacy) result = capture::RefuseLegacy(stream->context);
  if (result != CUDA_SUCCESS) return result;

  Work* before = EndOf(lock, *stream);
  const Behind behind = {before, stream->priority, Pause::kLaunch, stream->on_copies};
  Work* work = Perform(lock, operation, behind, &result);
  ReleaseWork(before);
  if (work == nullptr) return result;
  if (work->engine != Engine::kNone && work->engine != Engine::kRecord) {
    stream->on_copies = work->engine == Engine::kCopyIn || work->engine == Engine::kCopyOut;
  }
  Append(*stream, work);
  if (done != nullptr) {
    *done = work;
  } else {
    ReleaseWork(work);
  }
  return CUDA_SUCCESS;
}

CUresult DeviceOf(CUstream stream, bool per_thread, int* device) {
  DriverLock lock;
  Stream* found = nullptr;
  const CUresult result = Resolve(stream, per_thread, &found);
  if (result == CUDA_SUCCESS) *device = found->device;
  return result;
}

void WaitForContext(uint64_t context) {
  if (IsInHostFunction()) return;
  TimelineLock lock;
  context::Context* current = nullptr;
  if (context == 0 && context::Current(&current) == CUDA_SUCCESS) context = current->handle;
  Work* end = EndOfContext(lock, context);
  lock.Wait(end);
  ReleaseWork(end);
}

void WaitForDevice(int device) {
  if (IsInHostFunction()) return;
  TimelineLock lock;
  Gathering pending;
  ForEach([&](Stream* stream) {
    if (stream->device == device) pending.Add(stream->tail);
  });
  for (const Defaults& defaults : all_defaults) {
    const context::Context* context = context::Find(AsHandle<CUcontext>(defaults.context));
    if (context != nullptr && context->device == device) pending.Add(defaults.orphans);
  }
  Work* end = pending.End(lock);
  lock.Wait(end);
  ReleaseWork(end);
}

// Shared with the exports: the table entry goes, the work goes on.
void Forget(TimelineLock& lock, Stream& stream) {
  capture::Abandon(stream);
  Defaults* defaults = DefaultsOf(stream.context);
  if (defaults != nullptr && IsPending(stream.tail)) {
    Gathering end;
    end.Add(defaults->orphans);
    end.Add(stream.tail);
    Work* orphans = end.End(lock);
    ReleaseWork(defaults->orphans);
    defaults->orphans = orphans;
  }
  ReleaseWork(stream.tail);
  FreeQueue(&stream.queue);
  stream.capture_front.Free();
  context::Context* context = context::Find(AsHandle<CUcontext>(stream.context));
  if (stream.has_channel && context != nullptr && context->streams > 0) --context->streams;
  streams.Destroy(stream.handle);
}

}  // namespace stream

void EndStreamsOf(context::Context* context) {
  TimelineLock lock;
  stream::ForEach([&](stream::Stream* stream) {
    if (stream->context == context->handle) stream::Forget(lock, *stream);
  });
  for (size_t i = 0; i < stream::all_defaults.size(); ++i) {
    if (stream::all_defaults[i].context != context->handle) continue;
    ReleaseWork(stream::all_defaults[i].orphans);
    stream::all_defaults.Erase(i);
    break;
  }
  event::ForgetContext(context->handle);
}

}  // namespace sim
