// How a thread asks the driver where it may not as it is: in another context than its own, and
// while streams are being captured. Must not know what is asked.
#pragma once

#include "real.h"

namespace gpufence {

// Another context as the calling thread's own for a while.
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

// Whether the stream is being captured. True also where the driver will not say: then nothing is
// done that a capture forbids.
inline bool MayBeCapturing(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult rc = real::cuStreamIsCapturing(stream, &status);
  return rc != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// Lets this thread ask the driver what it forbids while any stream is being captured. Reading a
// pool or trimming it would otherwise end a capture that the program has under way.
class CaptureRelaxed {
 public:
  CaptureRelaxed() { real::cuThreadExchangeStreamCaptureMode(&mode_); }
  ~CaptureRelaxed() { real::cuThreadExchangeStreamCaptureMode(&mode_); }
  CaptureRelaxed(const CaptureRelaxed&) = delete;
  CaptureRelaxed& operator=(const CaptureRelaxed&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace gpufence
