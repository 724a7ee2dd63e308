// NVML's beginning and end, its texts for codes, and what it says about the machine as a whole:
// versions, processes' names, units, excluded boards.
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "driver_abi.h"
#include "machine/calls.h"
#include "machine/machine.h"
#include "machine/version.h"
#include "nvml/board.h"

namespace {

// nvmlInitWithFlags: succeed although there is no GPU.
constexpr unsigned kInitNoGpus = 1;

// Ending more often than beginning is an error from here on, and was none up to 550.
constexpr uint16_t kStrictEndBranch = 580;

constinit pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
constinit unsigned g_initialized = 0;  // nested nvmlInit calls; under g_lock

struct ErrorText {
  nvmlReturn_t code;
  uint16_t since_branch;
  const char* text;
};

// What nvmlErrorString answered on 470, 525, 535 and 550.
constexpr ErrorText kErrors[] = {
    {NVML_SUCCESS, 0, "Success"},
    {NVML_ERROR_UNINITIALIZED, 0, "Uninitialized"},
    {NVML_ERROR_INVALID_ARGUMENT, 0, "Invalid Argument"},
    {NVML_ERROR_NOT_SUPPORTED, 0, "Not Supported"},
    {NVML_ERROR_NO_PERMISSION, 0, "Insufficient Permissions"},
    {NVML_ERROR_ALREADY_INITIALIZED, 0, "Already Initialized"},
    {NVML_ERROR_NOT_FOUND, 0, "Not Found"},
    {NVML_ERROR_INSUFFICIENT_SIZE, 0, "Insufficient Size"},
    {NVML_ERROR_INSUFFICIENT_POWER, 0, "Insufficient External Power"},
    {NVML_ERROR_DRIVER_NOT_LOADED, 0, "Driver Not Loaded"},
    {NVML_ERROR_TIMEOUT, 0, "Timeout"},
    {NVML_ERROR_IRQ_ISSUE, 0, "Interrupt Request Issue"},
    {NVML_ERROR_LIBRARY_NOT_FOUND, 0, "NVML Shared Library Not Found"},
    {NVML_ERROR_FUNCTION_NOT_FOUND, 0, "Function Not Found"},
    {NVML_ERROR_CORRUPTED_INFOROM, 0, "Corrupted infoROM"},
    {NVML_ERROR_GPU_IS_LOST, 0, "GPU is lost"},
    {NVML_ERROR_RESET_REQUIRED, 0, "GPU requires reset"},
    {NVML_ERROR_OPERATING_SYSTEM, 0, "GPU access blocked by the operating system"},
    {NVML_ERROR_LIB_RM_VERSION_MISMATCH, 0, "Driver/library version mismatch"},
    {NVML_ERROR_IN_USE, 0, "In use by another client"},
    {NVML_ERROR_MEMORY, 0, "Insufficient Memory"},
    {NVML_ERROR_NO_DATA, 525, "No data"},
    {NVML_ERROR_VGPU_ECC_NOT_SUPPORTED, 525, "vGPU ECC not supported"},
    {NVML_ERROR_INSUFFICIENT_RESOURCES, 0, "Insufficient Resources"},
    {NVML_ERROR_FREQ_NOT_SUPPORTED, 0, "Invalid Frequency"},
    {NVML_ERROR_ARGUMENT_VERSION_MISMATCH, 525, "Argument version mismatch"},
    {NVML_ERROR_DEPRECATED, 525, "Requested functionality has been deprecated"},
    {NVML_ERROR_NOT_READY, 535, "System is not in ready state"},
    {NVML_ERROR_GPU_NOT_FOUND, 550, "No supported GPUs were found"},
    {NVML_ERROR_INVALID_STATE, 550, "Resource not in correct state to perform requested operation"},
};

// A forked child starts anew, as if nobody had called nvmlInit. Under g_lock.
void ForgetParent() {
  if (sim::IsOrphanedByFork()) g_initialized = 0;
}

// Opens the machine for the first of nested initialisations.
nvmlReturn_t Attach(unsigned flags) {
  if (!sim::machine::Open()) return NVML_ERROR_UNKNOWN;
  // What a machine without a GPU says, where no kernel module is loaded.
  const bool has_gpus = sim::machine::DeviceCount() > 0;
  return has_gpus || (flags & kInitNoGpus) != 0 ? NVML_SUCCESS : NVML_ERROR_DRIVER_NOT_LOADED;
}

}  // namespace

extern "C" nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
  SIM_CALL_ANYTIME(nvmlInitWithFlags, flags);
  pthread_mutex_lock(&g_lock);
  ForgetParent();
  const nvmlReturn_t result = g_initialized > 0 ? NVML_SUCCESS : Attach(flags);
  if (result == NVML_SUCCESS && ++g_initialized == 1) {
    sim::SetInitialized(true, /*lost_by_fork=*/true);
  }
  pthread_mutex_unlock(&g_lock);
  return result;
}

// The real library reaches this one through its PLT, so an interposer sees a second call.
extern "C" nvmlReturn_t nvmlInit_v2(void) {
  SIM_CALL_ANYTIME(nvmlInit_v2);
  return nvmlInitWithFlags(0);
}

extern "C" nvmlReturn_t nvmlInit(void) {
  SIM_CALL_ANYTIME(nvmlInit);
  return nvmlInit_v2();
}

extern "C" nvmlReturn_t nvmlShutdown(void) {
  SIM_CALL_ANYTIME(nvmlShutdown);
  pthread_mutex_lock(&g_lock);
  ForgetParent();
  const bool was_initialized = g_initialized > 0;
  if (was_initialized && --g_initialized == 0) sim::SetInitialized(false, false);
  pthread_mutex_unlock(&g_lock);
  const bool is_refused = !was_initialized && sim::ConfiguredDriver().branch >= kStrictEndBranch;
  return is_refused ? NVML_ERROR_UNINITIALIZED : NVML_SUCCESS;
}

extern "C" const char* nvmlErrorString(nvmlReturn_t result) {
  const sim::Visit ignored = sim::EnterWith(sim::Door::kAnytime, gpufence::kSym_nvmlErrorString,
                                            result);  // counted; text is never refused
  (void)ignored;
  for (const ErrorText& known : kErrors) {
    if (known.code != result) continue;
    if (known.since_branch <= sim::ConfiguredDriver().branch) return known.text;
  }
  return "Unknown Error";
}

// In no header; the real one refuses what it does not know even before nvmlInit.
extern "C" [[gnu::visibility("default")]] nvmlReturn_t nvmlInternalGetExportTable(
    const void** table, const void* identifier);
extern "C" nvmlReturn_t nvmlInternalGetExportTable(const void** table, const void* identifier) {
  SIM_CALL_ANYTIME(nvmlInternalGetExportTable, table, identifier);
  return NVML_ERROR_INVALID_ARGUMENT;
}

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
