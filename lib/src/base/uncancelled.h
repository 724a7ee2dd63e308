// A stretch of ours in which the calling thread cannot be cancelled (pthread_cancel): nobody
// unwinds our frames, so a lock held there, or a step half done, would stay so. A request that
// comes meanwhile acts at the program's next cancellation point. For slow paths; what is short has
// no cancellation point, nor have the waits of base/futex.h.
#pragma once

#include <pthread.h>

namespace gpufence {

class Uncancelled {
 public:
  Uncancelled() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~Uncancelled() { pthread_setcancelstate(before_, nullptr); }
  Uncancelled(const Uncancelled&) = delete;
  Uncancelled& operator=(const Uncancelled&) = delete;

 private:
  int before_;
};

}  // namespace gpufence
