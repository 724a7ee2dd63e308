// What a driver exports but does not serve: private function tables, exports that no header
// declares, functions that newer drivers gave up.
#include "driver_abi.h"
#include "machine/calls.h"
#include "machine/version.h"

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

// Given up by driver 525, which says so before cuInit too.
extern "C" CUresult cuProfilerInitialize(const char* configFile, const char* outputFile,
                                         CUoutput_mode outputMode) {
  constexpr uint16_t kGaveUpBranch = 525;
  if (sim::ConfiguredDriver().branch < kGaveUpBranch) {
    SIM_CALL(cuProfilerInitialize, configFile, outputFile, outputMode);
    return CUDA_SUCCESS;
  }
  SIM_CALL_ANYTIME(cuProfilerInitialize, configFile, outputFile, outputMode);
  return CUDA_ERROR_NOT_SUPPORTED;
}
