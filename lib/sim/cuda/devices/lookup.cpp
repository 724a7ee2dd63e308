// cuGetProcAddress in both forms, as each driver generation answers it.
//
// Owns the outer manners: what is written, which code comes back.  Which symbol a base, a version
// and a flag mean is rendered (lookup.h); which symbols this driver has, machine/hide.h knows.
#include "lookup.h"

#include "driver_abi.h"
#include "machine/calls.h"
#include "machine/hide.h"
#include "machine/version.h"

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
