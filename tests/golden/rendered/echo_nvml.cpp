// echo_nvml.cpp: hookgen 1, templates/echo_driver.cpp.j2, model 0d5d24616bf57027
// Generated: change the model or the template, never this file.
// clang-format off
#include "echo.h"

extern "C" {
#pragma GCC visibility push(default)
const char* nvmlErrorString(nvmlReturn_t result) { return echo::Recorded<const char*>(gpufence::kSym_nvmlErrorString, result); }
nvmlReturn_t nvmlGaugeGet(nvmlGauge_t gauge, nvmlReading_t* readings) { return echo::Recorded<nvmlReturn_t>(gpufence::kSym_nvmlGaugeGet, gauge, readings); }
nvmlReturn_t nvmlGaugeInit_v2() { return echo::Recorded<nvmlReturn_t>(gpufence::kSym_nvmlGaugeInit_v2); }
nvmlReturn_t nvmlGaugeRead(nvmlGauge_t gauge, nvmlReading_t* readings) { return echo::Recorded<nvmlReturn_t>(gpufence::kSym_nvmlGaugeRead, gauge, readings); }
nvmlReturn_t nvmlGaugeRead_v2(nvmlGauge_t gauge, unsigned int* count, nvmlReading_t* readings) { return echo::Recorded<nvmlReturn_t>(gpufence::kSym_nvmlGaugeRead_v2, gauge, count, readings); }

echo::Untyped nvmlGaugeSecret;
int nvmlGaugeSecret(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h, uint64_t i, double j, float k) { return echo::Recorded<int>(gpufence::kSym_nvmlGaugeSecret, a, b, c, d, e, f, g, h, i, j, k); }
#pragma GCC visibility pop
}  // extern "C"
