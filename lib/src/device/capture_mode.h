// Streams that are being captured: which may be, and how a thread asks the driver all the same.
#pragma once

#include "real.h"

namespace gpufence {

// True also where the driver will not say: then nothing is done that a capture forbids.
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
