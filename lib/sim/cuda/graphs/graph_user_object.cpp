// User objects: things of the program's that live as long as graphs refer to them.
// Must not know streams or captures.
#include "cuda/graphs/graph.h"
#include "cuda/streams/timeline.h"
#include "machine/calls.h"

namespace sim {

namespace graph {

namespace {

struct UserObject {
  void* pointer;
  CUhostFn destroy;
  uint64_t references;
};
constinit Table<UserObject, Kind::kUserObject> objects;

// The last reference calls the program, on the worker thread as the real driver does.
void CallDestroy(UserObject object) {
  struct DestroyWork : Work {
    UserObject object;
  };
  auto* work = NewWork<DestroyWork>(Engine::kHost, 0, 0);
  if (work == nullptr) return;
  work->object = object;
  work->action = [](Work& due) {
    const UserObject& gone = static_cast<DestroyWork&>(due).object;
    gone.destroy(gone.pointer);
  };
  TimelineLock lock;
  lock.Submit(work);
  ReleaseWork(work);
}

bool Retain(uint64_t handle, uint64_t count) {
  UserObject* object = objects.Find(handle);
  if (object != nullptr) object->references += count;
  return object != nullptr;
}

bool Release(uint64_t handle, uint64_t count) {
  UserObject* object = objects.Find(handle);
  if (object == nullptr || object->references < count) return false;
  object->references -= count;
  if (object->references != 0) return true;
  const UserObject last = *object;
  objects.Destroy(handle);
  CallDestroy(last);
  return true;
}

}  // namespace

bool CloneUserObjects(const Graph& from, Graph* to) {
  for (uint64_t object : from.user_objects) {
    if (!to->user_objects.Push(object)) return false;
    Retain(object, 1);
  }
  return true;
}

void ReleaseUserObjects(Graph& graph) {
  for (uint64_t object : graph.user_objects) Release(object, 1);
  graph.user_objects.Free();
}

}  // namespace graph

}  // namespace sim

// The exports are global, everything that they use is in sim.
using namespace sim;

extern "C" CUresult cuUserObjectCreate(CUuserObject* object_out, void* ptr, CUhostFn destroy,
                                       unsigned int initialRefcount, unsigned int flags) {
  SIM_CALL(cuUserObjectCreate, object_out, ptr, destroy, initialRefcount, flags);
  const bool valid = object_out != nullptr && destroy != nullptr && initialRefcount != 0 &&
                     flags == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC;
  if (!valid) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  uint64_t handle = 0;
  graph::UserObject* object = graph::objects.Create(&handle);
  if (object == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *object = {ptr, destroy, initialRefcount};
  *object_out = AsHandle<CUuserObject>(handle);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuUserObjectRetain(CUuserObject object, unsigned int count) {
  SIM_CALL(cuUserObjectRetain, object, count);
  DriverLock lock;
  const bool done = count != 0 && graph::Retain(HandleValue(object), count);
  return done ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

extern "C" CUresult cuUserObjectRelease(CUuserObject object, unsigned int count) {
  SIM_CALL(cuUserObjectRelease, object, count);
  DriverLock lock;
  const bool done = count != 0 && graph::Release(HandleValue(object), count);
  return done ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

extern "C" CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                                            unsigned int flags) {
  SIM_CALL(cuGraphRetainUserObject, graph, object, count, flags);
  DriverLock lock;
  graph::Graph* found = graph::Find(graph);
  if (found == nullptr || graph::objects.Find(object) == nullptr || count == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool moves = (flags & CU_GRAPH_USER_OBJECT_MOVE) != 0;
  for (unsigned i = 0; i < count; ++i) {
    if (!found->user_objects.Push(HandleValue(object))) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!moves) graph::Retain(HandleValue(object), 1);
  }
  return CUDA_SUCCESS;
}

extern "C" CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object,
                                             unsigned int count) {
  SIM_CALL(cuGraphReleaseUserObject, graph, object, count);
  DriverLock lock;
  graph::Graph* found = graph::Find(graph);
  if (found == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = found->user_objects.size(); i-- > 0 && count != 0;) {
    if (found->user_objects[i] != HandleValue(object)) continue;
    found->user_objects.Erase(i);
    graph::Release(HandleValue(object), 1);
    --count;
  }
  return count == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
