#include "device/usage.h"

#include "real.h"

namespace gpufence {

UsageSource OwnUsage(const uint8_t uuid[16], uint64_t* bytes) { return UsageSource::kNone; }

uint64_t DriverFreeBytes() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  return real::cuMemGetInfo_v2(&free_bytes, &total_bytes) == CUDA_SUCCESS ? free_bytes : 0;
}

}  // namespace gpufence
