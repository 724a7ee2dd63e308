// Instances of GPUs that are split (MIG): which there are, and whose they are. Each is one GPU
// instance with one compute instance, as large as the others.
//
// Documented rather than seen: no split GPU was at hand. Must not know what instances do.
#include "driver_abi.h"
#include "machine/calls.h"
#include "nvml/board.h"

namespace {

using sim::nvml::IndexOf;
using sim::nvml::IsInstance;
using sim::nvml::IsSplit;
using sim::nvml::kNoDevice;
using sim::nvml::Put;
using sim::nvml::PutFor;

// The number by which its GPU knows an instance.
int PlaceOf(nvmlDevice_t instance) { return IndexOf(instance) % sim::machine::DevicesPerBoard(); }

nvmlReturn_t PutInstance(nvmlDevice_t device, unsigned* id, unsigned value) {
  if (IndexOf(device) == kNoDevice || id == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return IsInstance(device) ? Put(id, value) : NVML_ERROR_NOT_SUPPORTED;
}

}  // namespace

extern "C" nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int* currentMode,
                                             unsigned int* pendingMode) {
  SIM_CALL(nvmlDeviceGetMigMode, device, currentMode, pendingMode);
  if (pendingMode == nullptr || IsInstance(device)) return NVML_ERROR_INVALID_ARGUMENT;
  const unsigned mode = IsSplit() ? 1 : 0;
  const nvmlReturn_t result = PutFor(device, currentMode, mode);
  if (result == NVML_SUCCESS) *pendingMode = mode;
  return result;
}

extern "C" nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int* count) {
  SIM_CALL(nvmlDeviceGetMaxMigDeviceCount, device, count);
  return PutFor(device, count, static_cast<unsigned>(sim::kMaxInstances));
}

extern "C" nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device,
                                                    unsigned int* isMigDevice) {
  SIM_CALL(nvmlDeviceIsMigDeviceHandle, device, isMigDevice);
  return PutFor(device, isMigDevice, IsInstance(device) ? 1u : 0u);
}

extern "C" nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                            nvmlDevice_t* migDevice) {
  SIM_CALL(nvmlDeviceGetMigDeviceHandleByIndex, device, index, migDevice);
  const int first = IndexOf(device);
  if (first == kNoDevice || migDevice == nullptr || IsInstance(device)) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  if (index >= static_cast<unsigned>(sim::kMaxInstances)) return NVML_ERROR_INVALID_ARGUMENT;
  if (index >= static_cast<unsigned>(sim::machine::InstancesPerBoard())) {
    return NVML_ERROR_NOT_FOUND;
  }
  return Put(migDevice, sim::nvml::InstanceHandle(first + static_cast<int>(index)));
}

extern "C" nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t migDevice,
                                                                     nvmlDevice_t* device) {
  SIM_CALL(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, migDevice, device);
  if (!IsInstance(migDevice)) return NVML_ERROR_INVALID_ARGUMENT;
  return Put(device, sim::nvml::BoardHandle(sim::machine::BoardOf(IndexOf(migDevice))));
}

extern "C" nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int* id) {
  SIM_CALL(nvmlDeviceGetGpuInstanceId, device, id);
  return PutInstance(device, id, static_cast<unsigned>(PlaceOf(device)) + 1);
}

extern "C" nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int* id) {
  SIM_CALL(nvmlDeviceGetComputeInstanceId, device, id);
  return PutInstance(device, id, 0);
}
