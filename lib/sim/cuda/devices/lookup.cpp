// How a program comes to the driver: cuInit and its version, cuGetProcAddress in both forms, as
// each driver generation answers it, and what a driver exports but does not serve: private function
// tables, exports that no header declares, functions that newer drivers gave up.
//
// Owns the moment from which the driver works, and the outer manners of lookups: what is written,
// which code comes back. Which symbol a base, a version and a flag mean is rendered (lookup.h);
// which symbols this driver has, machine/hide.h knows. Must not know contexts or memory.
#include "lookup.h"

#include "cuda/devices/device.h"
#include "driver_abi.h"
#include "machine/calls.h"
#include "machine/hide.h"
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

namespace {

using gpufence::VariantStatus;

// Bits 0 and 1 of the flags; anything above is refused.  Bit 1 is the per-thread default stream.
constexpr cuuint64_t kKnownFlags =
    CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

// From this branch on, a version above the driver's own is refused instead of meaning "newest".
constexpr uint16_t kStrictVersionBranch = 580;

// Negative versions are never above the driver's own and mean the newest there is.
bool IsAcceptable(int cuda_version, cuuint64_t flags) {
  if ((flags & ~kKnownFlags) != 0) return false;
  const sim::Driver& driver = sim::ConfiguredDriver();
  return driver.branch < kStrictVersionBranch || cuda_version <= driver.cuda_version;
}

gpufence::Variant Find(const char* base, int cuda_version, cuuint64_t flags) {
  return gpufence::FindVariant(
      base, static_cast<uint32_t>(cuda_version),
      (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0,
      [](gpufence::Sym sym) { return sim::ExportAddress(sym) != nullptr; });
}

}  // namespace

// The four-argument form tells every miss by 500 and then leaves *pfn alone.
extern "C" CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion,
                                     cuuint64_t flags) {
  SIM_CALL_ANYTIME(cuGetProcAddress, symbol, pfn, cudaVersion, flags);
  if (!IsAcceptable(cudaVersion, flags)) return CUDA_ERROR_INVALID_VALUE;

  const gpufence::Variant found = Find(symbol, cudaVersion, flags);
  if (found.status != VariantStatus::kFound) return CUDA_ERROR_NOT_FOUND;
  *pfn = sim::ExportAddress(found.sym);
  return CUDA_SUCCESS;
}

// The five-argument form succeeds on a miss too; null and the status tell.
extern "C" CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion,
                                        cuuint64_t flags,
                                        CUdriverProcAddressQueryResult* symbolStatus) {
  SIM_CALL_ANYTIME(cuGetProcAddress_v2, symbol, pfn, cudaVersion, flags, symbolStatus);
  if (!IsAcceptable(cudaVersion, flags)) return CUDA_ERROR_INVALID_VALUE;

  const gpufence::Variant found = Find(symbol, cudaVersion, flags);
  *pfn = found.status == VariantStatus::kFound ? sim::ExportAddress(found.sym) : nullptr;
  if (symbolStatus == nullptr) return CUDA_SUCCESS;
  switch (found.status) {
    case VariantStatus::kFound:
      *symbolStatus = CU_GET_PROC_ADDRESS_SUCCESS;
      break;
    case VariantStatus::kUnknownName:
      *symbolStatus = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
      break;
    case VariantStatus::kVersionTooLow:
      *symbolStatus = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
      break;
  }
  return CUDA_SUCCESS;
}

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
