// The rule that no lock of ours is held across a call of the driver. Such a call may wait for the
// GPU, bind or load a library, or call the program back, and the thread that wants the lock
// meanwhile may be the one that it waits for.
// A build with GPUFENCE_CHECK_LOCKS ends the program where the rule is broken; in any other build
// none of this exists. Must not know which locks there are.
#pragma once

#ifdef GPUFENCE_CHECK_LOCKS

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace gpufence {

inline constinit thread_local int held_locks = 0;

inline void CountLock() { ++held_locks; }
inline void CountUnlock() { --held_locks; }

// Calls that the driver answers at once, from what it knows; made under the lock of the markers'
// table (device/markers/stream_table.h), as the answer holds only while nobody changes that.
// A callback of the program's behind them finds its thread inside of that lock and does nothing
// (StreamsGuard). No other call is excused, and no other lock.
inline bool IsExcused(const char* call) {
  constexpr const char* kExcused[] = {
      "cuCtxGetCurrent",                    // of the calling thread
      "cuEventElapsedTime",                 // of events that are over
      "cuEventQuery",                       // never waits
      "cuStreamIsCapturing",                // never waits
      "cuThreadExchangeStreamCaptureMode",  // of the calling thread, around these
  };
  for (const char* excused : kExcused) {
    if (strcmp(call, excused) == 0) return true;
  }
  return false;
}

// Before each call of a function of the driver.
inline void ExpectNoLock(const char* call) {
  if (held_locks == 0 || IsExcused(call)) return;
  char line[160];
  const int length = snprintf(
      line, sizeof line, "gpufence: %s is called with %d locks of ours held\n", call, held_locks);
  if (write(STDERR_FILENO, line, static_cast<size_t>(length)) == length) abort();
  abort();
}

}  // namespace gpufence

#else

namespace gpufence {

inline void CountLock() {}
inline void CountUnlock() {}

}  // namespace gpufence

#endif

namespace gpufence {

// For what is no lock of this library's making, such as one of a file.
class CountedLock {
 public:
  CountedLock() { CountLock(); }
  ~CountedLock() { CountUnlock(); }
  CountedLock(const CountedLock&) = delete;
  CountedLock& operator=(const CountedLock&) = delete;
};

}  // namespace gpufence
