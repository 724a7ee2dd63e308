// Clocks, power, temperature, PCIe and modes: figures that stand still or follow the device's load.
//
// An H200's orders of magnitude, so that monitoring tools show something sane. Nothing can be set.
#include "driver_abi.h"
#include "machine/calls.h"
#include "nvml/board.h"

namespace {

using sim::nvml::IndexOf;
using sim::nvml::kNoDevice;
using sim::nvml::PutFor;

constexpr unsigned kMaxSmMhz = 1980;
constexpr unsigned kIdleSmMhz = 345;
constexpr unsigned kMemoryMhz = 3201;
constexpr unsigned kMaxVideoMhz = 1545;
constexpr unsigned kPowerLimitMw = 700'000;
constexpr unsigned kLeastPowerLimitMw = 200'000;
constexpr unsigned kIdlePowerMw = 75'000;
constexpr unsigned kIdleCelsius = 30;
constexpr unsigned kFullLoadCelsius = 40;  // on top of idle
constexpr unsigned kSlowdownCelsius = 87;
constexpr unsigned kPcieGeneration = 5;
constexpr unsigned kPcieLanes = 16;

constexpr unsigned long long kClocksIdle = 1;  // reason: nothing runs

// 0 for what is no device; the answer is then refused anyway.
unsigned Load(nvmlDevice_t device) {
  const int index = IndexOf(device);
  return index == kNoDevice ? 0 : sim::nvml::LoadPercent(index);
}

unsigned MaxMhz(nvmlClockType_t type) {
  switch (type) {
    case NVML_CLOCK_GRAPHICS:
    case NVML_CLOCK_SM:
      return kMaxSmMhz;
    case NVML_CLOCK_MEM:
      return kMemoryMhz;
    case NVML_CLOCK_VIDEO:
      return kMaxVideoMhz;
    default:
      return 0;
  }
}

nvmlReturn_t PutMaxMhz(nvmlDevice_t device, nvmlClockType_t type, unsigned* mhz) {
  return MaxMhz(type) == 0 ? NVML_ERROR_INVALID_ARGUMENT : PutFor(device, mhz, MaxMhz(type));
}

}  // namespace

extern "C" nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type,
                                                  unsigned int* clock) {
  SIM_CALL(nvmlDeviceGetMaxClockInfo, device, type, clock);
  return PutMaxMhz(device, type, clock);
}

// Memory always runs at full clock, the rest only under load.
extern "C" nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type,
                                               unsigned int* clock) {
  SIM_CALL(nvmlDeviceGetClockInfo, device, type, clock);
  const bool is_idle = type != NVML_CLOCK_MEM && Load(device) == 0;
  return is_idle && MaxMhz(type) != 0 ? PutFor(device, clock, kIdleSmMhz)
                                      : PutMaxMhz(device, type, clock);
}

extern "C" nvmlReturn_t nvmlDeviceGetMaxCustomerBoostClock(nvmlDevice_t device,
                                                           nvmlClockType_t clockType,
                                                           unsigned int* clockMHz) {
  SIM_CALL(nvmlDeviceGetMaxCustomerBoostClock, device, clockType, clockMHz);
  return nvmlDeviceGetMaxClockInfo(device, clockType, clockMHz);
}

extern "C" nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device,
                                                       nvmlClockType_t clockType,
                                                       unsigned int* clockMHz) {
  SIM_CALL(nvmlDeviceGetApplicationsClock, device, clockType, clockMHz);
  return PutMaxMhz(device, clockType, clockMHz);
}

extern "C" nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(nvmlDevice_t device,
                                                              nvmlClockType_t clockType,
                                                              unsigned int* clockMHz) {
  SIM_CALL(nvmlDeviceGetDefaultApplicationsClock, device, clockType, clockMHz);
  return PutMaxMhz(device, clockType, clockMHz);
}

extern "C" nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(
    nvmlDevice_t device, unsigned long long* clocksEventReasons) {
  SIM_CALL(nvmlDeviceGetCurrentClocksEventReasons, device, clocksEventReasons);
  return PutFor(device, clocksEventReasons, Load(device) == 0 ? kClocksIdle : 0ull);
}

extern "C" nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(
    nvmlDevice_t device, unsigned long long* clocksThrottleReasons) {
  SIM_CALL(nvmlDeviceGetCurrentClocksThrottleReasons, device, clocksThrottleReasons);
  return PutFor(device, clocksThrottleReasons, Load(device) == 0 ? kClocksIdle : 0ull);
}

extern "C" nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t* pState) {
  SIM_CALL(nvmlDeviceGetPerformanceState, device, pState);
  return PutFor(device, pState, NVML_PSTATE_0);
}

extern "C" nvmlReturn_t nvmlDeviceGetPowerState(nvmlDevice_t device, nvmlPstates_t* pState) {
  SIM_CALL(nvmlDeviceGetPowerState, device, pState);
  return PutFor(device, pState, NVML_PSTATE_0);
}

extern "C" nvmlReturn_t nvmlDeviceGetPowerManagementMode(nvmlDevice_t device,
                                                         nvmlEnableState_t* mode) {
  SIM_CALL(nvmlDeviceGetPowerManagementMode, device, mode);
  return PutFor(device, mode, NVML_FEATURE_ENABLED);
}

extern "C" nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int* power) {
  SIM_CALL(nvmlDeviceGetPowerUsage, device, power);
  return PutFor(device, power, kIdlePowerMw + (kPowerLimitMw - kIdlePowerMw) / 100 * Load(device));
}

extern "C" nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device,
                                                          unsigned int* limit) {
  SIM_CALL(nvmlDeviceGetPowerManagementLimit, device, limit);
  return PutFor(device, limit, kPowerLimitMw);
}

extern "C" nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device,
                                                                 unsigned int* defaultLimit) {
  SIM_CALL(nvmlDeviceGetPowerManagementDefaultLimit, device, defaultLimit);
  return PutFor(device, defaultLimit, kPowerLimitMw);
}

extern "C" nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int* limit) {
  SIM_CALL(nvmlDeviceGetEnforcedPowerLimit, device, limit);
  return PutFor(device, limit, kPowerLimitMw);
}

extern "C" nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device,
                                                                     unsigned int* minLimit,
                                                                     unsigned int* maxLimit) {
  SIM_CALL(nvmlDeviceGetPowerManagementLimitConstraints, device, minLimit, maxLimit);
  if (maxLimit == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const nvmlReturn_t result = PutFor(device, minLimit, kLeastPowerLimitMw);
  if (result == NVML_SUCCESS) *maxLimit = kPowerLimitMw;
  return result;
}

extern "C" nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device,
                                                 nvmlTemperatureSensors_t sensorType,
                                                 unsigned int* temp) {
  SIM_CALL(nvmlDeviceGetTemperature, device, sensorType, temp);
  if (sensorType != NVML_TEMPERATURE_GPU) return NVML_ERROR_INVALID_ARGUMENT;
  return PutFor(device, temp, kIdleCelsius + kFullLoadCelsius * Load(device) / 100);
}

extern "C" nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device,
                                                          nvmlTemperatureThresholds_t thresholdType,
                                                          unsigned int* temp) {
  SIM_CALL(nvmlDeviceGetTemperatureThreshold, device, thresholdType, temp);
  constexpr unsigned kSlowdown = 1;
  if (static_cast<unsigned>(thresholdType) != kSlowdown) return NVML_ERROR_NOT_SUPPORTED;
  return PutFor(device, temp, kSlowdownCelsius);
}

extern "C" nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
  SIM_CALL(nvmlDeviceGetPersistenceMode, device, mode);
  return PutFor(device, mode, NVML_FEATURE_ENABLED);
}

extern "C" nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t* mode) {
  SIM_CALL(nvmlDeviceGetComputeMode, device, mode);
  return PutFor(device, mode, NVML_COMPUTEMODE_DEFAULT);
}

extern "C" nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device, nvmlEnableState_t* display) {
  SIM_CALL(nvmlDeviceGetDisplayMode, device, display);
  return PutFor(device, display, NVML_FEATURE_DISABLED);
}

extern "C" nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device,
                                                   nvmlEnableState_t* isActive) {
  SIM_CALL(nvmlDeviceGetDisplayActive, device, isActive);
  return PutFor(device, isActive, NVML_FEATURE_DISABLED);
}

extern "C" nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device,
                                                            unsigned int* currLinkGen) {
  SIM_CALL(nvmlDeviceGetCurrPcieLinkGeneration, device, currLinkGen);
  return PutFor(device, currLinkGen, kPcieGeneration);
}

extern "C" nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device,
                                                           unsigned int* maxLinkGen) {
  SIM_CALL(nvmlDeviceGetMaxPcieLinkGeneration, device, maxLinkGen);
  return PutFor(device, maxLinkGen, kPcieGeneration);
}

extern "C" nvmlReturn_t nvmlDeviceGetGpuMaxPcieLinkGeneration(nvmlDevice_t device,
                                                              unsigned int* maxLinkGenDevice) {
  SIM_CALL(nvmlDeviceGetGpuMaxPcieLinkGeneration, device, maxLinkGenDevice);
  return PutFor(device, maxLinkGenDevice, kPcieGeneration);
}

extern "C" nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device,
                                                       unsigned int* currLinkWidth) {
  SIM_CALL(nvmlDeviceGetCurrPcieLinkWidth, device, currLinkWidth);
  return PutFor(device, currLinkWidth, kPcieLanes);
}

extern "C" nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device,
                                                      unsigned int* maxLinkWidth) {
  SIM_CALL(nvmlDeviceGetMaxPcieLinkWidth, device, maxLinkWidth);
  return PutFor(device, maxLinkWidth, kPcieLanes);
}

extern "C" nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device,
                                                    nvmlPcieUtilCounter_t counter,
                                                    unsigned int* value) {
  SIM_CALL(nvmlDeviceGetPcieThroughput, device, counter, value);
  return PutFor(device, value, 0u);
}

extern "C" nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned int* value) {
  SIM_CALL(nvmlDeviceGetPcieReplayCounter, device, value);
  return PutFor(device, value, 0u);
}
