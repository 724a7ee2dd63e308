// passthrough.cpp: hookgen 1, templates/passthrough.cpp.j2, model 0d5d24616bf57027
// Generated: change the model or the template, never this file.
// clang-format off
#include "real.h"

extern "C" {
[[gnu::weak]] CUresult cuGadgetArmOnly(CUgadget gadget) { GPUFENCE_TAIL return real::cuGadgetArmOnly(gadget); }
[[gnu::weak]] CUresult cuGadgetBlend(float w0, float w1, float w2, float w3, float w4, float w5, float w6, float w7, double bias, int n0, int n1, long n2, unsigned long long n3, CUbytes n4, size_t n5) { GPUFENCE_TAIL return real::cuGadgetBlend(w0, w1, w2, w3, w4, w5, w6, w7, bias, n0, n1, n2, n3, n4, n5); }
[[gnu::weak]] CUresult cuGadgetCopy(void* dst, const void* src, size_t bytes) { GPUFENCE_TAIL return real::cuGadgetCopy(dst, src, bytes); }
[[gnu::weak]] CUresult cuGadgetCopy_ptds(void* dst, const void* src, size_t bytes) { GPUFENCE_TAIL return real::cuGadgetCopy_ptds(dst, src, bytes); }
[[gnu::weak]] CUresult cuGadgetFill(void* p, float value, double scale, CUstream hStream) { GPUFENCE_TAIL return real::cuGadgetFill(p, value, scale, hStream); }
[[gnu::weak]] CUresult cuGadgetFill_ptsz(void* p, float value, double scale, CUstream hStream) { GPUFENCE_TAIL return real::cuGadgetFill_ptsz(p, value, scale, hStream); }
[[gnu::weak]] CUresult cuGadgetFree(void* p) { GPUFENCE_TAIL return real::cuGadgetFree(p); }
[[gnu::weak]] CUresult cuGadgetImport(CUgadget* gadget, CUtoken token, unsigned int flags) { return real::cuGadgetImport(gadget, token, flags); }
[[gnu::weak]] CUresult cuGadgetMany(const CUplan* plan, int a, unsigned int b, long long c, size_t d, float e, double f, unsigned char g, CUcolor h, void* i, const void* const* j, unsigned short k, float l, uint64_t m, CUgadget n, CUstream o) { GPUFENCE_TAIL return real::cuGadgetMany(plan, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o); }
[[gnu::weak]] CUresult cuGadgetName(char name[32], int len) { GPUFENCE_TAIL return real::cuGadgetName(name, len); }
[[gnu::weak]] CUresult cuGadgetOnDone(CUstream hStream, CUdoneFn fn, void* userData) { GPUFENCE_TAIL return real::cuGadgetOnDone(hStream, fn, userData); }
[[gnu::weak]] CUresult cuGadgetOpen(CUgadget* gadget, unsigned int bytes) { GPUFENCE_TAIL return real::cuGadgetOpen(gadget, bytes); }
[[gnu::weak]] CUresult cuGadgetOpen_v2(CUgadget* gadget, size_t bytes, CUshape shape, unsigned long long flags) { return real::cuGadgetOpen_v2(gadget, bytes, shape, flags); }
[[gnu::weak]] CUresult cuGadgetOpen_v3(CUgadget* gadget, const CUplan* plan) { GPUFENCE_TAIL return real::cuGadgetOpen_v3(gadget, plan); }
[[gnu::weak]] CUresult cuGadgetRelease(void* p) { GPUFENCE_TAIL return real::cuGadgetRelease(p); }
[[gnu::weak]] unsigned long long cuGadgetVersion() { GPUFENCE_TAIL return real::cuGadgetVersion(); }
[[gnu::weak]] CUresult cuGadgetWalk(size_t (*visit)(int, void*), CUlookupFn* lookup, void* p) { GPUFENCE_TAIL return real::cuGadgetWalk(visit, lookup, p); }
[[gnu::weak]] const char* nvmlErrorString(nvmlReturn_t result) { GPUFENCE_TAIL return real::nvmlErrorString(result); }
[[gnu::weak]] nvmlReturn_t nvmlGaugeGet(nvmlGauge_t gauge, nvmlReading_t* readings) { GPUFENCE_TAIL return real::nvmlGaugeGet(gauge, readings); }
[[gnu::weak]] nvmlReturn_t nvmlGaugeInit_v2() { GPUFENCE_TAIL return real::nvmlGaugeInit_v2(); }
[[gnu::weak]] nvmlReturn_t nvmlGaugeRead(nvmlGauge_t gauge, nvmlReading_t* readings) { GPUFENCE_TAIL return real::nvmlGaugeRead(gauge, readings); }
[[gnu::weak]] nvmlReturn_t nvmlGaugeRead_v2(nvmlGauge_t gauge, unsigned int* count, nvmlReading_t* readings) { GPUFENCE_TAIL return real::nvmlGaugeRead_v2(gauge, count, readings); }
}  // extern "C"
