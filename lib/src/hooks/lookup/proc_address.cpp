// cuGetProcAddress, both arities. The driver answers first, with the caller's arguments; then a
// pointer of the driver becomes our wrapper of exactly that symbol. Status, codes and NULL pass
// unchanged, so a name that is absent in the driver is absent through us.
#include "base/entries.h"
#include "base/log.h"
#include "base/resolve.h"
#include "lookup.h"
#include "real.h"

namespace gpufence {
namespace {

constexpr cuuint64_t kPerThreadDefaultStream = 2;

// Some later driver may answer with an address that is no export. An enforced function must not be
// reachable past us then: the headers' own table says which variant was meant.
void* WrapperByThreshold(const char* name, int cuda_version, cuuint64_t flags, void* found) {
  const Sym sym = FindVariant(name, static_cast<uint32_t>(cuda_version),
                              (flags & kPerThreadDefaultStream) != 0, DriverHas)
                      .sym;
  if (sym == kNoSym || !IsEnforced(kSymInfo[sym].kind)) return found;
  GPUFENCE_LOG(kWarn,
               "cuGetProcAddress(\"%s\", %d) of this driver returned an address that it does not "
               "export; the program gets the hook of %s instead. Report this line with the output "
               "of `findsyms`",
               name, cuda_version, kSymInfo[sym].name);
  return kWrapper[sym];
}

void* Translate(const char* name, int cuda_version, cuuint64_t flags, void* found) {
  const Sym sym = SymAt(found);
  GPUFENCE_TRACE(kTrace, "cuGetProcAddress(\"%s\", %d, %llu): %s", name, cuda_version,
                 static_cast<unsigned long long>(flags),
                 sym != kNoSym ? kSymInfo[sym].name : "not an export");
  return sym != kNoSym ? kWrapper[sym] : WrapperByThreshold(name, cuda_version, flags, found);
}

}  // namespace
}  // namespace gpufence

extern "C" CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion,
                                     cuuint64_t flags) {
  const CUresult rc = real::cuGetProcAddress(symbol, pfn, cudaVersion, flags);
  if (rc == CUDA_SUCCESS && pfn != nullptr && *pfn != nullptr) {
    *pfn = gpufence::Translate(symbol, cudaVersion, flags, *pfn);
  }
  return rc;
}

extern "C" CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion,
                                        cuuint64_t flags,
                                        CUdriverProcAddressQueryResult* symbolStatus) {
  const CUresult rc = real::cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, symbolStatus);
  if (rc == CUDA_SUCCESS && pfn != nullptr && *pfn != nullptr) {
    *pfn = gpufence::Translate(symbol, cudaVersion, flags, *pfn);
  }
  return rc;
}
