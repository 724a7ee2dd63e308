// The timeline of this process as the driver's functions use it: a lock, the present, and waiting.
//
// Owns the scheduler, the worker thread that calls host functions and keeps reserving turns, and
// every sleep of the simulated driver. Must not know: streams, handles, CUDA types.
//
// A TimelineLock is the driver's lock plus the promise that everything due has happened. Whoever
// touches work, or anything that points at it, holds one, and so do actions. Waiting lets the lock
// go, so nobody waits who already held a DriverLock outside.
#pragma once

#include <stdint.h>

#include <optional>

#include "cuda/devices/context.h"
#include "cuda/streams/timeline_engine.h"

namespace sim {

class TimelineLock {
 public:
  TimelineLock();
  ~TimelineLock();
  TimelineLock(const TimelineLock&) = delete;
  TimelineLock& operator=(const TimelineLock&) = delete;

  uint64_t now_ns() const;

  // Whether something of the program's own making (a host function, a condition in memory) or a
  // kernel that writes memory is still to come: then the bytes that later copies will find are not
  // decided yet.
  bool is_memory_undecided() const;

  // Hands work over; the caller keeps its reference. Starts the worker thread at the first need.
  void Submit(Work* work);

  // Returns when the work is done; null is done. Lets go of the lock meanwhile, so whatever was
  // read before must be read again.
  void Wait(Work* work);

  // The same for a thread that does not give its processor away.
  void SpinUntil(Work* work);

  // Returns when not more than about 1024 kernels of the device are pending: what graphs launch.
  // Lets go of the lock like Wait.
  void WaitForKernels(int device_index);

  // Whether this thread is calling a function of the program for the timeline.
  static bool in_host_function();

  // What a query that found work unfinished calls: a virtual clock must not stand still for it.
  void NoteUnfinished();

 private:
  friend void* RunTimelineWorker(void*);
  void Acquire();
  void Let();
  // Lets go until then, or until something that no clock foretells has happened.
  void Sleep(uint64_t real_deadline_ns);
  void SleepTowardsNextEvent();
  void WakeLate();
  void MoveVirtualClock(uint64_t to_ns);
  bool WorkOneRound(bool was_idle);
  void CallHostFunctions();

  std::optional<DriverLock> lock_;
};

}  // namespace sim
