// Streams: queues of work, what a stream argument means, and who waits for whom by default.
//
// Owns the stream table, the default streams of every context and thread, and the door through
// which every operation enters a stream (or the capture that it is in). Must not know what
// operations do.
#pragma once

#include <stdint.h>

#include "cuda/devices/context.h"
#include "cuda/streams/launch_operation.h"
#include "cuda/streams/timeline.h"
#include "driver_abi.h"
#include "machine/calls.h"
#include "machine/objects.h"
#include "machine/vec.h"

// Exports a function and its per-thread-default-stream twin: both count themselves and run `body`
// with a leading flag that says what a null stream means.
#define SIM_TWINS_AS(name, twin, body, parameters, ...) \
  extern "C" CUresult name parameters {                 \
    SIM_CALL(name, __VA_ARGS__);                        \
    return body(false, __VA_ARGS__);                    \
  }                                                     \
  extern "C" CUresult twin parameters {                 \
    SIM_CALL(twin, __VA_ARGS__);                        \
    return body(true, __VA_ARGS__);                     \
  }                                                     \
  static_assert(true)  // asks for the semicolon
#define SIM_TWINS(name, body, parameters, ...) \
  SIM_TWINS_AS(name, name##_ptsz, body, parameters, __VA_ARGS__)
#define SIM_TWINS_DS(name, body, parameters, ...) \
  SIM_TWINS_AS(name, name##_ptds, body, parameters, __VA_ARGS__)

namespace sim {

namespace capture {
struct Capture;
}

namespace stream {

constexpr int kGreatestPriority = -5;  // as on every GPU since Pascal

// What was put into a stream last, as many as its queue takes (H200: a wait for a value and 1,020
// behind it): there is room once the oldest of them is done, since they end in order.
struct StreamQueue {
  static constexpr uint32_t kDepth = 1'021;

  Work** works;  // a ring of kDepth, or null: nothing was put there yet
  uint32_t next;
  uint32_t waiting;  // threads that wait for room
};

struct Stream {
  uint64_t handle;   // of the table; programs see 0, 1 or 2 for default streams
  uint64_t context;  // handle
  int device;        // logical
  bool is_legacy;
  bool is_per_thread;
  unsigned flags;
  int priority;
  bool has_channel;  // counts among its context's streams
  uint64_t id;
  pthread_t thread;  // is_per_thread: whose
  StreamQueue queue;
  Work* tail;                   // the last work put into it, or null
  bool on_copies;               // the last that takes time was a copy between host and device
  capture::Capture* capture;    // what it is being captured into, or null
  Vec<uint64_t> capture_front;  // nodes that the next captured operation depends on
};

// All of these want a TimelineLock (or DriverLock where no time is involved).

// What a stream argument means for the calling thread. 201/709 when there is no usable context, 400
// when the handle is no stream.
CUresult Resolve(CUstream handle, bool per_thread, Stream** found);

// The stream behind a value of Stream::handle; null when it is gone.
Stream* FindByHandle(uint64_t handle);

// Calls visit(Stream*) for all streams, default ones included.
template <typename Visit>
void ForEach(Visit visit);

// What new work in the stream is behind, as one point (null: nothing), with a reference: what it
// must wait for, or the last that was there before. It covers the legacy stream's rule: it and
// every blocking stream of its context wait for each other.
Work* EndOf(TimelineLock& lock, const Stream& stream);

// Returns when no thread waits for room in the stream's queue, as a question about the stream does
// on hardware; lets the lock go meanwhile, in which the stream may end.
void AwaitRoom(TimelineLock& lock, CUstream handle, bool per_thread);

// What its end is to whoever asks or waits for it. A blocking stream with nothing of its own is
// done while the legacy stream runs, which is not while any blocking one does (H200).
Work* AskedEndOf(TimelineLock& lock, const Stream& stream);

// The same as EndOf for everything in a context.
Work* EndOfContext(TimelineLock& lock, uint64_t context);

// Makes `work`, already submitted behind EndOf(stream), the stream's last.
void Append(Stream& stream, Work* work);

// The one way for operations into a stream: validates the handle against captures, records the
// operation when the stream captures, else performs it behind what is there. Waits for room in the
// stream's queue, as hardware does, and lets the lock go meanwhile; kernels and records of events
// wait as well while another thread waits so for any stream of the context (H200; nobody tried
// anything else there). With `done`, gives its
// last work with a reference, or null when it was captured.
CUresult Issue(TimelineLock& lock, CUstream handle, bool per_thread, const Operation& operation,
               Work** done = nullptr);

// The current context of the calling thread, for operations that name no other.
CUresult CurrentContext(context::Context** current);

using StreamTable = Table<Stream, Kind::kStream>;
StreamTable& Streams();

// Numbers for cuStreamGetId, unique in the process.
uint64_t NextId();

// Ends a stream: its table entry goes, its work goes on, and the legacy stream still waits for it.
void Forget(TimelineLock& lock, Stream& stream);

template <typename Visit>
void ForEach(Visit visit) {
  Streams().ForEach([&](uint64_t, Stream* stream) { visit(stream); });
}

}  // namespace stream

}  // namespace sim
