// The GPU's name as NVML tells it, where the user wants another one (VCUDA_DEVICE_NAME).
#include <string.h>

#include "hooks/fence.h"
#include "hooks/views/onlooker.h"
#include "real.h"

extern "C" nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned int length) {
  const gpufence::InsideHook hook;
  const nvmlReturn_t rc = real::nvmlDeviceGetName(device, name, length);
  // The driver's name may not fit where ours does.
  if (rc != NVML_SUCCESS && rc != NVML_ERROR_INSUFFICIENT_SIZE) return rc;
  if (!hook.is_outermost() || name == nullptr) return rc;
  const char* given = gpufence::GivenName();
  if (given == nullptr) return rc;
  const size_t bytes = strlen(given) + 1;
  if (bytes > length) return NVML_ERROR_INSUFFICIENT_SIZE;
  memcpy(name, given, bytes);
  return NVML_SUCCESS;
}
