// echo_cuda.cpp: hookgen 1, templates/echo_driver.cpp.j2, model 0d5d24616bf57027
// Generated: change the model or the template, never this file.
// clang-format off
#include "echo.h"

extern "C" {
#pragma GCC visibility push(default)
CUresult cuGadgetArmOnly(CUgadget gadget) { return echo::Recorded<CUresult>(gpufence::kSym_cuGadgetArmOnly, gadget); }
CUresult cuGadgetBlend(float w0, float w1, float w2, float w3, float w4, float w5, float w6, float w7, double bias, int n0, int n1, long n2, unsigned long long n3, CUbytes n4, size_t n5) { return echo::Recorded<CUresult>(gpufence::kSym_cuGadgetBlend, w0, w1, w2, w3, w4, w5, w6, w7, bias, n0, n1, n2, n3, n4, n5); }
CUresult cuGadgetCopy(void* dst, const void* src, size_t bytes) { return echo::Recorded<CUresult>(gpufence::kSym_cuGadgetCopy, dst, src, bytes); }
CUresult cuGadgetCopy_ptds(void* dst, const void* src, size_t bytes) { return echo::Recorded<CUresult>(gpufence::kSym_cuGadgetCopy_ptds, dst, src, bytes); }
CUresult cuGadgetFill(void* p, float value, double scale, CUstream hStream) { return echo::Recorded<CUresult>(gpufence::kSym_cuGadgetFill, p, value, scale, hStream); }
CUresult cuGadgetFill_ptsz(void* p, float value, double scale, CUstream hStream) { return echo::Recorded<CUresult>(gpufence::kSym_cuGadgetFill_ptsz, p, value, scale, hStream); }
CUresult cuGadgetFree(void* p) { return echo::Recorded<CUresult>(gpufence::kSym_cuGadgetFree, p); }
CUresult cuGadgetImport(CUgadget* gadget, CUtoken token, unsigned int flags) { return echo::Recorded<CUresult>(gpufence::kSym_cuGadgetImport, gadget, token, flags); }
CUresult cuGadgetMany(const CUplan* plan, int a, unsigned int b, long long c, size_t d, float e, double f, unsigned char g, CUcolor h, void* i, const void* const* j, unsigned short k, float l, uint64_t m, CUgadget n, CUstream o) { return echo::Recorded<CUresult>(gpufence::kSym_cuGadgetMany, plan, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o); }
CUresult cuGadgetName(char name[32], int len) { return echo::Recorded<CUresult>(gpufence::kSym_cuGadgetName, name, len); }
CUresult cuGadgetOnDone(CUstream hStream, CUdoneFn fn, void* userData) { return echo::Recorded<CUresult>(gpufence::kSym_cuGadgetOnDone, hStream, fn, userData); }
CUresult cuGadgetOpen(CUgadget* gadget, unsigned int bytes) { return echo::Recorded<CUresult>(gpufence::kSym_cuGadgetOpen, gadget, bytes); }
CUresult cuGadgetOpen_v2(CUgadget* gadget, size_t bytes, CUshape shape, unsigned long long flags) { return echo::Recorded<CUresult>(gpufence::kSym_cuGadgetOpen_v2, gadget, bytes, shape, flags); }
CUresult cuGadgetOpen_v3(CUgadget* gadget, const CUplan* plan) { return echo::Recorded<CUresult>(gpufence::kSym_cuGadgetOpen_v3, gadget, plan); }
CUresult cuGadgetRelease(void* p) { return echo::Recorded<CUresult>(gpufence::kSym_cuGadgetRelease, p); }
unsigned long long cuGadgetVersion() { return echo::Recorded<unsigned long long>(gpufence::kSym_cuGadgetVersion); }
CUresult cuGadgetWalk(size_t (*visit)(int, void*), CUlookupFn* lookup, void* p) { return echo::Recorded<CUresult>(gpufence::kSym_cuGadgetWalk, visit, lookup, p); }

echo::Untyped cuGadgetPrivate;
int cuGadgetPrivate(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h, uint64_t i, double j, float k) { return echo::Recorded<int>(gpufence::kSym_cuGadgetPrivate, a, b, c, d, e, f, g, h, i, j, k); }
#pragma GCC visibility pop
}  // extern "C"
