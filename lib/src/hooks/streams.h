// Which stream a handle means. Must not know what is done there.
#pragma once

#include <stdint.h>

#include "driver_abi.h"
#include "real.h"

namespace gpufence {

// The null stream of a per-thread (_ptsz) call.
inline CUstream PerThread(CUstream stream) {
  constexpr uintptr_t kPerThreadStream = 2;  // CU_STREAM_PER_THREAD
  return stream != nullptr ? stream : reinterpret_cast<CUstream>(kPerThreadStream);
}

// True also where the driver will not say: then nothing is done that a capture forbids.
inline bool MayBeCapturing(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult rc = real::cuStreamIsCapturing(stream, &status);
  return rc != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace gpufence
