// What lies outside the documented API: private function tables, and exports that no header
// declares.
#include "driver_abi.h"
#include "machine/calls.h"

// A real driver answers an unknown identifier like this. The known ones are NVIDIA's private
// agreement with its own libraries, above all the CUDA runtime, which therefore needs a real
// driver.
extern "C" CUresult cuGetExportTable(const void** ppExportTable, const CUuuid* pExportTableId) {
  SIM_CALL_ANYTIME(cuGetExportTable, ppExportTable, pExportTableId);
  return CUDA_ERROR_INVALID_VALUE;
}

// Every real driver says so, before cuInit too, whatever the arguments, whose types nobody knows.
extern "C" {
[[gnu::visibility("default")]] CUresult cuMemGetAttribute();
[[gnu::visibility("default")]] CUresult cuMemGetAttribute_v2();
}

extern "C" CUresult cuMemGetAttribute() {
  SIM_CALL_ANYTIME(cuMemGetAttribute);
  return CUDA_ERROR_NOT_SUPPORTED;
}

extern "C" CUresult cuMemGetAttribute_v2() {
  SIM_CALL_ANYTIME(cuMemGetAttribute_v2);
  return CUDA_ERROR_NOT_SUPPORTED;
}
