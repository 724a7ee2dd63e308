// Event sets: they can be made, filled and waited on, but nothing ever happens to simulated
// devices.
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "driver_abi.h"
#include "machine/calls.h"
#include "nvml/board.h"

namespace {

using sim::nvml::IndexOf;
using sim::nvml::kNoDevice;
using sim::nvml::Put;
using sim::nvml::PutFor;

// ECC errors, performance state, critical errors, clock changes.
constexpr unsigned long long kSupportedEvents = 0x1f;

// What stands behind a handle. Which events are registered is of no consequence: none will come.
struct EventSet {
  char nothing;
};

void SleepMs(unsigned milliseconds) {
  timespec left = {.tv_sec = static_cast<time_t>(milliseconds / 1000),
                   .tv_nsec = static_cast<long>(milliseconds % 1000) * 1'000'000};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

// A real wait: real programs poll with it from a thread of their own.
nvmlReturn_t Wait(nvmlEventSet_t set, nvmlEventData_t* data, unsigned milliseconds) {
  if (set == nullptr || data == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  SleepMs(milliseconds);
  return NVML_ERROR_TIMEOUT;
}

}  // namespace

extern "C" nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t* set) {
  SIM_CALL(nvmlEventSetCreate, set);
  if (set == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  void* made = malloc(sizeof(EventSet));
  if (made == nullptr) return NVML_ERROR_MEMORY;
  return Put(set, static_cast<nvmlEventSet_t>(made));
}

extern "C" nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
  SIM_CALL(nvmlEventSetFree, set);
  if (set == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  free(set);
  return NVML_SUCCESS;
}

extern "C" nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device,
                                                         unsigned long long* eventTypes) {
  SIM_CALL(nvmlDeviceGetSupportedEventTypes, device, eventTypes);
  return PutFor(device, eventTypes, kSupportedEvents);
}

extern "C" nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long eventTypes,
                                                 nvmlEventSet_t set) {
  SIM_CALL(nvmlDeviceRegisterEvents, device, eventTypes, set);
  if (IndexOf(device) == kNoDevice || set == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return (eventTypes & ~kSupportedEvents) != 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

extern "C" nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t* data,
                                            unsigned int timeoutms) {
  SIM_CALL(nvmlEventSetWait_v2, set, data, timeoutms);
  return Wait(set, data, timeoutms);
}

extern "C" nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t* data,
                                         unsigned int timeoutms) {
  SIM_CALL(nvmlEventSetWait, set, data, timeoutms);
  return Wait(set, data, timeoutms);
}
