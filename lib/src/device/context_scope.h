// Another context as the calling thread's own for a while. Must not know what is asked there.
#pragma once

#include "real.h"

namespace gpufence {

class ContextScope {
 public:
  explicit ContextScope(CUcontext context)
      : entered_(real::cuCtxPushCurrent_v2(context) == CUDA_SUCCESS) {}
  ~ContextScope() {
    CUcontext left = nullptr;
    if (entered_) real::cuCtxPopCurrent_v2(&left);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

  // False where the driver will not: the thread's context is as it was.
  explicit operator bool() const { return entered_; }

 private:
  const bool entered_;
};

}  // namespace gpufence
