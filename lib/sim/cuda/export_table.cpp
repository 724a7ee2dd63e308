// The driver's private function tables, of which the simulated one has none.
#include "driver_abi.h"
#include "machine/calls.h"

// A real driver answers an unknown identifier like this. The known ones are NVIDIA's private
// agreement with its own libraries, above all the CUDA runtime, which therefore needs a real driver.
extern "C" CUresult cuGetExportTable(const void** ppExportTable, const CUuuid* pExportTableId) {
  SIM_CALL_ANYTIME(cuGetExportTable, ppExportTable, pExportTableId);
  return CUDA_ERROR_INVALID_VALUE;
}
