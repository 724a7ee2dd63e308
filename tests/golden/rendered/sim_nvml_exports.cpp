// sim_nvml_exports.cpp: hookgen 1, templates/sim_exports.cpp.j2, model 0d5d24616bf57027
// Generated: change the model or the template, never this file.
// clang-format off
#include <type_traits>

#include "driver_abi.h"
#include "machine/calls.h"
#include "model.h"

constinit const char gpufence_compiled_from_model_0d5d24616bf57027 = 0;

namespace {

// The door's answer (an injected fault, "not initialised"), else "not supported".
nvmlReturn_t Unsupported(gpufence::Sym sym) {
  const int refusal = gpufence_sim_call(sym);
  return refusal != 0 ? static_cast<nvmlReturn_t>(refusal) : NVML_ERROR_NOT_SUPPORTED;
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
[[gnu::weak]] const char* nvmlErrorString(nvmlReturn_t) { return Nothing<const char*>(gpufence::kSym_nvmlErrorString); }
[[gnu::weak]] nvmlReturn_t nvmlGaugeGet(nvmlGauge_t, nvmlReading_t*) { return Unsupported(gpufence::kSym_nvmlGaugeGet); }
[[gnu::weak]] nvmlReturn_t nvmlGaugeInit_v2() { return Unsupported(gpufence::kSym_nvmlGaugeInit_v2); }
[[gnu::weak]] nvmlReturn_t nvmlGaugeRead(nvmlGauge_t, nvmlReading_t*) { return Unsupported(gpufence::kSym_nvmlGaugeRead); }
[[gnu::weak]] nvmlReturn_t nvmlGaugeRead_v2(nvmlGauge_t, unsigned int*, nvmlReading_t*) { return Unsupported(gpufence::kSym_nvmlGaugeRead_v2); }

// Exports that no header declares; whatever their arguments are, they stay untouched.
#pragma GCC visibility push(default)
nvmlReturn_t nvmlGaugeSecret();
[[gnu::weak]] nvmlReturn_t nvmlGaugeSecret() { return Unsupported(gpufence::kSym_nvmlGaugeSecret); }
#pragma GCC visibility pop
}  // extern "C"
