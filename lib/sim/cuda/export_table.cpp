// What the driver says about itself before cuInit: its version, and private tables, of which the
// simulated one has none.
#include "driver_abi.h"
#include "machine/calls.h"
#include "machine/version.h"

extern "C" CUresult cuDriverGetVersion(int* driverVersion) {
  SIM_CALL_ANYTIME(cuDriverGetVersion, driverVersion);
  if (driverVersion == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *driverVersion = sim::ConfiguredDriver().cuda_version;
  return CUDA_SUCCESS;
}

// A real driver answers an unknown identifier like this. The known ones are NVIDIA's private
// agreement with its own libraries, above all the CUDA runtime, which therefore needs a real driver.
extern "C" CUresult cuGetExportTable(const void** ppExportTable, const CUuuid* pExportTableId) {
  SIM_CALL_ANYTIME(cuGetExportTable, ppExportTable, pExportTableId);
  return CUDA_ERROR_INVALID_VALUE;
}
