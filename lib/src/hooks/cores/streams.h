// Which stream a handle means. Must not know what is done there.
#pragma once

#include <stdint.h>

#include "driver_abi.h"

namespace gpufence {

// The null stream of a per-thread (_ptsz) call.
inline CUstream PerThread(CUstream stream) {
  constexpr uintptr_t kPerThreadStream = 2;  // CU_STREAM_PER_THREAD
  return stream != nullptr ? stream : reinterpret_cast<CUstream>(kPerThreadStream);
}

}  // namespace gpufence
