// Events: points in a stream. Owns the event table. Must not know what leads up to them.
#pragma once

#include <stdint.h>

#include "cuda/streams/launch_operation.h"
#include "cuda/streams/timeline.h"
#include "driver_abi.h"
#include "machine/vec.h"

namespace sim::event {

struct SharedEvent;  // event_ipc.cpp

struct Event {
  uint64_t handle;
  uint64_t context;
  int device;  // logical
  unsigned flags;
  Work* record;         // the latest record, or null
  uint64_t capture_id;  // recorded in this capture instead
  Vec<uint64_t> capture_nodes;
  SharedEvent* shared;  // interprocess, once a handle was made of it or it was opened from one
  int shared_fd;        // of the process that made it, else -1
  bool imported;
};

Event* Find(uint64_t handle);

// The machine's index of its device; 0 when it is gone.
int PhysicalDeviceOf(uint64_t handle);

// A new event of the context; 1 for flags that do not go together.
CUresult Create(unsigned flags, const context::Context& context, Event** created);

// Makes `work`, not submitted yet, wait for the event's latest record, if there is one.
void Await(TimelineLock& lock, Work* work, uint64_t handle);

// Makes `work`, submitted, the event's latest record.
void NoteRecord(TimelineLock& lock, uint64_t handle, Work* work);

// Everything in the context before the event, or everything put into it later behind the event.
CUresult RecordContext(CUcontext context, CUevent event);
CUresult AwaitInContext(CUcontext context, CUevent event);

// The context ends, and its events with it.
void ForgetContext(uint64_t context);

// Between processes (event_ipc.cpp).
void PublishRecord(TimelineLock& lock, Event& event, Work* work);  // each record of a shared one
bool IsSharedDone(const Event& event);                             // of an imported event
Work* NewSharedWait(const Event& event);  // work that polls it; reference for the caller
void CloseShared(Event& event);

}  // namespace sim::event
