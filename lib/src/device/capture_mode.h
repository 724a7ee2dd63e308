// Lets this thread ask the driver what it forbids while any stream is being captured. Reading a
// pool or trimming it would otherwise end a capture that the program has under way.
#pragma once

#include "real.h"

namespace gpufence {

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
