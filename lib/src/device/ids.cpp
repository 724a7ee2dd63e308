#include "device/ids.h"

#include "real.h"

namespace gpufence {

bool UuidOf(CUdevice device, uint8_t uuid[16]) {
  CUuuid answer = {};
  CUresult rc = real::cuDeviceGetUuid_v2(&answer, device);
  // Drivers before 11.4 have the first form only.
  if (rc != CUDA_SUCCESS) rc = real::cuDeviceGetUuid(&answer, device);
  if (rc != CUDA_SUCCESS) return false;
  for (int i = 0; i < 16; ++i) uuid[i] = static_cast<uint8_t>(answer.bytes[i]);
  return true;
}

int32_t NvmlIndexOf(const uint8_t uuid[16]) { return -1; }

uint32_t CurrentDevice() {
  CUdevice device = 0;
  return real::cuCtxGetDevice(&device) == CUDA_SUCCESS ? static_cast<uint32_t>(device) : kNoDevice;
}

uint32_t DeviceOfLocation(const CUmemLocation_v1& location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? static_cast<uint32_t>(location.id)
                                                      : kNoDevice;
}

}  // namespace gpufence
