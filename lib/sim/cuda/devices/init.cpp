// cuInit and cuDriverGetVersion.
//
// Owns the moment from which the driver works.  Must not know contexts or memory.
#include "cuda/devices/device.h"
#include "driver_abi.h"
#include "machine/calls.h"
#include "machine/machine.h"
#include "machine/version.h"

// Costs no device memory: only contexts do.  A forked child of an initialised process stays refused
// for ever, as with the real driver.
extern "C" CUresult cuInit(unsigned int Flags) {
  SIM_CALL_ANYTIME(cuInit, Flags);
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (sim::IsOrphanedByFork()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!sim::machine::Open()) return CUDA_ERROR_OPERATING_SYSTEM;
  if (sim::device::Enumerate() == 0) return CUDA_ERROR_NO_DEVICE;
  if (!sim::machine::ClaimSlot()) return CUDA_ERROR_OPERATING_SYSTEM;
  sim::SetInitialized(true, /*lost_by_fork=*/true);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuDriverGetVersion(int* driverVersion) {
  SIM_CALL_ANYTIME(cuDriverGetVersion, driverVersion);
  if (driverVersion == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *driverVersion = sim::ConfiguredDriver().cuda_version;
  return CUDA_SUCCESS;
}
