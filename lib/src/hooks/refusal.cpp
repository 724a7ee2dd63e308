#include "hooks/refusal.h"

#include <stdio.h>

#include "base/log.h"
#include "hooks/fence.h"

namespace gpufence {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// For people: whole MiB, as limits are written, or bytes where that would be none.
struct AmountText {
  explicit AmountText(uint64_t bytes) {
    const bool whole = bytes >= kMiB || bytes == 0;
    snprintf(text, sizeof text, "%llu %s",
             static_cast<unsigned long long>(whole ? bytes / kMiB : bytes),
             whole ? "MiB" : "bytes");
  }
  char text[32];
};

CUresult Refuse(FencedDevice* device, uint64_t bytes) {
  if (!device->account.CountRefusal()) return CUDA_ERROR_OUT_OF_MEMORY;
  GPUFENCE_LOG(kWarn,
               "refused %s on device %d: %s of its memory limit of %s are used. This container's "
               "later refusals are counted (gpufence status), not logged",
               AmountText(bytes).text, device->ordinal,
               AmountText(device->account.UsedBytes()).text,
               AmountText(device->account.LimitBytes()).text);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace

CUresult OverLimit(FencedDevice* device) { return Refuse(device, device->account.refused_bytes()); }

CUresult OverLimitInContext(FencedDevice* device) {
  return CurrentContext() == 0 ? CUDA_ERROR_INVALID_CONTEXT : OverLimit(device);
}

CUresult OverLimitOfContexts(FencedDevice* device, uint64_t bytes) {
  const uint64_t limit_bytes = device->account.LimitBytes();
  if (limit_bytes >= bytes) return Refuse(device, bytes);
  device->account.CountRefusal();
  GPUFENCE_LOG(kError, "the memory limit of device %d is %s, less than a context takes (%s). %s",
               device->ordinal, AmountText(limit_bytes).text, AmountText(bytes).text,
               limit_bytes < kMiB ? "A limit without a unit is in bytes: write 4GiB for 4 GiB"
                                  : "Raise the limit");
  return CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace gpufence
