// What NVML says about the machine as a whole: versions, processes' names, units, excluded boards.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "driver_abi.h"
#include "machine/calls.h"
#include "machine/version.h"
#include "nvml/board.h"

namespace {

using sim::nvml::Put;
using sim::nvml::PutText;

// From this branch on, NVML tells its own version before nvmlInit too.
constexpr uint16_t kVersionAnytimeBranch = 535;

// The first argument of a process's command line, as the real library names processes. Reads at
// most `size` bytes; 0 when there is no such process.
size_t ReadProcessName(unsigned pid, char* name, size_t size) {
  char path[40];
  snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t got = read(fd, name, size - 1);
  close(fd);
  name[got > 0 ? got : 0] = '\0';
  return strlen(name);
}

}  // namespace

extern "C" nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned int length) {
  SIM_CALL(nvmlSystemGetDriverVersion, version, length);
  char text[sim::kDriverTextBytes];
  sim::FormatDriver(sim::ConfiguredDriver(), text, sizeof(text));
  return PutText(text, version, length);
}

// "12.550.163.01": the driver's version behind the major CUDA version.
extern "C" nvmlReturn_t nvmlSystemGetNVMLVersion(char* version, unsigned int length) {
  const sim::Driver& driver = sim::ConfiguredDriver();
  if (driver.branch >= kVersionAnytimeBranch) {
    SIM_CALL_ANYTIME(nvmlSystemGetNVMLVersion, version, length);
  } else {
    SIM_CALL(nvmlSystemGetNVMLVersion, version, length);
  }
  char number[sim::kDriverTextBytes];
  sim::FormatDriver(driver, number, sizeof(number));
  char text[sim::kDriverTextBytes + 4];
  snprintf(text, sizeof(text), "%d.%s", driver.cuda_version / 1000 % 100, number);
  return PutText(text, version, length);
}

extern "C" nvmlReturn_t nvmlSystemGetCudaDriverVersion(int* cudaDriverVersion) {
  SIM_CALL(nvmlSystemGetCudaDriverVersion, cudaDriverVersion);
  return Put(cudaDriverVersion, static_cast<int>(sim::ConfiguredDriver().cuda_version));
}

extern "C" nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* cudaDriverVersion) {
  SIM_CALL(nvmlSystemGetCudaDriverVersion_v2, cudaDriverVersion);
  return Put(cudaDriverVersion, static_cast<int>(sim::ConfiguredDriver().cuda_version));
}

extern "C" nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char* name,
                                                 unsigned int length) {
  SIM_CALL(nvmlSystemGetProcessName, pid, name, length);
  if (name == nullptr || length == 0) return NVML_ERROR_INVALID_ARGUMENT;
  char text[1024];
  if (ReadProcessName(pid, text, sizeof(text)) == 0) return NVML_ERROR_NOT_FOUND;
  return PutText(text, name, length);
}

extern "C" nvmlReturn_t nvmlSystemGetHicVersion(unsigned int* hwbcCount,
                                                nvmlHwbcEntry_t* hwbcEntries) {
  SIM_CALL(nvmlSystemGetHicVersion, hwbcCount, hwbcEntries);
  return Put(hwbcCount, 0u);
}

extern "C" nvmlReturn_t nvmlUnitGetCount(unsigned int* unitCount) {
  SIM_CALL(nvmlUnitGetCount, unitCount);
  return Put(unitCount, 0u);
}

extern "C" nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int* deviceCount) {
  SIM_CALL(nvmlGetExcludedDeviceCount, deviceCount);
  return Put(deviceCount, 0u);
}

extern "C" nvmlReturn_t nvmlGetExcludedDeviceInfoByIndex(unsigned int index,
                                                         nvmlExcludedDeviceInfo_t* info) {
  SIM_CALL(nvmlGetExcludedDeviceInfoByIndex, index, info);
  return NVML_ERROR_INVALID_ARGUMENT;  // there is none, so every index is out of range
}

// The older spellings of the same two; the header has them as macros, the library as functions.
extern "C" nvmlReturn_t nvmlGetBlacklistDeviceCount(unsigned int* deviceCount) {
  SIM_CALL(nvmlGetBlacklistDeviceCount, deviceCount);
  return Put(deviceCount, 0u);
}

extern "C" nvmlReturn_t nvmlGetBlacklistDeviceInfoByIndex(unsigned int index,
                                                          nvmlExcludedDeviceInfo_t* info) {
  SIM_CALL(nvmlGetBlacklistDeviceInfoByIndex, index, info);
  return NVML_ERROR_INVALID_ARGUMENT;
}
