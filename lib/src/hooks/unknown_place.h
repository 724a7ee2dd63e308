// The answer to a request for memory at a place that cannot be charged to anybody. The code is the
// one of drivers that do not know such places either.
#pragma once

#include "base/log.h"
#include "device/ids.h"

namespace gpufence {

inline CUresult RefuseUnknownPlace(const char* function, const CUmemLocation& location) {
  GPUFENCE_LOG(
      kWarn,
      "%s refused: it asks for memory at a location of type %d, which this gpufence cannot "
      "charge to a GPU. Update gpufence, or allocate on a device (type 1)",
      function, static_cast<int>(location.type));
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace gpufence
