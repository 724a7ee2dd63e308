// Contexts of the simulated driver: what they are, which one a thread works in, and the one lock
// under which the driver's own objects change.
//
// Owns the context table, the per-thread stack and the primary contexts.  Must not know what lives
// in a context: families that keep something per context end it in one of the functions declared at
// the bottom.
#pragma once

#include <pthread.h>
#include <stdint.h>

#include "driver_abi.h"
#include "machine/objects.h"

namespace sim {

// Scope of the driver's lock: recursive, one per process.  Every call that looks into objects holds
// it; nobody waits for time while holding it.
class DriverLock {
 public:
  DriverLock();
  ~DriverLock();
  DriverLock(const DriverLock&) = delete;
  DriverLock& operator=(const DriverLock&) = delete;
};

namespace context {

inline constexpr int kLimitCount = 16;

struct Context {
  uint64_t handle;
  int device;  // logical: position after CUDA_VISIBLE_DEVICES
  unsigned flags;
  bool is_primary;
  bool active;          // false: a primary context that nobody retains
  uint32_t references;  // retains of a primary; attachments of another
  unsigned api_version;
  uint64_t green;                     // the green context it was made from, or 0
  int sm_count;                       // SMs it may use
  uint64_t footprint_bytes;           // what it takes beside its limits
  uint32_t streams;                   // that live in it
  uint64_t channel_bytes;             // for the most that ever did
  uint64_t limits[kLimitCount];       // indexed by CUlimit
  uint64_t limit_bytes[kLimitCount];  // device memory that each limit takes
  unsigned cache_config;
  unsigned shared_config;
  uint64_t unique_id;
};

// The calling thread's current context.  CUDA_ERROR_INVALID_CONTEXT (201) when there is none,
// CUDA_ERROR_CONTEXT_IS_DESTROYED (709) when it is gone or an unretained primary.
// Call with DriverLock held; the pointer is valid while it is held.
CUresult Current(Context** current);

// The context behind a handle; nullptr if it is none.  A null handle is not "the current one" here.
Context* Find(CUcontext handle);

// Memory of an external engine that a graph is to run, until the context ends. False: none is left.
bool AddEngine(Context* context);

// Physical device (machine.h index) of a context.
int PhysicalDevice(const Context& context);

// Calls visit(Context*) for each live context of the process.
void ForEach(void (*visit)(Context* context, void* arg), void* arg);

// Makes the primary context of a logical device live and returns it, as cuDevicePrimaryCtxRetain
// does, without touching the thread's stack.
CUresult RetainPrimary(int device, Context** primary);

}  // namespace context

// Implemented by the families; called with DriverLock held, before the context's bytes are given
// back.  Each frees whatever it keeps for this context.
void EndMemoryOf(context::Context* context);                 // memory.cpp
void EndArraysOf(context::Context* context);                 // array.cpp
void EndPeersOf(context::Context* context);                  // peer.cpp
[[gnu::weak]] void EndStreamsOf(context::Context* context);  // streams, events
[[gnu::weak]] void EndModulesOf(context::Context* context);  // modules, functions

}  // namespace sim
