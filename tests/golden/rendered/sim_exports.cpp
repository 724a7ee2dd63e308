// sim_exports.cpp: hookgen 1, templates/sim_exports.cpp.j2, model 0d5d24616bf57027
// Generated: change the model or the template, never this file.
// clang-format off
#include <type_traits>

#include "driver_abi.h"
#include "machine/calls.h"
#include "model.h"

constinit const char gpufence_compiled_from_model_0d5d24616bf57027 = 0;

namespace {

// The door's answer (an injected fault, "not initialised"), else "not supported".
CUresult Unsupported(gpufence::Sym sym) {
  const int refusal = gpufence_sim_call(sym);
  return refusal != 0 ? static_cast<CUresult>(refusal) : CUDA_ERROR_NOT_SUPPORTED;
}

// For functions that answer something else than a status: counted, and a value that is never null.
template <typename Value>
Value Nothing(gpufence::Sym sym) {
  (void)Unsupported(sym);
  if constexpr (std::is_same_v<Value, const char*>) {
    return "Unknown Error";
  } else {
    return Value();
  }
}

}  // namespace

extern "C" {
[[gnu::weak]] CUresult cuGadgetArmOnly(CUgadget) { return Unsupported(gpufence::kSym_cuGadgetArmOnly); }
[[gnu::weak]] CUresult cuGadgetBlend(float, float, float, float, float, float, float, float, double, int, int, long, unsigned long long, CUbytes, size_t) { return Unsupported(gpufence::kSym_cuGadgetBlend); }
[[gnu::weak]] CUresult cuGadgetCopy(void*, const void*, size_t) { return Unsupported(gpufence::kSym_cuGadgetCopy); }
[[gnu::weak]] CUresult cuGadgetCopy_ptds(void*, const void*, size_t) { return Unsupported(gpufence::kSym_cuGadgetCopy_ptds); }
[[gnu::weak]] CUresult cuGadgetFill(void*, float, double, CUstream) { return Unsupported(gpufence::kSym_cuGadgetFill); }
[[gnu::weak]] CUresult cuGadgetFill_ptsz(void*, float, double, CUstream) { return Unsupported(gpufence::kSym_cuGadgetFill_ptsz); }
[[gnu::weak]] CUresult cuGadgetFree(void*) { return Unsupported(gpufence::kSym_cuGadgetFree); }
[[gnu::weak]] CUresult cuGadgetImport(CUgadget*, CUtoken, unsigned int) { return Unsupported(gpufence::kSym_cuGadgetImport); }
[[gnu::weak]] CUresult cuGadgetMany(const CUplan*, int, unsigned int, long long, size_t, float, double, unsigned char, CUcolor, void*, const void* const*, unsigned short, float, uint64_t, CUgadget, CUstream) { return Unsupported(gpufence::kSym_cuGadgetMany); }
[[gnu::weak]] CUresult cuGadgetName(char[32], int) { return Unsupported(gpufence::kSym_cuGadgetName); }
[[gnu::weak]] CUresult cuGadgetOnDone(CUstream, CUdoneFn, void*) { return Unsupported(gpufence::kSym_cuGadgetOnDone); }
[[gnu::weak]] CUresult cuGadgetOpen(CUgadget*, unsigned int) { return Unsupported(gpufence::kSym_cuGadgetOpen); }
[[gnu::weak]] CUresult cuGadgetOpen_v2(CUgadget*, size_t, CUshape, unsigned long long) { return Unsupported(gpufence::kSym_cuGadgetOpen_v2); }
[[gnu::weak]] CUresult cuGadgetOpen_v3(CUgadget*, const CUplan*) { return Unsupported(gpufence::kSym_cuGadgetOpen_v3); }
[[gnu::weak]] CUresult cuGadgetRelease(void*) { return Unsupported(gpufence::kSym_cuGadgetRelease); }
[[gnu::weak]] unsigned long long cuGadgetVersion() { return Nothing<unsigned long long>(gpufence::kSym_cuGadgetVersion); }
[[gnu::weak]] CUresult cuGadgetWalk(size_t (*)(int, void*), CUlookupFn*, void*) { return Unsupported(gpufence::kSym_cuGadgetWalk); }

// Exports that no header declares; whatever their arguments are, they stay untouched.
#pragma GCC visibility push(default)
CUresult cuGadgetPrivate();
[[gnu::weak]] CUresult cuGadgetPrivate() { return Unsupported(gpufence::kSym_cuGadgetPrivate); }

// The debugger's functions: there is nothing to debug.
int cudbgGetAPI();
[[gnu::weak]] int cudbgGetAPI() { return 0; }
#pragma GCC visibility pop
}  // extern "C"
